// The states of a model on a GPU, kept while it is timed: runs that nobody asked for must not move them.
// Input: a device, the model's own buffer and annexes, places of states.  Output: what puts them back; or `memory-limit`.

import { requireMade, scoped } from './gpu_errors.js';
import { bytesOf, copyPlaces } from './gpu_places.js';

/** Copies all states on the device, each to a buffer of its own: together they may be more than one can have; returns what puts them back. @type {T.KeptStates} */
export async function keptStates(device, memory, places) {
  const bytes = places.map(bytesOf);
  const { value: copies, problem } = scoped(device, () => bytes.map((size) => device.createBuffer({ size, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST })));
  const drop = () => copies.forEach((copy) => copy.destroy());
  await requireMade(problem, 'a copy of the states', bytes.reduce((sum, size) => sum + size, 0), 'Close other tabs: the states must be there again after runs that are timed').catch((error) => {
    drop();
    throw error;
  });
  const kept = places.map((place, annex) => ({ ...place, address: 0, annex }));
  const move = (/** @type {boolean} */ back) => {
    const encoder = device.createCommandEncoder();
    if (back) copyPlaces(encoder, copies, kept, memory, places);
    else copyPlaces(encoder, memory, places, copies, kept);
    device.queue.submit([encoder.finish()]);
  };
  move(false);
  return () => {
    move(true);
    drop();
  };
}

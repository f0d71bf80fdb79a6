// The states of a model on a GPU, kept while it is timed: runs that nobody asked for must not move them.
// Input: a device, the model's own buffer and annexes, places of states.  Output: what puts them back; or `memory-limit`.

import { requireMade, scoped } from './gpu_errors.js';
import { copyPlaces, endOf, inRow } from './gpu_places.js';

/** Copies all states on the device; returns what puts them back. @type {T.KeptStates} */
export async function keptStates(device, memory, places) {
  if (!places.length) return () => {};
  const row = inRow(places);
  const { value: copy, problem } = scoped(device, () => device.createBuffer({ size: endOf(row), usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }));
  await requireMade(problem, 'a copy of the states', endOf(row), 'Close other tabs: the states must be there again after runs that are timed');
  const move = (/** @type {boolean} */ back) => {
    const encoder = device.createCommandEncoder();
    if (back) copyPlaces(encoder, [copy], row, memory, places);
    else copyPlaces(encoder, memory, places, [copy], row);
    device.queue.submit([encoder.finish()]);
  };
  move(false);
  return () => {
    move(true);
    copy.destroy();
  };
}

// The page's side of a kernel swap on WebGPU (webgpu.js is the worker's); only pages that tune load it.
// Input: the tuned kernels in use, and changes.  Output: the new list, once the worker has pipelines for it.

import { factsOf, objectionTo } from './gpu_vet.js';
import { isCount, merged } from './merge.js';

const MOST_TILES = 2 ** 32 - 1;

/** @type {T.Swapped} */
export async function swapped(link, { plans }, { adapter }, kernels, changes) {
  const next = merged(plans, kernels, changes, (kernel, refuse) => {
    const { module, tiles } = kernel;
    if (typeof module !== 'string') return refuse('is no text', 'Its module must be WGSL');
    if (!isCount(tiles, 1, MOST_TILES)) refuse(`has ${tiles} invocations`, 'Give their number, an integer from 1 on', { tiles });
    const objection = objectionTo(new TextEncoder().encode(module), tiles, adapter?.features);
    if (objection) refuse(`is none of Tilewright's: ${objection}`, 'Its text must be of this compiler');
    return { ...kernel, ...factsOf(module) };
  });
  await link.request('swap', { kernels: next });
  return next;
}

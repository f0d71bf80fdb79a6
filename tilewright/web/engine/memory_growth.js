// WebAssembly's memory, which grows with the states that grow (docs/bundle.md).
// Input: a memory, and how many bytes of it, or how many rows of states, a run needs.
// Output: the memory, large enough; or a `memory-limit` error, and the memory as it was.

import { EngineError } from './errors.js';

/** Bytes of a page. */
export const PAGE = 65536;

/** @type {T.Reach} */
export function reach(memory, bytes) {
  // The length of `buffer` may be from before another thread grew the memory.
  const pages = Math.ceil(bytes / PAGE) - memory.grow(0);
  try {
    if (pages > 0) memory.grow(pages);
  } catch {
    throw new EngineError('memory-limit', 'There is no memory for a longer text', 'Shorten the text, or close other tabs and go on', { estimate: bytes });
  }
}

/** @type {T.ReachFor} */
export function reachFor(memory, { last, least, of: { rows, block, most, behind } }) {
  const needed = Math.max(least, 1 + new Int32Array(memory.buffer)[last / 4]);
  reach(memory, behind + block * Math.min(most, Math.ceil(needed / rows)));
}

// The control block (docs/bundle.md): words by which host and workers talk.
// Input: a bundle's memory.  Output: its words; indices count 32-bit words.

export const PREEMPT = 0;
export const ABORT = 1;
export const TRAPPED = 2;
export const SPIN = 4;
export const PATIENCE = 5;
export const DONE = 66;
export const SLEEPERS = 96;

/** Values of ABORT, and what `run` returns instead of 0. */
export const TRAP = 1;
export const STALLED = 2;

export const MOST_THREADS = 32;

/** The step that a worker is in, plus one; 0 outside of any run. @param {number} worker */
export const stepOf = (worker) => 512 + 16 * worker;

/** @param {WebAssembly.Memory} memory */
export const wordsOf = (memory) => new Int32Array(memory.buffer, 0, 1024);

/**
 * Ends the run that is under way because this worker will not go on with it.
 * @param {Int32Array} words
 * @param {number} worker
 * @param {number} code
 */
export function leaveRun(words, worker, code) {
  const step = Atomics.load(words, stepOf(worker));
  Atomics.compareExchange(words, TRAPPED, 0, step);
  Atomics.store(words, ABORT, code);
  Atomics.store(words, stepOf(worker), 0);
  Atomics.notify(words, stepOf(worker));
  Atomics.notify(words, DONE);
}

// Runs kernels before the weights are there, so that the browser has optimised them when the first run comes.
// Input: memory with plan images, the filled function table, how many bytes have arrived.  Output: milliseconds spent.
// It works only while nothing arrives, a few milliseconds at a time; it computes nothing that anyone reads.

import { IMAGE } from './bundle.js';

/** Milliseconds of one piece of work, and of all pieces of one kernel: some 20 tiles of fresh code each. */
const PIECE = 2;
const PER_KERNEL = 10;

/**
 * @typedef {(args: number, first: number, last: number) => void} Kernel
 * @typedef {{kernel: Kernel, args: number, tiles: number, next: number, spent: number}} Job
 */

/**
 * One job per kernel: the step with the most tiles.
 * @param {WebAssembly.Memory} memory
 * @param {WebAssembly.Table} table
 * @param {{address: number, steps: unknown[]}[]} plans
 * @returns {Job[]}
 */
function jobsOf(memory, table, plans) {
  /** @type {Map<number, Job>} */
  const jobs = new Map();
  for (const { address, steps } of plans) {
    const words = new Uint32Array(memory.buffer, address);
    steps.forEach((_, step) => {
      const [slot, args, tiles] = words.subarray(IMAGE.header + step * IMAGE.step);
      if (tiles <= (jobs.get(slot)?.tiles ?? 0)) return;
      jobs.set(slot, { kernel: table.get(slot), args, tiles, next: 0, spent: 0 });
    });
  }
  return [...jobs.values()];
}

/**
 * Whatever lies in the arena is the input.  A kernel that traps on it (an index outside its table)
 * is done: it is left to the first run.
 * @param {Job} job
 */
function work(job) {
  const start = performance.now();
  let now = start;
  try {
    while (now - start < PIECE) {
      job.kernel(job.args, job.next, job.next + 1);
      job.next = (job.next + 1) % job.tiles;
      now = performance.now();
    }
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    job.spent = PER_KERNEL;
  }
  job.spent += now - start;
  return now - start;
}

/**
 * Starts at once; `stop` ends it and gives the milliseconds that went into kernels.
 * @param {WebAssembly.Memory} memory
 * @param {WebAssembly.Table} table
 * @param {{address: number, steps: unknown[]}[]} plans
 * @param {() => number} arrived bytes so far
 */
export function warmUp(memory, table, plans, arrived) {
  let queue = jobsOf(memory, table, plans);
  let spent = 0;
  let before = arrived();
  // Nested timers wait four milliseconds: time for whatever else wants this thread.
  const timer = setInterval(() => {
    const idle = arrived() === before;
    before = arrived();
    const job = queue.shift();
    if (!job) return clearInterval(timer);
    if (idle) spent += work(job);
    if (job.spent < PER_KERNEL) queue.push(job);
  }, 0);
  return {
    stop() {
      clearInterval(timer);
      queue = [];
      return spent;
    },
  };
}

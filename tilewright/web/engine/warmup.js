// Runs kernels before the weights are there, so that the browser has optimised them for the first run.
// It works only while nothing arrives, and computes nothing that anyone reads.

import { IMAGE } from './bundle.js';

/** Milliseconds of one piece of work, and of all pieces of one kernel: some 20 tiles of fresh code each. */
const PIECE = 2;
const PER_KERNEL = 10;

/** @type {T.JobsOf} */
function jobsOf(memory, table, plans) {
  /** @type {Map<number, T.WarmUpJob>} */
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

/** @type {T.WarmUpWork} */
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

/** @type {T.WarmUp} */
export function warmUp(memory, table, plans, meter) {
  let queue = jobsOf(memory, table, plans);
  let spent = 0;
  let before = meter.loaded;
  // Nested timers wait four milliseconds: time for whatever else wants this thread.
  const timer = setInterval(() => {
    const idle = meter.loaded === before;
    before = meter.loaded;
    const job = queue.shift();
    if (!job) return clearInterval(timer);
    if (idle) spent += work(job);
    if (job.spent < PER_KERNEL) queue.push(job);
  }, 0);
  return () => {
    clearInterval(timer);
    queue = [];
    return spent;
  };
}

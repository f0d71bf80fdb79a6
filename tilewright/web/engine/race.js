// Which of two devices runs a model faster: a few runs by turns, in bounded time.
// Input: for each device a function that runs the model once.  Output: the faster device and the median of each.
// It loads nothing and knows no engine.

import { LATE, within } from './patience.js';

/** Milliseconds of all runs together, unless a device's first run alone takes longer. */
const BUDGET = 1200;
/** Milliseconds or runs after which a device is warm: WebAssembly first runs in code that is not optimised yet. */
const [WARM, MOST_WARM] = [150, 50];
/** Warm runs of each device that a clear verdict needs. */
const LEAST = 3;
/** Once the budget is spent, a run is waited for up to this many times the other device's median. */
const FAR = 2;

/** @type {T.Device[]} */
export const DEVICES = ['wasm', 'webgpu'];

/** @param {number[]} times */
const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

/** The runs after warm-up; the last one if there are none. @param {number[]} times */
function warm(times) {
  let spent = 0;
  let first = 0;
  while (first < Math.min(times.length - 1, MOST_WARM) && spent < WARM) spent += times[first++];
  return times.slice(first);
}

/** The verdict on these milliseconds, listed by device in the order of the runs; a tie is WebAssembly's. @type {T.JudgeTimes} */
export function judged(times) {
  const [wasm, webgpu] = DEVICES.map((device) => warm(times[device]));
  const milliseconds = { wasm: median(wasm), webgpu: median(webgpu) };
  const gpu = milliseconds.webgpu < milliseconds.wasm;
  const [fast, slow] = gpu ? [webgpu, wasm] : [wasm, webgpu];
  const clear = Math.min(fast.length, slow.length) >= LEAST && Math.max(...fast) < Math.min(...slow);
  return { chosen: gpu ? 'webgpu' : 'wasm', milliseconds, clear };
}

/** Runs both by turns until their times differ clearly or the budget is spent.  Rejects as a run does. @type {T.Race} */
export async function raced(runs, now = () => performance.now()) {
  /** @type {Record<T.Device, number[]>} */
  const times = { wasm: [], webgpu: [] };
  const end = now() + BUDGET;
  for (;;) {
    for (const [at, device] of DEVICES.entries()) {
      const others = times[DEVICES[1 - at]];
      const start = now();
      const run = runs[device]().then(() => '');
      const late = await (others.length ? within(Math.max(end - start, FAR * median(others)), run) : run) === LATE;
      // A run that is not over took at least this long; of earlier ones, more is known.
      if (!late || !times[device].length) times[device].push(now() - start);
      if (late) return { ...judged(times), late: device };
    }
    const found = judged(times);
    if (found.clear || now() >= end) return found;
  }
}

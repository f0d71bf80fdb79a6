// Times whole runs of a plan with the kernels in use, and warms them up. Input: an engine, its pace, a plan.  Output: milliseconds.
// Nothing is swapped or compared here.
//
// Browsers run new code slowly and optimise a function once it is hot.  So runs are warmed up before a latency or a gain is measured.

import { median } from '../trial/statistics.js';
import { mayRun } from '../loop/hot_kernels.js';

/** Milliseconds of one measurement, a group of runs that is timed as one sample. */
const LOOK = 4;
/** The most runs per measurement. */
const MOST = 40;
/** Size of the window of latest times that decides whether a plan is warm. */
const LATEST = 16;
/** Times have settled if median and minimum of the later half are at least this share of the earlier half's. */
const FALL = 0.95;
/** The least milliseconds of warm-up. */
const WARM = 300;
/** The most milliseconds of warm-up, even if times have not settled. */
const LONGEST = 2000;
/** The most runs of warm-up, in case the clock does not advance. */
const MOST_RUNS = 4000;

/** Number of runs in one measurement of work that takes `milliseconds`. @param {number} milliseconds @param {number} least */
export const runsOf = (milliseconds, least) => Math.max(least, Math.min(MOST, Math.round(LOOK / Math.max(milliseconds, 1e-3))));

/** Milliseconds of whole runs of a plan; empty if it may not run. @type {Tune.PlanTimes} */
export const planTimes = (engine, pace, { plan, bucket }, runs = 1) => pace.job(
  async () => (mayRun(engine, plan) ? (await engine.time({ bucket, runs, warmup: 0 })).milliseconds : []));

/**
 * The times, or `otherwise` if a kernel trapped, probably on the inputs of the page's last run, whose trap the page knows.
 * @type {Tune.UnlessTrapped}
 */
export const unlessTrapped = (times, otherwise) => times.catch((error) => {
  if (error?.code !== 'kernel-trap') throw error;
  return otherwise;
});

/** True if times have stopped falling; false for fewer than two. @param {number[]} times */
export function settled(times) {
  const [early, late] = [times.slice(0, times.length >> 1), times.slice(times.length >> 1)];
  return early.length > 0 && median(late) >= FALL * median(early) && Math.min(...late) >= FALL * Math.min(...early);
}

/** Median of the later half of times. @param {number[]} times */
export const usual = (times) => median(times.slice(times.length >> 1));

/**
 * Runs a plan until it is warm.  Resolves with the latest times without the first; empty if the plan may not run or traps.
 * @type {Tune.WarmUp}
 */
export async function warmUp(engine, pace, which, least = WARM) {
  /** @type {number[]} */
  const times = [];
  let [spent, last] = [0, LOOK];
  for (let first = true; ; first = false) {
    const found = await unlessTrapped(planTimes(engine, pace, which, runsOf(last, 1)), []);
    if (!found.length) return [];
    last = median(found);
    spent += found.reduce((sum, time) => sum + time, 0);
    if (first) continue;
    times.push(...found);
    const latest = times.slice(-LATEST);
    const over = spent >= LONGEST || times.length >= MOST_RUNS;
    if (over || (spent >= least && settled(latest))) return latest;
  }
}

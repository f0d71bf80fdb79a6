// Whole runs of a plan as the engine runs it now: their times, and whether it is warm.
// Input: an engine, its pace, a plan.  Output: milliseconds.  It exchanges and compares nothing.
//
// Browsers run fresh code slowly and optimise a function once it has been used a lot.  Times from before that say nothing of a
// kernel: runs are warmed up before a latency or a gain is told.

import { median } from '../trial/statistics.js';
import { mayRun } from '../loop/targets.js';

/** Milliseconds of one look, and how often a step or a plan may run for that. */
const LOOK = 4;
const MOST = 40;
/** Median and least of the later half of times must not lie below this share of those of the earlier half; only the latest count. */
const LATEST = 16;
const FALL = 0.95;
/** Milliseconds of runs before which no plan is taken for warm, and after which it is, however restless; runs, if the clock stands still. */
const WARM = 300;
const LONGEST = 2000;
const MOST_RUNS = 4000;

/** How often something of so many milliseconds runs for one look. @param {number} milliseconds @param {number} least */
export const runsOf = (milliseconds, least) => Math.max(least, Math.min(MOST, Math.round(LOOK / Math.max(milliseconds, 1e-3))));

/** Milliseconds of whole runs of a plan as the engine runs it now; none if it may not run. @type {Tune.PlanTimes} */
export const planTimes = (engine, pace, { plan, bucket }, runs = 1) => pace.job(
  async () => (mayRun(engine, plan) ? (await engine.time({ bucket, runs, warmup: 0 })).milliseconds : []));

/** What the times are, or `otherwise` if a kernel trapped: the inputs of the page's last run, perhaps, of which the page knows. @type {Tune.UnlessTrapped} */
export const unlessTrapped = (times, otherwise) => times.catch((error) => {
  if (error?.code !== 'kernel-trap') throw error;
  return otherwise;
});

/** Whether times fall no more; one alone does not say. @param {number[]} times */
export function settled(times) {
  const [early, late] = [times.slice(0, times.length >> 1), times.slice(times.length >> 1)];
  return early.length > 0 && median(late) >= FALL * median(early) && Math.min(...late) >= FALL * Math.min(...early);
}

/** The median of the later half of times. @param {number[]} times */
export const usual = (times) => median(times.slice(times.length >> 1));

/** Runs a plan until it is warm; gives its latest times without the very first look, or none if it may not run or traps. @type {Tune.WarmUp} */
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

// Times whole runs of a plan with the kernels in use, and warms them up.
// Input: an engine, its pace, a plan.  Output: milliseconds. Nothing is swapped or compared here.
//
// Browsers run new code slowly and optimise a function once it is hot.  So runs are warmed up before a latency or a gain is measured.

import { mayRun } from '../loop/hot_kernels.js';
import { changeOf } from '../records/device_record.js';
import { interval, median } from '../trial/statistics.js';

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

/** The least and the most pairs of measurements, one per side. */
const [LEAST, MOST_PAIRS] = [6, 16];
/** Milliseconds of all pairs; slow models get fewer pairs. */
const ENOUGH = 2000;
/** Half-width of the interval in standard deviations: 95 %. */
const SURE = 2;
/**
 * While times still fall, code is not optimised yet: pairs are added and only the latest count.  This factor bounds their number and time,
 * but twice the number is always allowed.
 */
const MOST_TIMES = 4;

const UNKNOWN = { ratio: NaN, low: NaN, high: NaN, pairs: 0, own: NaN, tuned: NaN };
const CANNOT = 'the model cannot run now with the inputs it has';
const RESTLESS = 'the times did not settle';

/** The result is cached, so each comparison is made once per session. @type {Gains.PairedRuns} */
export async function pairedRuns({ compared, ...parts }, which, kernels) {
  const key = JSON.stringify([which.plan, ...kernels.map(({ winner, back }) => [winner.spec, winner.digest, back?.digest]).sort()]);
  const found = compared.get(key) ?? await taken(parts, which, kernels);
  compared.set(key, found);
  return found;
}

/** The order alternates from pair to pair (A B, B A), which halves the number of swaps. @type {Gains.Taken} */
async function taken({ engine, pace, onEvent }, which, kernels) {
  const changes = await Promise.all(kernels.map(({ winner }) => changeOf(engine, winner)));
  const backs = await Promise.all(kernels.map(({ winner: { spec }, back }) => (back ? changeOf(engine, back) : { spec, module: null })));
  const sides = [backs, changes];
  let inUse = 1;
  const put = async (/** @type {number} */ side) => {
    if (side !== inUse) await pace.job(() => engine.swap(sides[side]));
    inUse = side;
  };
  /** @type {number[][]} */
  const times = [[], []];
  try {
    const warm = [NaN, NaN];
    for (const side of [1, 0]) {
      onEvent({ type: 'turns', pairs: 0 });
      await put(side);
      const found = await warmUp(engine, pace, which);
      if (!found.length) return { ...UNKNOWN, why: CANNOT };
      warm[side] = usual(found);
    }
    const both = warm[0] + warm[1];
    const runs = runsOf(both / 2, 1);
    const pairs = Math.max(LEAST, Math.min(MOST_PAIRS, 2 * Math.round(ENOUGH / (both * runs) / 2)));
    const most = Math.max(2 * pairs, Math.min(MOST_TIMES * pairs, Math.round(MOST_TIMES * ENOUGH / (both * runs))));
    while (times[0].length < most) {
      for (const side of [inUse, 1 - inUse]) {
        await put(side);
        const found = await unlessTrapped(planTimes(engine, pace, which, runs), []);
        if (!found.length) return { ...UNKNOWN, why: CANNOT };
        times[side].push(median(found));
      }
      onEvent({ type: 'turns', pairs: times[0].length });
      const latest = times.map((all) => all.slice(-pairs));
      if (times[0].length >= pairs && latest.every(settled)) return judged(latest);
    }
    return { ...UNKNOWN, why: RESTLESS };
  } finally {
    if (!inUse) await engine.swap(changes);
  }
}

/** @param {number[][]} times @returns {Gains.Turns} */
function judged([own, tuned]) {
  const { centre, low, high } = interval(own.map((time, at) => Math.log(time / tuned[at])), SURE);
  const ratio = Math.exp(centre);
  if (!(ratio > 0 && ratio < Infinity)) return { ...UNKNOWN, why: 'the runs are too short for the clock' };
  return { ratio, low: Math.exp(low), high: Math.exp(high), pairs: own.length, own: median(own), tuned: median(own) / ratio, why: '' };
}

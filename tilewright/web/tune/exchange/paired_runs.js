// Compares two sets of kernels by alternating whole warm runs of a plan in one engine (A B, B A, ...). Input: kernels in use, each with its
// alternative.  Output: the ratio of the times with its interval; events.  The kernels in use are the same before and after.  The caller
// draws conclusions.

import { changeOf } from '../records/device_record.js';
import { planTimes, runsOf, settled, unlessTrapped, usual, warmUp } from './runs.js';
import { interval, median } from '../trial/statistics.js';

/** The least and the most pairs of measurements, one per side. */
const [LEAST, MOST] = [6, 16];
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
    const pairs = Math.max(LEAST, Math.min(MOST, 2 * Math.round(ENOUGH / (both * runs) / 2)));
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

// Two sets of kernels against each other: whole runs of a plan, by turns in the same engine, both of them warm.
// Input: kernels in use, each with what would be in its place.  Output: how many times as fast the plan is with them, with an
// interval; events meanwhile.  They are in use before and after.  What that means is decided elsewhere.

import { changeOf } from '../records/record.js';
import { planTimes, runsOf, settled, unlessTrapped, usual, warmUp } from './runs.js';
import { interval, median } from '../trial/statistics.js';

/** Pairs of looks, one at each side: fewer if they would take more than so many milliseconds. */
const [LEAST, MOST] = [6, 16];
const ENOUGH = 2000;
/** Standard deviations beyond which a difference is no chance: 95 % lie within. */
const SURE = 2;
/**
 * Times that still fall belong to code that is not optimised yet: only the latest pairs count.  So many times as many are taken at
 * most, or as much time is spent; twice as many in any case.
 */
const PATIENCE = 4;

const UNKNOWN = { ratio: NaN, low: NaN, high: NaN, pairs: 0, own: NaN, tuned: NaN };
const CANNOT = 'the model cannot run now with the inputs it has';
const RESTLESS = 'the times did not settle';

/** Each comparison is made once in a session. @type {Gains.ByTurns} */
export async function byTurns({ compared, ...parts }, which, kernels) {
  const key = JSON.stringify([which.plan, ...kernels.map(({ winner, back }) => [winner.spec, winner.digest, back?.digest]).sort()]);
  const found = compared.get(key) ?? await taken(parts, which, kernels);
  compared.set(key, found);
  return found;
}

/** The order changes from pair to pair, so that half of the exchanges is enough. @type {Gains.Taken} */
async function taken({ engine, pace, onEvent }, which, kernels) {
  const changes = await Promise.all(kernels.map(({ winner }) => changeOf(winner)));
  const backs = await Promise.all(kernels.map(({ winner: { spec }, back }) => (back ? changeOf(back) : { spec, module: null })));
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
    const most = Math.max(2 * pairs, Math.min(PATIENCE * pairs, Math.round(PATIENCE * ENOUGH / (both * runs))));
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

// From a candidate that won its trial to one that the engine runs, or back.
// Input: the engine, a kernel.  Output: whether it stayed.  The trial saw one thread and an empty machine:
// here the step itself is timed, in the engine, before and after; and at a session's end the whole model.

import { interval, median } from './statistics.js';
import { mayRun } from './targets.js';

/** Milliseconds of one look, and how often the step or plan may run for that. */
const LOOK = 4;
const MOST = 40;
/** A single step's first run after others is not like the next ones, unless it takes so many milliseconds. */
const LEAST_STEPS = 3;
const LONG = 20;
/** Looks on each side before it is said to be slower, and by how much it must be. */
const LOOKS = 3;
const WORSE = 1.02;
/** Looks on each side at the whole model, and standard deviations beyond which a difference is no chance. */
const PAIRS = 8;
const SURE = 2;
/** Fewer looks are enough if all of them say faster, and their product is this: one of four times, or two of twice. */
const PLENTY = 4;
const UNKNOWN = { ratio: NaN, low: NaN, high: NaN };

/** How often something of so many milliseconds runs for one look. @param {number} milliseconds @param {number} least */
const runsOf = (milliseconds, least) => Math.max(least, Math.min(MOST, Math.round(LOOK / Math.max(milliseconds, 1e-3))));

/** Milliseconds of whole runs of a plan as the engine runs it now; none if it may not run. @type {Tune.PlanTimes} */
export const planTimes = (engine, pace, { plan, bucket }, runs = 1) => pace.job(
  async () => (mayRun(engine, plan) ? (await engine.time({ bucket, runs, warmup: 0 })).milliseconds : []));

/** The median of them, or NaN. @type {Tune.PlanTime} */
const planTime = async (...parts) => median(await planTimes(...parts));

/**
 * What looks at a kernel in the engine: at its step, or at the whole plan where the step cannot run alone.  If the inputs of
 * the page's last run let even that trap, or the plan may not run, there is nothing to look at: only the trial counts.
 * @type {Tune.Looker}
 */
async function looker(engine, pace, target) {
  const { plan, bucket, step, milliseconds, alone } = target;
  const atStep = () => pace.job(async () => {
    if (!mayRun(engine, plan)) return NaN;
    const { steps: [found] } = await engine.profile({ bucket, runs: runsOf(milliseconds, milliseconds < LONG ? LEAST_STEPS : 1), only: [step] });
    return found.milliseconds;
  });
  const atPlan = () => planTime(engine, pace, target, runs);
  let runs = 1;
  const first = alone ? await unlessTrapped(atStep()) : NaN;
  if (first >= 0) return { look: atStep, first };
  runs = runsOf(await unlessTrapped(atPlan()), 1);
  return runs > 0 ? { look: atPlan, first: await atPlan() } : { look: async () => NaN, first: NaN };
}

/** NaN if a kernel trapped. @type {(time: Promise<number>) => Promise<number>} */
const unlessTrapped = (time) => time.catch((error) => {
  if (error?.code !== 'kernel-trap') throw error;
  return NaN;
});

/** Swaps the change in; after a regress, or a failure half-way, `back` is in again. @type {Tune.Adopt} */
export async function adopt(engine, pace, target, change, back) {
  const put = (/** @type {T.Change} */ which) => pace.job(() => engine.swap([which]));
  const { look, first } = await looker(engine, pace, target);
  const [before, after] = [[first], /** @type {number[]} */ ([])];
  const worse = () => median(after) > WORSE * median(before) && Math.min(...after) > Math.min(...before);
  try {
    await put(change);
    after.push(await look());
    while (worse() && after.length < LOOKS) {
      await put(back);
      before.push(await look());
      await put(change);
      after.push(await look());
    }
    if (worse()) await pace.job(() => engine.swap([back]), true);
  } catch (error) {
    await engine.swap([back]).catch(() => {});
    throw error;
  }
  return { stays: !worse(), better: WORSE * median(after) < median(before), before: median(before), after: median(after) };
}

/**
 * Time of a plan without these kernels over its time with them, with an interval; they are in use before and after.
 * NaN if the plan traps, as with some inputs of the page's last run, or may not run.
 * The order changes from pair to pair, so that half of the swaps is enough.
 * @type {Tune.Together}
 */
export async function together(engine, pace, target, changes, backs) {
  const sides = [backs, changes];
  let inUse = 1;
  /** @type {number[]} */
  const found = [];
  try {
    const runs = runsOf(await unlessTrapped(planTime(engine, pace, target)), 1);
    if (!(runs > 0)) return UNKNOWN;
    const plenty = () => found.every((value) => value > 0) && found.reduce((sum, value) => sum + value, 0) > Math.log(PLENTY);
    for (let pair = 0; pair < PAIRS && !plenty(); pair++) {
      const times = [0, 0];
      for (const side of [inUse, 1 - inUse]) {
        if (side !== inUse) await pace.job(() => engine.swap(sides[side]));
        inUse = side;
        times[side] = await planTime(engine, pace, target, runs);
      }
      if (times.some(Number.isNaN)) return UNKNOWN;
      found.push(Math.log(times[0] / times[1]));
    }
  } finally {
    if (!inUse) await engine.swap(changes);
  }
  const { centre, low, high } = interval(found, SURE);
  return { ratio: Math.exp(centre), low: Math.exp(low), high: Math.exp(high) };
}

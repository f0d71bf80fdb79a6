// From a candidate that won its trial to one that the engine runs, or back.
// Input: the engine, a kernel.  Output: whether it stayed.  The trial saw one thread and an empty machine:
// here the step itself is timed, in the engine, before and after.

import { planTimes, runsOf, unlessTrapped } from './runs.js';
import { median } from '../trial/statistics.js';
import { mayRun } from '../loop/targets.js';

/** A single step's first run after others is not like the next ones, unless it takes so many milliseconds. */
const LEAST_STEPS = 3;
const LONG = 20;
/** Looks on each side before it is said to be slower, and by how much it must be. */
const LOOKS = 3;
const WORSE = 1.02;

/** The median of whole runs of a plan, or NaN. @type {Tune.PlanTime} */
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
  const first = alone ? await unlessTrapped(atStep(), NaN) : NaN;
  if (first >= 0) return { look: atStep, first };
  runs = runsOf(await unlessTrapped(atPlan(), NaN), 1);
  return runs > 0 ? { look: atPlan, first: await atPlan() } : { look: async () => NaN, first: NaN };
}

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

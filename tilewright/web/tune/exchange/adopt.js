// Swaps a candidate that won its trial into the engine, and rolls it back if it is slower there.
// Input: the engine, a kernel.  Output: whether it stays.  A trial uses one thread and its own memory.  Here the engine's own step is timed
// before and after.  If one dispatch computes the step with others, the whole plan is timed, since an exchanged kernel makes the step a
// dispatch of its own.
//
// Before that, the results of both kernels are compared in the engine, on the data of the page's last run: a trial has made-up data, so a kernel
// could tell it from a real run.  The old kernel is in use before and after, unless it fails.

import { mayRun } from '../loop/hot_kernels.js';
import { median } from '../trial/statistics.js';
import { planTimes, runsOf, unlessTrapped } from './runs.js';

/** The least runs of a step per measurement: the first one finds cold caches. */
const LEAST_STEPS = 3;
/** Milliseconds of a step from which on one run of it is enough. */
const LONG = 20;
/** Measurements per side before a kernel counts as slower. */
const LOOKS = 3;
/** The time ratio above which a kernel counts as slower. */
const WORSE = 1.02;

/** Median milliseconds of whole runs of a plan; NaN if it may not run. @type {Tune.PlanTime} */
const planTime = async (...parts) => median(await planTimes(...parts));

/**
 * A function that times a kernel in the engine: its step, or the whole plan if the step cannot run alone or is joined to others.  If even
 * that traps with the inputs of the page's last run, or the plan may not run, times are NaN and only the trial counts.
 * @type {Tune.Looker}
 */
async function looker(engine, pace, target) {
  const { plan, bucket, step, milliseconds, alone, joined } = target;
  const atStep = () => pace.job(async () => {
    if (!mayRun(engine, plan)) return NaN;
    const { steps: [found] } = await engine.profile({ bucket, runs: runsOf(milliseconds, milliseconds < LONG ? LEAST_STEPS : 1), only: [step] });
    return found.milliseconds;
  });
  const atPlan = () => planTime(engine, pace, target, runs);
  let runs = 1;
  const first = alone && !joined ? await unlessTrapped(atStep(), NaN) : NaN;
  if (first >= 0) return { look: atStep, first };
  runs = runsOf(await unlessTrapped(atPlan(), NaN), 1);
  return runs > 0 ? { look: atPlan, first: await atPlan() } : { look: async () => NaN, first: NaN };
}

/** Swaps `change` in; after a regression `back` is in use again, after a failure either may be. @type {Tune.Adopt} */
export async function adopt(engine, pace, target, change, back) {
  const put = (/** @type {T.Change} */ which) => pace.job(() => engine.swap([which]));
  const { look, first } = await looker(engine, pace, target);
  const [before, after] = [[first], /** @type {number[]} */ ([])];
  const worse = () => median(after) > WORSE * median(before) && Math.min(...after) > Math.min(...before);
  await put(change);
  after.push(await look());
  while (worse() && after.length < LOOKS) {
    await put(back);
    before.push(await look());
    await put(change);
    after.push(await look());
  }
  if (worse()) await pace.job(() => engine.swap([back]), true);
  return { stays: !worse(), better: WORSE * median(after) < median(before), before: median(before), after: median(after) };
}

/** Attempts at a comparison during which the page leaves the inputs of its last run as they are. */
const TRIES = 3;

/** @type {Tune.Disagreement} */
export async function disagreement({ engine, pace, specs, trials }, { plan, bucket, step, alone }, change, back) {
  if (!alone) return null;
  const { place, ...facts } = specs.resultOf(plan, step);
  // What is computed together leaves nothing in memory for its later steps: they all run, one by one.
  const first = specs.firstOf(plan, step);
  const only = Array.from({ length: step + 1 - first }, (_, number) => first + number);
  const look = async () => (mayRun(engine, plan) ? (await engine.profile({ bucket, runs: 1, only, read: place })).read : undefined);
  // One job, so that it takes no longer than it must.
  const looks = () => pace.job(async () => {
    const before = await look();
    await engine.swap([change]);
    const found = await look();
    await engine.swap([back]);
    return [before, found, await look()];
  });
  for (let left = TRIES; left; left--) {
    const [wanted, found, again] = await looks();
    if (!wanted || !found || !again) return null;
    // The page may fill its arrays anew at any time.
    if (!wanted.every((byte, at) => byte === again[at])) continue;
    const differs = await trials.compare({ ...facts, found, wanted });
    return differs ? { verdict: 'wrong', why: `in the model ${differs}` } : null;
  }
  return { verdict: 'refused', why: 'the results of the kernel in use changed while it was compared with it' };
}

// From a candidate that won its trial to one that the engine runs, or back.
// Input: the engine, a kernel.  Output: whether it stayed.  The trial saw one thread and an empty machine:
// here the step itself is timed, in the engine, before and after.

import { median } from './statistics.js';

/** Milliseconds of one look at a step, and how often it may run for that. */
const LOOK = 4;
const [LEAST, MOST] = [3, 40];
/** Looks on each side before it is said to be slower, and by how much it must be. */
const LOOKS = 3;
const WORSE = 1.02;

/** Milliseconds of a step as the engine runs it now; NaN if it cannot run alone. @type {Tune.StepTime} */
export async function stepTime(engine, pace, { bucket, step, milliseconds, alone }) {
  if (!alone) return NaN;
  const runs = Math.max(LEAST, Math.min(MOST, Math.round(LOOK / Math.max(milliseconds, 1e-3))));
  try {
    const { steps: [found] } = await pace.job(() => engine.profile({ bucket, runs, only: [step] }));
    return found.milliseconds;
  } catch (error) {
    // What lies in the arena may be no index; then only the trial counts.
    if (/** @type {any} */ (error)?.code !== 'kernel-trap') throw error;
    return NaN;
  }
}

/** Swaps the change in; after a regress, or a failure half-way, `back` is in again. @type {Tune.Adopt} */
export async function adopt(engine, pace, target, change, back) {
  const put = (/** @type {T.Change} */ which) => pace.job(() => engine.swap([which]));
  const look = () => stepTime(engine, pace, target);
  const [before, after] = [[await look()], /** @type {number[]} */ ([])];
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
    if (worse()) await put(back);
  } catch (error) {
    await engine.swap([back]).catch(() => {});
    throw error;
  }
  return { stays: !worse(), before: median(before), after: median(after) };
}

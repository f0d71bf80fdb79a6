// Compares a kernel that won its trial with the one that it is to replace, in the engine and on the data of the page's last run.
// Input: the tools of a session, the step, the swaps there and back.  Output: what is wrong with it, or null.  The old kernel is
// in use before and after, unless it fails.  A trial has its own memory and made-up data: a kernel could tell it from a real run.

import { mayRun } from '../loop/hot_kernels.js';

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

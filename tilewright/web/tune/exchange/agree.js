// Compares a kernel that won its trial with the one that it is to replace, in the engine and on the data of the page's last run.
// Input: the tools of a session, the step, the swaps there and back.  Output: how the results differ, or ''.  The old kernel is
// in use before and after.  A trial has its own memory and made-up data: a kernel could tell it from a real run.

import { mayRun } from '../loop/targets.js';
import { hear } from '../loop/pace.js';

/** Attempts at a comparison without a run of the page in between, which would change the data. */
const TRIES = 3;

/** @type {Tune.Disagreement} */
export async function disagreement({ engine, pace, specs, trials }, { plan, bucket, step, alone }, change, back) {
  if (!alone) return '';
  const { place, ...facts } = specs.resultOf(plan, step);
  const put = (/** @type {T.Change} */ which) => pace.job(() => engine.swap([which]));
  const look = () => pace.job(async () => (mayRun(engine, plan) ? (await engine.profile({ bucket, runs: 1, only: [step], read: place })).read : undefined));
  let runs = 0;
  const deaf = hear(engine, (_, ran) => {
    if (ran !== undefined) runs++;
  });
  try {
    for (let left = TRIES; left; left--) {
      runs = 0;
      const wanted = await look();
      await put(change);
      const found = await look().finally(() => engine.swap([back]));
      if (!wanted || !found) return '';
      if (!runs) return trials.compare({ ...facts, found, wanted });
    }
    return '';
  } finally {
    deaf();
  }
}

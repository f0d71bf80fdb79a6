// What becomes of a tuned kernel that traps when the page runs the model: the bundle's own comes back.
// Input: an engine whose kernels are exchanged.  Output: the same engine; the run that trapped still says so.

import { EngineError } from '../engine/errors.js';
import { changeOf, keep, recall } from './record.js';

/** @type {WeakSet<T.Engine>} */
const guarded = new WeakSet();

/** @param {T.Engine} engine */
export function guard(engine) {
  if (guarded.has(engine)) return;
  guarded.add(engine);
  const { run } = engine;
  engine.run = async (...given) => {
    try {
      return await run(...given);
    } catch (error) {
      // The run's own error is what the page must know.
      await examine(engine, error, () => run(...given)).catch(() => {});
      throw error;
    }
  };
}

/** Whose fault was it?  Inputs that make the bundle's own kernel trap, too, say nothing of the winner. @type {Tune.Examine} */
async function examine(engine, error, again) {
  if (!(error instanceof EngineError && error.code === 'kernel-trap' && error.facts.tuned)) return;
  const record = await recall(engine);
  const winner = record.winners.find(({ spec }) => spec === error.facts.spec);
  if (!winner) return;
  await engine.swap([{ spec: winner.spec, module: null }]);
  if (!await again().then(() => true, () => false)) {
    if (record.winners.includes(winner)) await engine.swap([await changeOf(winner)]);
    return;
  }
  record.winners = record.winners.filter((other) => other !== winner);
  (record.bad[winner.spec] ??= []).push(winner.candidate);
  await keep(engine, record);
}

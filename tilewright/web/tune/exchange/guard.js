// What becomes of a tuned kernel that traps when the page runs the model: the bundle's own comes back.
// Input: an engine whose kernels are exchanged.  Output: the same engine; the run that trapped still says so.

import { EngineError } from '../../engine/errors.js';
import { changeOf, keep, recall } from '../records/record.js';

/** @type {WeakSet<T.Engine>} */
const guarded = new WeakSet();

/** Of each engine, kernels that are exchanged back and forth, and whether a run trapped in one meanwhile. @type {WeakMap<T.Engine, Tune.OpenExchange>} */
const exchanged = new WeakMap();

/** Exchanges kernels: a run that traps in one of them meanwhile changes nothing, but `work` can ask for it. @type {Tune.Undisturbed} */
export async function undisturbed(engine, specs, work) {
  const state = { specs, trapped: false };
  exchanged.set(engine, state);
  try {
    return await work(() => state.trapped);
  } finally {
    exchanged.delete(engine);
  }
}

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
  const spec = /** @type {number} */ (error.facts.spec);
  const exchange = () => {
    const known = exchanged.get(engine);
    return known?.specs.includes(spec) ? known : null;
  };
  const now = exchange();
  if (now) {
    now.trapped = true;
    return;
  }
  const record = await recall(engine);
  const winner = record.winners.find((other) => other.spec === spec);
  if (!winner) return;
  const back = await changeOf(winner);
  // Who began to exchange it in the meantime knows what is in use then.
  const mine = () => !exchange() && record.winners.includes(winner);
  if (!mine()) return;
  await engine.swap([{ spec, module: null }]);
  const guilty = await again().then(() => true, () => false);
  if (!mine()) return;
  if (!guilty) return engine.swap([back]);
  record.winners = record.winners.filter((other) => other !== winner);
  (record.bad[winner.spec] ??= []).push(winner.candidate);
  await keep(engine, record);
}

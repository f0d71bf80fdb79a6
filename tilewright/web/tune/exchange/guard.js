// Replaces a tuned kernel that traps in a run of the page by the bundle's own.
// Input: an engine with tuned kernels.  Output: the same engine with a guarded `run`; a run that trapped still rejects.

import { EngineError } from '../../engine/errors.js';
import { changeOf, keep, recall } from '../records/record.js';

/** @type {WeakSet<T.Engine>} */
const guarded = new WeakSet();

/** By engine, the exchange under way. @type {WeakMap<T.Engine, Tune.OpenExchange>} */
const exchanged = new WeakMap();

/** Does work that swaps these kernels.  If a run of the page traps in one of them meanwhile, the guard only notes it; `work` can ask. @type {Tune.Undisturbed} */
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
      // The page gets the run's own error in any case.
      await examine(engine, error, () => run(...given)).catch(() => {});
      throw error;
    }
  };
}

/** Repeats the run with the bundle's own kernel: if that traps too, the inputs are to blame, and the winner stays. @type {Tune.Examine} */
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
  // If an exchange of this kernel has begun since, that one decides what is in use.
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

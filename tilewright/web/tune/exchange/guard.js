// Replaces a tuned kernel that traps in a run of the page, or does not end, by the bundle's own.
// Input: an engine with tuned kernels.  Output: the same engine with a guarded `run`.  A run that trapped still rejects; one that
// did not end is repeated in new workers.

import { PREEMPT } from '../../engine/abi.js';
import { stepOf, wordsOf } from '../../engine/driver.js';
import { EngineError } from '../../engine/errors.js';
import { load } from '../../engine/engine.js';
import { changeOf, keep, recall } from '../records/record.js';
import { watch } from './watch.js';

/** @type {WeakSet<T.Engine>} */
const guarded = new WeakSet();

/** By engine, the exchange under way. @type {WeakMap<T.Engine, Tune.OpenExchange>} */
const exchanged = new WeakMap();

/** By engine, its latest start in new workers, which may be under way. @type {WeakMap<T.Engine, Promise<unknown>>} */
const starts = new WeakMap();

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

/** Identifies the engine's latest start in new workers: it changes when a kernel did not end. @param {T.Engine} engine */
export const startOf = (engine) => starts.get(engine);

/** @param {T.Engine} engine */
export function guard(engine) {
  if (guarded.has(engine)) return;
  guarded.add(engine);
  const { run, time, profile, preempt } = engine;
  const start = startOf(engine);
  // Not read from memory later: a kernel can write there.
  let held = isHeld(engine);
  const watched = watch(engine, () => held, (again) => revived(engine, again).catch(() => {}));
  engine.preempt = (on) => {
    preempt(on);
    held = on;
  };
  engine.time = (options) => watched(time(options), options?.runs);
  engine.profile = (options) => watched(profile(options), options?.runs);
  engine.run = async (...given) => {
    try {
      return await watched(run(...given));
    } catch (error) {
      if (startOf(engine) !== start) return repeated(engine, given, error);
      // The page gets the run's own error in any case.
      await examine(engine, error, () => run(...given)).catch(() => {});
      throw error;
    }
  };
}

/** Repeats a run that a new start interrupted, unless it depends on what was in the old memory. @type {Tune.Repeated} */
async function repeated(engine, given, error) {
  await startOf(engine);
  const { manifest, lent } = engine.parts;
  if (!manifest.states.length && !lent.size) return engine.run(...given);
  throw new EngineError('host', `A tuned kernel did not end, so the engine started again: ${error}`,
    'Begin anew: states are zero again, and arrays of `input` must be asked for again');
}

/** Whether the page holds runs back. @param {T.Engine} engine */
const isHeld = ({ parts: { memory } }) => Boolean(memory && Atomics.load(wordsOf(memory), PREEMPT));

/**
 * Starts an engine in new workers, without the tuned kernels that may be to blame.  Without any the job goes on: it is only
 * slow.  `again`: it still goes on, and memory, which a kernel can write to, may have named another step.
 * @type {Tune.Revived}
 */
async function revived(engine, again) {
  const record = await recall(engine);
  const guilty = again ? record.winners : blamed(engine, record.winners);
  if (!guilty.length && !exchanged.has(engine)) return;
  const started = restarted(engine, record, guilty);
  starts.set(engine, started);
  await started;
}

/** @type {Tune.Restarted} */
async function restarted(engine, record, guilty) {
  record.winners = record.winners.filter((winner) => !guilty.includes(winner));
  for (const { spec, candidate } of guilty) (record.bad[spec] ??= []).push(candidate);
  await keep(engine, record);
  const { info: { url, digest, features: { threads }, variant: { name } }, parts: { lent, limits } } = engine;
  engine.dispose();
  const fresh = await load(url, { ...limits, threads, variant: name });
  if (fresh.info.digest !== digest) {
    fresh.dispose();
    throw new EngineError('bundle-version', 'The bundle was built anew', 'Load it again', { url });
  }
  lent.forEach((plan) => fresh.parts.lent.add(plan));
  fresh.onjob = (/** @type {Parameters<T.Engine['onjob']>} */ ...news) => engine.onjob(...news);
  const { onjob: _, ...methods } = Object.getOwnPropertyDescriptors(fresh);
  Object.defineProperties(engine, methods);
  if (record.winners.length) await engine.swap(await Promise.all(record.winners.map(changeOf)));
  guarded.delete(engine);
  guard(engine);
}

/** The winner in which the run is, where memory shows it; else all of them. @type {Tune.Blamed} */
function blamed({ parts: { memory, program: { plans } } }, winners) {
  const step = memory ? Atomics.load(wordsOf(memory), stepOf(0)) - 1 : -1;
  if (step < 0) return winners;
  return winners.filter(({ spec }) => plans.some(({ steps }) => steps[step]?.spec === spec));
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

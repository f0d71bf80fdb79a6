// Replaces a tuned kernel that traps in a run of the page, or does not end, by the bundle's own, and starts the engine again.
// Input: an engine with tuned kernels.  Output: the same engine with a guarded `run`.  A run that trapped still rejects; one that
// did not end is repeated.  A kernel can write anywhere in the model's memory, so nothing read from it is proof.

import { PREEMPT } from '../../engine/abi.js';
import { stepOf, wordsOf } from '../../engine/driver.js';
import { EngineError } from '../../engine/errors.js';
import { isLost, renew, requireWhole } from '../../engine/renew.js';
import { changeOf, condemn, recall } from '../records/record.js';
import { watch } from './watch.js';

/** @type {WeakSet<T.Engine>} */
const guarded = new WeakSet();

/** By engine, the exchange under way. @type {WeakMap<T.Engine, Tune.OpenExchange>} */
const exchanged = new WeakMap();

/** By engine, its latest start in new workers, which may be under way; resolves with whether states were kept. @type {WeakMap<T.Engine, Promise<boolean>>} */
const starts = new WeakMap();

/** Engines that the page disposed of. @type {WeakSet<T.Engine>} */
const ended = new WeakSet();

/** Does work that swaps these kernels.  If a run of the page traps in one of them meanwhile, the guard only notes it; `work` can ask. @type {Tune.Undisturbed} */
export async function undisturbed(engine, specs, work) {
  /** @type {Tune.OpenExchange} */
  const state = { specs, trapped: '' };
  exchanged.set(engine, state);
  try {
    return await work(() => state.trapped);
  } finally {
    exchanged.delete(engine);
  }
}

/** Identifies the engine's latest start in new workers: it changes when a kernel did not end. @param {T.Engine} engine */
export const startOf = (engine) => starts.get(engine);

/** By engine, how often its GPU device was lost. @type {WeakMap<T.Engine, number>} */
const losses = new WeakMap();
/** So many are recovered from; the second one without any tuned kernel, since one may have been the reason. */
const MOST_LOSSES = 3;

/** @param {T.Engine} engine */
export function guard(engine) {
  if (guarded.has(engine)) return;
  guarded.add(engine);
  const { preempt, dispose } = engine;
  // With device 'auto' or `recover` the engine recovers by itself, but knows no tuned kernels.
  const { run, time, profile } = engine.parts.bare ?? engine;
  const start = startOf(engine);
  // Not read from memory later: a kernel can write there.
  let held = isHeld(engine);
  const watched = watch(engine, () => held, (again) => revived(engine, again).catch(() => {}));
  engine.preempt = (on) => {
    preempt(on);
    held = on;
  };
  engine.dispose = () => {
    ended.add(engine);
    dispose();
  };
  engine.time = (options) => recovered(engine, start, watched(time(options), options?.runs));
  engine.profile = (options) => recovered(engine, start, watched(profile(options), options?.runs));
  engine.run = async (...given) => {
    if (startOf(engine) !== start) return repeated(engine, given);
    try {
      return await recovered(engine, start, watched(run(...given)));
    } catch (error) {
      if (startOf(engine) !== start) return repeated(engine, given, error);
      // The page gets the run's own error in any case.
      await examine(engine, error, () => run(...given)).catch(() => {});
      throw error;
    }
  };
}

/** The engine's latest start; if that failed it is made again, as a browser gives no adapter while its GPU process starts. @type {Tune.Begun} */
async function begun(engine) {
  const latest = startOf(engine);
  try {
    return await latest;
  } catch (error) {
    if (ended.has(engine)) throw error;
    // Of several runs that wait for it, the first one.
    return startOf(engine) === latest ? startAgain(engine, [], false) : startOf(engine);
  }
}

/** Repeats a run that a new start interrupted or delayed, unless it depends on what was in the old memory. @type {Tune.Repeated} */
async function repeated(engine, given, error = '') {
  const whole = await begun(engine);
  if (!whole) requireWhole(engine, `A tuned kernel did not end, so the engine started again: ${error}`);
  return engine.run(...given);
}

/** Whether the page holds runs back. @param {T.Engine} engine */
const isHeld = ({ parts: { memory } }) => Boolean(memory && Atomics.load(wordsOf(memory), PREEMPT));

/**
 * Ends a job that goes on for too long.  Without a tuned kernel that may be to blame it goes on: it is only slow.
 * `again`: it still goes on, and memory may have named another step.
 * @type {Tune.Revived}
 */
async function revived(engine, again) {
  const { winners } = await recall(engine);
  const guilty = again ? winners : blamed(engine, winners);
  if (guilty.length || exchanged.has(engine)) await startAgain(engine, guilty, false);
}

/** Starts an engine again whose GPU device was lost: by a kernel that took too long, or by anything else.  The job still rejects. @type {Tune.Recovered} */
async function recovered(engine, start, job) {
  try {
    return await job;
  } catch (error) {
    // Of several open jobs, the first one that fails.
    if (isLost(error) && !ended.has(engine) && startOf(engine) === start) {
      const count = (losses.get(engine) ?? 0) + 1;
      losses.set(engine, count);
      if (count <= MOST_LOSSES) await startAgain(engine, count > 1 ? (await recall(engine)).winners : [], false);
    }
    throw error;
  }
}

/** Starts an engine in new workers, from verified files, after a kernel was caught: what else it wrote is unknown. @type {Tune.Renewed} */
export const renewed = async (engine, guilty = []) => void (ended.has(engine) || await startAgain(engine, guilty, true));

/** @type {Tune.StartAgain} */
function startAgain(engine, guilty, whole) {
  const started = restarted(engine, guilty, whole);
  starts.set(engine, started);
  return started;
}

/** `whole`: no job is open, so the states are kept. @type {Tune.StartAgain} */
async function restarted(engine, guilty, whole) {
  const { info: { url, digest, device }, parts: { again }, states } = engine;
  const kept = whole ? await Promise.all(states.names.map(async (state) => ({ state, data: await states.read(state) }))) : [];
  const { winners } = await condemn(engine, guilty);
  if (ended.has(engine)) return whole;
  engine.dispose();
  ended.delete(engine);
  const fresh = await again();
  if (ended.has(engine) || fresh.info.digest !== digest) {
    fresh.dispose();
    throw new EngineError('bundle-version', 'The engine was disposed, or the bundle built anew', 'Load it again', { url });
  }
  for (const { state, data } of kept) await fresh.states.write(state, data);
  renew(engine, fresh);
  guarded.delete(engine);
  guard(engine);
  // With device 'auto' it may be another device, which has winners of its own.
  const moved = fresh.info.device !== device;
  const fit = moved ? (await recall(engine, true)).winners : winners;
  if (fit.length) await engine.swap(await Promise.all(fit.map((winner) => changeOf(engine, winner))));
  return whole;
}

/** The winner in which the run is, where memory shows it; else all of them. @type {Tune.Blamed} */
function blamed({ parts: { memory, program: { plans } } }, winners) {
  const step = memory ? Atomics.load(wordsOf(memory), stepOf(0)) - 1 : -1;
  if (step < 0) return winners;
  return winners.filter(({ spec }) => plans.some(({ steps }) => steps[step]?.spec === spec));
}

/**
 * Repeats a run that trapped without the winner that memory names, then without all: if it still traps, the inputs are to blame,
 * or a kernel that is being exchanged.
 * @type {Tune.Examine}
 */
async function examine(engine, error, again) {
  if (!(error instanceof EngineError && error.code === 'kernel-trap')) return;
  const record = await recall(engine);
  const underWay = (/** @type {unknown} */ spec) => exchanged.get(engine)?.specs.some((other) => other === spec) ?? false;
  /** An exchange decides itself which of its kernels is in use. @param {Tune.Winner[]} winners */
  const free = (winners) => winners.filter((winner) => record.winners.includes(winner) && !underWay(winner.spec));
  const open = exchanged.get(engine);
  if (open && underWay(error.facts.spec)) return void (open.trapped = 'here');
  const named = record.winners.filter(({ spec }) => spec === error.facts.spec);
  for (const suspects of named.length && named.length < record.winners.length ? [named, record.winners] : [record.winners]) {
    const out = free(suspects);
    const backs = new Map(await Promise.all(out.map(async (winner) => /** @type {const} */ ([winner, await changeOf(engine, winner)]))));
    if (!out.length || free(out).length < out.length) break;
    await engine.swap(out.map(({ spec }) => ({ spec, module: null })));
    const guilty = await again().then(() => true, () => false);
    const left = free(out);
    if (guilty) return left.length ? renewed(engine, left) : undefined;
    await engine.swap(left.flatMap((winner) => backs.get(winner) ?? []));
  }
  if (open) open.trapped ||= 'elsewhere';
}

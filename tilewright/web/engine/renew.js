// Starts an engine again under the page's object: after a lost GPU device here, after a bad kernel in tune/exchange/guard.js.
// Input: the page's engine, a fresh one.  Output: the page's engine with the fresh one's workers.

import { EngineError } from './errors.js';

/** The page's engine becomes the fresh one, but for the callbacks that the page set; one of them tells that the device changed. @type {T.Renew} */
export function renew(engine, fresh) {
  const before = engine.parts.losses;
  engine.parts.lent.forEach((plan) => fresh.parts.lent.add(plan));
  fresh.onjob = (/** @type {Parameters<T.Engine['onjob']>} */ ...news) => engine.onjob(...news);
  const { onjob: _, onlost: __, ...methods } = Object.getOwnPropertyDescriptors(fresh);
  Object.defineProperties(engine, methods);
  // Once the engine recovers again.
  if (fresh.parts.losses !== before) queueMicrotask(() => engine.onlost?.(engine.info));
}

/** Throws `host` with this message if a run depends on what was in the old memory. @type {T.RequireWhole} */
export function requireWhole({ parts: { manifest, lent } }, message) {
  if (!manifest.states.length && !lent.size) return;
  throw new EngineError('host', message, 'Begin anew: states are zero again, and arrays of `input` must be asked for again', { restarted: true });
}

/** The engine's own jobs, and by which error they noticed a loss, if they did. @type {T.BareOf} */
export function bareOf({ run, time, profile }) {
  /** @type {Error | null} */
  let lost = null;
  /** @type {T.NotingLoss} */
  const noting = (job) => (...given) => job(...given).catch((error) => {
    if (isLost(error)) lost = error;
    throw error;
  });
  return { bare: { run: noting(run), time: noting(time), profile: noting(profile) }, lost: () => lost };
}

/** Lets an engine go on after its GPU device was lost; its `parts.again` decides where, and `onlost` tells. @type {T.Recovering} */
export function recovering(engine) {
  /** @type {any} `bare` is there where engines recover. */
  const { bare, again } = engine.parts;
  const { dispose, info: { digest } } = engine;
  /** @type {any} */
  const { info } = Object.getOwnPropertyDescriptors(engine);
  let ended = false;
  /** What ended the engine. @type {Error | null} */
  let loss = null;
  /** Its new start. @type {Promise<void> | null} */
  let restart = null;
  /** Why the latest one failed, for `info.lost`. @type {string[]} */
  let failed = [];

  async function restarted() {
    dispose();
    const fresh = await again();
    if (ended || fresh.info.digest !== digest) {
      fresh.dispose();
      throw new EngineError('disposed', 'The engine was disposed, or the bundle built anew', 'Load the bundle again');
    }
    renew(engine, fresh);
    recovering(engine);
  }

  /** What failed once may succeed for the next job: a browser gives no adapter while its GPU process starts. @param {Error} error */
  function notStarted(error) {
    restart = null;
    failed = [`The engine could not start again: ${error.message}.`];
    throw error;
  }

  /** @type {T.Repeating} */
  const repeating = (name) => (...given) => bare[name](...given).catch(async (/** @type {any} */ error) => {
    // The new start ends all jobs that are open.
    if (ended || !(isLost(error) || (loss && ['host', 'disposed'].includes(error?.code)))) throw error;
    loss ??= /** @type {Error} */ (error);
    await (restart ??= restarted().catch(notStarted));
    requireWhole(engine, `${loss.message}. The engine started again`);
    return /** @type {any} */ (engine)[name](...given);
  });

  for (const name of /** @type {const} */ (['run', 'time', 'profile'])) engine[name] = repeating(name);
  Object.defineProperty(engine, 'info', { get: () => adding(info.get(), failed) });
  engine.dispose = () => {
    ended = true;
    dispose();
  };
  return engine;
}

/** `info` with more sentences in `lost`. @type {(info: T.Info, sentences: string[]) => T.Info} */
export const adding = (info, sentences) => ({ ...info, lost: [...info.lost, ...sentences] });

/** @type {T.IsLost} */
export const isLost = (error) => error instanceof EngineError && error.facts.lost === true;

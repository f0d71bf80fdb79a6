// Restarts an engine under the page's object: for engines that recover from a lost GPU device, and for tune/exchange/guard.js after a bad
// kernel.
// Input: the page's engine, and as data the differences between reasons to restart: where the new engine comes from, what happens to
// states, which losses are told.  Output: the page's engine with the new one's workers; after a lost device `info.lost` has a sentence.

import { EngineError, LATE, within } from './errors.js';

/** The most devices that are replaced: if this number were lost, the next would be, too. */
const MOST_LOSSES = 3;

/** For the option `recover`: an engine on WebGPU that continues with a new device. @type {T.Recovering} */
export const restarting = (engine) => recovering(prepared(engine, onNewDevices(engine.states.names.length ? ', its states are zero again' : '', [])));

/** `losses`: sentences about earlier devices. @type {T.OnNewDevices} */
const onNewDevices = (states, losses) => ({
  losses: losses.length,
  tell: (info) => adding(info, losses),
  places: ({ message }, same) => (losses.length === MOST_LOSSES ? [] : [
    { start: same, then: (fresh) => prepared(fresh, onNewDevices(states, [...losses, `${message}. ${WENT_ON.device}${states}.`])) },
  ]),
});

/** The sentence about an engine that continues after a loss. @type {Record<'device' | 'wasm', string>} */
export const WENT_ON = { device: 'The engine has a new device', wasm: 'The engine went over to WebAssembly' };

/** Restarts an engine: ends the old one, begins a new one, and puts it under the page's object. @type {T.StartAgain} */
export async function startAgain(engine, { end, begin, isOver, refusal, carry, tells }) {
  const { digest, url } = engine.info;
  end();
  const fresh = await begin();
  if (isOver() || fresh.info.digest !== digest) {
    fresh.dispose();
    throw new EngineError(refusal, 'The engine was disposed, or the bundle was rebuilt', 'Load the bundle again', { url });
  }
  await carry?.(fresh);
  renew(engine, fresh, tells);
}

/** An engine from the first of these places that starts one; otherwise rejects with the last failure. @type {T.FirstStarted} */
export async function firstStarted(places, failure) {
  for (const { start, then } of places) {
    const fresh = await start().catch((error) => void (failure = error));
    if (fresh) return then(fresh);
  }
  throw failure;
}

/**
 * Replaces the page's engine by the new one, except callbacks that the page has set; calls `onlost` if the device changed.
 * @type {T.Renew}
 */
function renew(engine, fresh, tells = fresh.parts.losses !== engine.parts.losses) {
  engine.parts.lent.forEach((plan) => fresh.parts.lent.add(plan));
  fresh.onjob = (/** @type {Parameters<T.Engine['onjob']>} */ ...news) => engine.onjob(...news);
  const { onjob: _, onlost: __, ...methods } = Object.getOwnPropertyDescriptors(fresh);
  Object.defineProperties(engine, methods);
  // In a microtask: by then the engine can recover again.
  if (tells) queueMicrotask(() => engine.onlost?.(engine.info));
}

/** Throws `host` with this message if later runs depend on the contents of the old memory. @type {T.RequireWhole} */
export function requireWhole({ parts: { manifest, lent } }, message) {
  if (!manifest.states.length && !lent.size) return;
  throw new EngineError('host', message, 'Start again: states are zero, and arrays of `input` must be requested again', { restarted: true });
}

/** An engine that knows by `recovery` where to continue after its device is lost, and tells the losses so far. @type {T.Prepared} */
export function prepared(engine, recovery) {
  /** @type {any} The getters that the engine has so far. */
  const { info, parts } = Object.getOwnPropertyDescriptors(engine);
  const { again: same } = engine.parts;
  const { bare, lost } = bareOf(engine);
  const { losses, tell, places, elsewhere } = recovery;

  /** @type {T.Again} */
  async function again(more) {
    const error = lost();
    return error ? firstStarted(places(error, () => same(more)), error) : prepared(await same(more), recovery);
  }

  return Object.defineProperties(engine, {
    info: { get: () => tell(info.get()) },
    parts: { get: () => ({ ...parts.get(), bare, again, losses, ...(elsewhere && { elsewhere: (/** @type {string} */ message) => firstStarted([elsewhere(message)]) }) }) },
  });
}

/** The engine's own jobs, with the error by which they noticed a loss, if any. @type {T.BareOf} */
function bareOf({ run, time, profile }) {
  /** @type {Error | null} */
  let lost = null;
  /** @type {T.NotingLoss} */
  const noting = (job) => (...given) => job(...given).catch((error) => {
    if (isLost(error)) lost = error;
    throw error;
  });
  return { bare: { run: noting(run), time: noting(time), profile: noting(profile) }, lost: () => lost };
}

/**
 * Lets an engine continue after its GPU device was lost; its `parts.again` decides where, and `onlost` tells the page.
 * @type {T.Recovering}
 */
export function recovering(engine) {
  /** @type {any} Engines that recover have `bare`. */
  const { bare, again } = engine.parts;
  const { dispose } = engine;
  /** @type {any} */
  const { info } = Object.getOwnPropertyDescriptors(engine);
  let ended = false;
  /** The error that ended the engine. @type {Error | null} */
  let loss = null;
  /** The restart in progress. @type {Promise<void> | null} */
  let restart = null;
  /** Why the latest restart failed, for `info.lost`. @type {string[]} */
  let failed = [];

  async function restarted() {
    await startAgain(engine, { end: dispose, begin: again, isOver: () => ended, refusal: 'disposed' });
    recovering(engine);
  }

  /** After a failed restart the next job tries again: a browser gives no adapter while its GPU process starts. @param {Error} error */
  function notStarted(error) {
    restart = null;
    failed = [`The engine could not start again: ${error.message}.`];
    throw error;
  }

  /** @type {T.Repeating} */
  const repeating = (name) => (...given) => bare[name](...given).catch(async (/** @type {any} */ error) => {
    // The restart ends all open jobs.
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

/**
 * An engine that starts with signs of progress at most `timeout` milliseconds apart.  Otherwise, or on failure, null; the start is then
 * aborted, since a driver may hang.
 * @type {T.UnlessSilent}
 */
export async function unlessSilent(timeout, start) {
  const stop = new AbortController();
  let heard = false;
  const starting = start(stop, () => (heard = true)).catch(() => null);
  for (;;) {
    heard = false;
    const engine = await within(timeout, starting);
    if (engine !== LATE) return engine;
    if (heard) continue; // a long download
    stop.abort();
    starting.then((late) => late?.dispose());
    return null;
  }
}

/** `info` with more sentences in `lost`. @type {(info: T.Info, sentences: string[]) => T.Info} */
export const adding = (info, sentences) => ({ ...info, lost: [...info.lost, ...sentences] });

/** @type {T.IsLost} */
export const isLost = (error) => error instanceof EngineError && error.facts.lost === true;

// Starts an engine again under the page's object: for engines that recover from a lost GPU device, and for tune/exchange/guard.js after a bad kernel.
// Input: the page's engine, and as data what differs between reasons to start again: where a fresh engine comes from, what becomes of
// states, which losses are told.  Output: the page's engine with the fresh one's workers; after a lost device `info.lost` has a sentence.

import { EngineError, LATE, within } from './errors.js';

/** Devices that are replaced: whatever takes one after the other will take the next. */
const MOST_LOSSES = 3;

/** For the option `recover`: an engine on WebGPU that goes on with a new device. @type {T.Recovering} */
export const renewing = (engine) => recovering(prepared(engine, onNewDevices(engine.states.names.length ? ', its states are zero again' : '', [])));

/** `losses`: of earlier devices, in sentences. @type {T.OnNewDevices} */
const onNewDevices = (states, losses) => ({
  losses: losses.length,
  tell: (info) => adding(info, losses),
  places: ({ message }, same) => (losses.length === MOST_LOSSES ? [] : [
    { start: same, then: (fresh) => prepared(fresh, onNewDevices(states, [...losses, `${message}. ${WENT_ON.device}${states}.`])) },
  ]),
});

/** What is said of an engine that goes on after a loss. @type {Record<'device' | 'wasm', string>} */
export const WENT_ON = { device: 'The engine has a new device', wasm: 'The engine went over to WebAssembly' };

/** Every new start of an engine: ends the old one, begins a fresh one, and makes the page's engine of it. @type {T.StartAgain} */
export async function startAgain(engine, { end, begin, isOver, refusal, carry, tells }) {
  const { digest, url } = engine.info;
  end();
  const fresh = await begin();
  if (isOver() || fresh.info.digest !== digest) {
    fresh.dispose();
    throw new EngineError(refusal, 'The engine was disposed, or the bundle built anew', 'Load the bundle again', { url });
  }
  await carry?.(fresh);
  renew(engine, fresh, tells);
}

/** An engine in the first of these places where one starts; else rejects with the last failure. @type {T.FirstStarted} */
export async function firstStarted(places, failure) {
  for (const { start, then } of places) {
    const fresh = await start().catch((error) => void (failure = error));
    if (fresh) return then(fresh);
  }
  throw failure;
}

/** The page's engine becomes the fresh one, but for the callbacks that the page set; one of them tells that the device changed. @type {T.Renew} */
function renew(engine, fresh, tells = fresh.parts.losses !== engine.parts.losses) {
  engine.parts.lent.forEach((plan) => fresh.parts.lent.add(plan));
  fresh.onjob = (/** @type {Parameters<T.Engine['onjob']>} */ ...news) => engine.onjob(...news);
  const { onjob: _, onlost: __, ...methods } = Object.getOwnPropertyDescriptors(fresh);
  Object.defineProperties(engine, methods);
  // Once the engine recovers again.
  if (tells) queueMicrotask(() => engine.onlost?.(engine.info));
}

/** Throws `host` with this message if a run depends on what was in the old memory. @type {T.RequireWhole} */
export function requireWhole({ parts: { manifest, lent } }, message) {
  if (!manifest.states.length && !lent.size) return;
  throw new EngineError('host', message, 'Begin anew: states are zero again, and arrays of `input` must be asked for again', { restarted: true });
}

/** An engine whose `parts.again` goes on where `recovery` says once its device is lost; it tells what was lost so far. @type {T.Prepared} */
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

/** The engine's own jobs, and by which error they noticed a loss, if they did. @type {T.BareOf} */
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

/** Lets an engine go on after its GPU device was lost; its `parts.again` decides where, and `onlost` tells. @type {T.Recovering} */
export function recovering(engine) {
  /** @type {any} `bare` is there where engines recover. */
  const { bare, again } = engine.parts;
  const { dispose } = engine;
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
    await startAgain(engine, { end: dispose, begin: again, isOver: () => ended, refusal: 'disposed' });
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

/** An engine that starts with signs of progress, `patience` milliseconds apart at most; else, or if it fails, null, and its start is ended: a driver may hang. @type {T.UnlessSilent} */
export async function unlessSilent(patience, start) {
  const stop = new AbortController();
  let heard = false;
  const starting = start(stop, () => (heard = true)).catch(() => null);
  for (;;) {
    heard = false;
    const engine = await within(patience, starting);
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

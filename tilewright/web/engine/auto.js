// Loads a bundle on its faster device: measures WebAssembly and WebGPU once, and remembers the verdict.
// Input: a bundle's URL, options of `load`.  Output: an engine whose `info.choice` says what was measured, or why nothing was. Loaded on
// demand, for device 'auto'.  Without storage it still works, but every visit measures again.  restart.js continues after a lost device.

import { folderOf } from './bundle.js';
import { probeHost } from './features.js';
import { findAdapter } from './gpu_device.js';
import { LATE, within } from './errors.js';
import { readManifestOf } from './inspect.js';
import { prepared, recovering, unlessSilent, WENT_ON } from './restart.js';
import { zeroInputs } from './zero_inputs.js';

/** The cache with verdicts; its number changes whenever the measurement does. */
const CACHE = 'tilewright-chosen-1';

/** @param {string} url */
const keyOf = (url) => `${new URL('/_tilewright/chosen', url).href}?${new URLSearchParams({ bundle: url })}`;

/** The last verdict for a bundle, if everything that it depends on is unchanged. @type {T.Recalled} */
async function recalled(url, basis) {
  try {
    const found = await (await caches.open(CACHE)).match(keyOf(url));
    const kept = await found?.json();
    return kept?.basis === basis && DEVICES.includes(kept.choice.chosen) ? kept.choice : null;
  } catch {
    return null;
  }
}

/** @type {T.Remembered} */
export async function remember(url, basis, choice) {
  try {
    await (await caches.open(CACHE)).put(keyOf(url), new Response(JSON.stringify({ basis, choice })));
  } catch {
    // Private mode, or storage is full.
  }
}

/** Forgets all verdicts: the next loads measure again. */
export const forgetVerdicts = async () => void await globalThis.caches?.delete(CACHE).catch(() => {});

/** The most milliseconds of all runs together, unless a device's first run alone takes longer. */
const BUDGET = 1200;
/** Milliseconds, or runs, after which a device is warm: WebAssembly first runs code that is not optimised yet. */
const [WARM, MOST_WARM] = [150, 50];
/** The least warm runs of each device for a clear verdict. */
const LEAST = 3;
/** Once the budget is spent, a run is waited for at most this many times the other device's median. */
const FAR = 2;

/** @type {T.Device[]} */
export const DEVICES = ['wasm', 'webgpu'];

/** @param {number[]} times */
const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

/** The runs after warm-up; the last run if there are none. @param {number[]} times */
function warm(times) {
  let spent = 0;
  let first = 0;
  while (first < Math.min(times.length - 1, MOST_WARM) && spent < WARM) spent += times[first++];
  return times.slice(first);
}

/** The verdict on these milliseconds, by device, in the order of the runs; a tie goes to WebAssembly. @type {T.JudgeTimes} */
export function judged(times) {
  const [wasm, webgpu] = DEVICES.map((device) => warm(times[device]));
  const milliseconds = { wasm: median(wasm), webgpu: median(webgpu) };
  const gpu = milliseconds.webgpu < milliseconds.wasm;
  const [fast, slow] = gpu ? [webgpu, wasm] : [wasm, webgpu];
  const clear = Math.min(fast.length, slow.length) >= LEAST && Math.max(...fast) < Math.min(...slow);
  return { chosen: gpu ? 'webgpu' : 'wasm', milliseconds, clear };
}

/** Runs both devices alternately until their times differ clearly or the budget is spent.  Rejects as a run does. @type {T.Race} */
export async function raced(runs, now = () => performance.now()) {
  /** @type {Record<T.Device, number[]>} */
  const times = { wasm: [], webgpu: [] };
  const end = now() + BUDGET;
  for (;;) {
    for (const [at, device] of DEVICES.entries()) {
      const others = times[DEVICES[1 - at]];
      const start = now();
      const run = runs[device]().then(() => '');
      const late = await (others.length ? within(Math.max(end - start, FAR * median(others)), run) : run) === LATE;
      // The unfinished run took at least this long.  If the device has finished runs, their times say more.
      if (!late || !times[device].length) times[device].push(now() - start);
      if (late) return { ...judged(times), late: device };
    }
    const found = judged(times);
    if (found.clear || now() >= end) return found;
  }
}

/** @type {Record<T.Device, string>} */
const NAMES = { wasm: 'WebAssembly', webgpu: 'WebGPU' };

/**
 * Milliseconds that WebGPU may take to start, or between two signs of progress, once WebAssembly could run the model; and the same as a
 * multiple of WebAssembly's time to start.
 */
const [TIMEOUT, TIMES] = [10_000, 2];

/** Rejects like `load`. @type {T.LoadFastest} */
export async function loadFastest(load, url, { bucket = {}, software = false, onProgress = () => {}, signal, device: _, ...limits }) {
  /**
   * Starts in progress, each with the controller that ends its load; one engine is kept.
   * @type {{engine: T.Engine | null, stop: AbortController}[]}
   */
  const started = [];
  const keepOnly = (/** @type {T.Engine | null} */ kept) => started.forEach(({ engine, stop }) => (engine ? engine !== kept && engine.dispose() : stop.abort()));
  const aborted = Promise.withResolvers();
  const stop = () => {
    keepOnly(null);
    aborted.reject(signal?.reason);
  };
  signal?.addEventListener('abort', stop);
  try {
    if (signal?.aborted) stop();
    const { engine, ...choice } = await Promise.race([aborted.promise, chosen(url, { bucket, software, ...limits }, async (device, stop = new AbortController(), heard = () => {}) => {
      /** @type {typeof started[number]} */
      const one = { engine: null, stop };
      started.push(one);
      if (signal?.aborted) stop.abort();
      const tell = (/** @type {T.Progress} */ progress) => {
        heard();
        onProgress(progress);
      };
      return (one.engine = await load(url, { ...limits, device, onProgress: tell, signal: stop.signal }));
    }, onProgress)]);
    keepOnly(engine);
    return recovering(prepared(engine, fromDeviceToWasm(choice, () => load(url, { ...limits, device: 'wasm' }))));
  } catch (error) {
    keepOnly(null);
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** The engine to keep, and the reason. @type {T.Chosen} */
async function chosen(url, { bucket, software, ...limits }, start, onProgress) {
  const { key, name, verify } = limits;
  const { digest, targets } = await readManifestOf(folderOf(url), { key, name, verify });
  const only = (/** @type {T.Engine} */ engine, /** @type {string} */ why) => ({ engine, chosen: engine.info.device, why, milliseconds: {}, bucket, remembered: false });
  if (!targets.wgsl) return only(await start('wasm'), 'The bundle has no code for WebGPU');
  const adapter = await findAdapter(limits.powerPreference).then(({ about }) => about, asError);
  if (adapter instanceof Error) return only(await start('wasm'), adapter.message);
  if (adapter.software && !software) return only(await start('wasm'), `The WebGPU adapter ${adapter.name} is software, which takes the same processor`);

  const basis = JSON.stringify([digest, adapter, probeHost(), navigator.userAgent, limits, bucket]);
  const known = await recalled(url, basis);
  // A remembered device that no longer starts is measured again.
  const engine = known && await startedAgain(start, known.chosen);
  if (engine) return { ...known, engine, remembered: true };

  const wasm = await start('wasm').catch(asError);
  const starting = start('webgpu').catch(asError);
  if (wasm instanceof Error) {
    const webgpu = await starting;
    if (webgpu instanceof Error) throw wasm;
    return only(webgpu, `WebAssembly did not start: ${wasm.message}`);
  }
  const timeout = Math.max(TIMEOUT, TIMES * wasm.info.loadMilliseconds);
  const webgpu = await within(timeout, starting);
  if (webgpu === LATE) return only(wasm, `WebGPU did not start within ${Math.round(timeout / 1000)} s`);
  if (webgpu instanceof Error) return only(wasm, `WebGPU did not start: ${webgpu.message}`);

  onProgress({ phase: 'measure', loadedBytes: wasm.info.bytes, totalBytes: wasm.info.bytes, cachedBytes: 0 });
  const engines = { wasm, webgpu };
  const { chosen, failure = null, milliseconds = {}, why } = await compared(engines, bucket);
  await engines[chosen].states.reset();
  const choice = { chosen, why, milliseconds, bucket, remembered: false };
  if (!failure) await remember(url, basis, choice);
  return { ...choice, engine: engines[chosen] };
}

/** An engine on the remembered device; null if it does not start. @type {T.StartedAgain} */
const startedAgain = (start, device) => (device === 'wasm' ? start(device).catch(() => null) : unlessSilent(TIMEOUT, (...given) => start(device, ...given)));

/** Runs both engines on zeros, and reads their outputs. @type {T.Compared} */
async function compared(engines, bucket) {
  const inputs = zeroInputs(engines.wasm.info, bucket);
  /** @type {T.Device} */
  let failed = 'wasm';
  const timed = (/** @type {T.Device} */ device) => () => engines[device].run(inputs).catch((error) => {
    failed = device;
    throw error;
  });
  try {
    const { chosen, milliseconds, clear, late } = await raced({ wasm: timed('wasm'), webgpu: timed('webgpu') });
    const why = late ? `The measurement ended before ${NAMES[late]} had answered; its time is at least this` : `${NAMES[chosen]} was faster ${clear ? 'in every run' : 'by the median; the times overlap'}`;
    return { chosen, milliseconds, why };
  } catch (thrown) {
    const failure = asError(thrown);
    // The caller's mistake, such as a bucket that does not exist.
    if (/** @type {any} */ (failure).code === 'input') throw failure;
    // WebAssembly stays usable after a trap, but not after the end of its worker.
    const dead = failed === 'wasm' && /** @type {any} */ (failure).code !== 'kernel-trap';
    return { chosen: dead ? 'webgpu' : 'wasm', why: `${NAMES[failed]} failed while it was measured: ${failure.message}`, failure };
  }
}

/**
 * Engines with the verdict in `info`.  After a lost device they get a new one, after a second loss WebAssembly.
 * @type {T.FromDeviceToWasm}
 */
function fromDeviceToWasm(choice, loadWasm, losses = 0) {
  /** @type {T.PlaceAfter} */
  const onWasm = (message) => ({
    start: loadWasm, then: (fresh) => prepared(fresh, fromDeviceToWasm({ ...choice, chosen: 'wasm', why: `${message}. ${WENT_ON.wasm}` }, loadWasm, losses + 1)),
  });
  return {
    losses,
    tell: (info) => ({ ...info, choice: structuredClone(choice) }),
    places({ message }, same) {
      const again = { start: same, then: (/** @type {T.Engine} */ fresh) => prepared(fresh, fromDeviceToWasm({ ...choice, why: `${message}. ${WENT_ON.device}` }, loadWasm, 1)) };
      return losses ? [onWasm(message)] : [again, onWasm(message)];
    },
    elsewhere: onWasm,
  };
}

/** @param {unknown} thrown */
const asError = (thrown) => /** @type {Error} */ (thrown);

// Loads a bundle on the device that runs it faster: measures WebAssembly and WebGPU once, and remembers the verdict.
// Input: a bundle's URL, options of `load`.  Output: an engine whose `info.choice` says what was measured, or why nothing was.
// Only pages with device 'auto' load this file; race.js measures, verdicts.js remembers, renew.js goes on after a lost device.

import { inspect, load, probeHost } from './engine.js';
import { findAdapter } from './gpu_device.js';
import { LATE, within } from './patience.js';
import { raced } from './race.js';
import { prepared, recovering, unlessSilent, WENT_ON } from './renew.js';
import { recalled, remember } from './verdicts.js';
import { zerosFor } from './zeros.js';

/** @type {Record<T.Device, string>} */
const NAMES = { wasm: 'WebAssembly', webgpu: 'WebGPU' };

/** Milliseconds that WebGPU has to start once WebAssembly could run the model, or between two signs of progress before; and the same as a multiple of what WebAssembly took. */
const [PATIENCE, TIMES] = [10_000, 2];

/** Rejects like `load`. @type {T.LoadFastest} */
export async function loadFastest(url, { bucket = {}, software = false, onProgress = () => {}, signal, device: _, ...limits }) {
  /** Of all that start one stays; each with what ends its load. @type {{engine: T.Engine | null, stop: AbortController}[]} */
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

/** The engine to keep, and why. @type {T.Chosen} */
async function chosen(url, { bucket, software, ...limits }, start, onProgress) {
  const { key, name, verify } = limits;
  const { digest, targets } = await inspect(url, { key, name, verify });
  const only = (/** @type {T.Engine} */ engine, /** @type {string} */ why) => ({ engine, chosen: engine.info.device, why, milliseconds: {}, bucket, remembered: false });
  if (!targets.wgsl) return only(await start('wasm'), 'The bundle has no code for WebGPU');
  const adapter = await findAdapter(limits.powerPreference).then(({ about }) => about, asError);
  if (adapter instanceof Error) return only(await start('wasm'), adapter.message);
  if (adapter.software && !software) return only(await start('wasm'), `The WebGPU adapter ${adapter.name} is software, which takes the same processor`);

  const basis = JSON.stringify([digest, adapter, probeHost(), navigator.userAgent, limits, bucket]);
  const known = await recalled(url, basis);
  // What cannot start any more is chosen anew.
  const engine = known && await startedAgain(start, known.chosen);
  if (engine) return { ...known, engine, remembered: true };

  const wasm = await start('wasm').catch(asError);
  const starting = start('webgpu').catch(asError);
  if (wasm instanceof Error) {
    const webgpu = await starting;
    if (webgpu instanceof Error) throw wasm;
    return only(webgpu, `WebAssembly did not start: ${wasm.message}`);
  }
  const patience = Math.max(PATIENCE, TIMES * wasm.info.loadMilliseconds);
  const webgpu = await within(patience, starting);
  if (webgpu === LATE) return only(wasm, `WebGPU did not start within ${Math.round(patience / 1000)} s`);
  if (webgpu instanceof Error) return only(wasm, `WebGPU did not start: ${webgpu.message}`);

  onProgress({ phase: 'measure', loadedBytes: wasm.info.bytes, totalBytes: wasm.info.bytes, cachedBytes: 0 });
  const engines = { wasm, webgpu };
  const { chosen, failure = null, milliseconds = {}, why } = await compared(engines, bucket);
  await engines[chosen].states.reset();
  const choice = { chosen, why, milliseconds, bucket, remembered: false };
  if (!failure) await remember(url, basis, choice);
  return { ...choice, engine: engines[chosen] };
}

/** An engine on the device that is remembered; null if it does not start. @type {T.StartedAgain} */
const startedAgain = (start, device) => (device === 'wasm' ? start(device).catch(() => null) : unlessSilent(PATIENCE, (...given) => start(device, ...given)));

/** Runs both on zeros, outputs and all. @type {T.Compared} */
async function compared(engines, bucket) {
  const inputs = zerosFor(engines.wasm.info, bucket);
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
    // Such as a bucket that does not exist.
    if (/** @type {any} */ (failure).code === 'input') throw failure;
    // A trap leaves WebAssembly usable, the end of its worker does not.
    const dead = failed === 'wasm' && /** @type {any} */ (failure).code !== 'kernel-trap';
    return { chosen: dead ? 'webgpu' : 'wasm', why: `${NAMES[failed]} failed while it was measured: ${failure.message}`, failure };
  }
}

/** Engines that tell their choice.  After a lost device they take a new one, and after another loss WebAssembly. @type {T.FromDeviceToWasm} */
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

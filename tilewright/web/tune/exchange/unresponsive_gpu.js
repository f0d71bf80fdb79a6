// Checks whether an engine's device still answers after a candidate made the GPU unresponsive, and starts an engine elsewhere if not.
// Input: an engine.  Output: an answer in bounded time; a new engine on a new device, or on WebAssembly.  guard.js ends the old engine.

import { EngineError, within } from '../../engine/errors.js';
import { adding, firstStarted, unlessSilent, WENT_ON } from '../../engine/restart.js';

/** Milliseconds in which a device must do a small piece of work, plus a multiple of the slowest run so far, which may come first. */
const [ANSWER, TIMES] = [500, 2];
/** Milliseconds between two signs of progress of a new device: the GPU may still be unresponsive. */
const START = 1000;
const WHY = 'The GPU did not answer after a candidate was tried';

/** True if the device of an engine answers. @type {Tune.Answers} */
export async function answers({ parts: { device, probe } }, slowest) {
  if (device !== 'webgpu') return true;
  return await within(Math.max(ANSWER, TIMES * slowest), probe({}).then(() => true, () => false)) === true;
}

/**
 * Repeatedly asks a device for small pieces of work.  The returned function is called every `each` milliseconds, and tells whether the
 * device has been silent for `limit`.
 * @type {Tune.Listening}
 */
export function listening({ device, probe }, slowest) {
  let [asking, looks] = [false, 0];
  return (limit, each) => {
    if (device !== 'webgpu') return false;
    if (asking) return ++looks * each > Math.max(limit, TIMES * slowest());
    [asking, looks] = [true, 0];
    probe({}).catch(() => {}).then(() => (asking = false));
    return false;
  };
}

/** An engine on a new device; on WebAssembly if there is none in time. @type {Tune.ReplacedEngine} */
export async function replacedEngine({ info: { url }, parts: { again, limits, elsewhere } }) {
  const onNewDevice = () => unlessSilent(START, (stop, heard) => again({ signal: stop.signal, onProgress: heard }));
  // The GPU's code variant does not apply here.
  const onWasm = async () => elsewhere?.(WHY) ?? (await import('../../engine/engine.js')).load(url, { ...limits, variant: undefined, device: 'wasm' });
  try {
    return await firstStarted([
      { start: onNewDevice, then: (fresh) => saying(fresh, `${WHY}. ${WENT_ON.device}.`) },
      { start: onWasm, then: (fresh) => saying(fresh, `${WHY}. ${WENT_ON.wasm}.`) },
    ]);
  } catch (error) {
    throw new EngineError('host', `${WHY}, no new device came within ${START / 1000} s, and WebAssembly did not start: ${/** @type {any} */ (error)?.message}`,
      'Run again when the browser has a GPU again, or build the bundle for WebAssembly, too (tilewright build --target wasm)');
  }
}

/** The engine with another sentence in `info.lost`. @type {Tune.Saying} */
function saying(engine, sentence) {
  /** @type {any} */
  const { info } = Object.getOwnPropertyDescriptors(engine);
  return Object.defineProperty(engine, 'info', { get: () => adding(info.get(), [sentence]) });
}

// Loads where `wasm` and `webgpu` are not all that was asked for: on the faster one, on a device of the caller, with recovery; loaded on demand.
// Input: a bundle's URL, options of `load`.  Output: an engine; or an `input` error if there is no such device.

import { load } from './engine.js';
import { EngineError } from './errors.js';

/** @type {T.LoadOn} */
export async function loadOn(url, { recover, ...options }, device) {
  // It recovers anyway.
  if (device === 'auto') return (await import('./auto.js')).loadFastest(url, options);
  if (device === 'wasm') throw new EngineError('input', 'WebAssembly has no device that can be lost', "Leave out 'recover'", { device });
  if (device === 'webgpu') return (await import('./renew.js')).renewing(await load(url, options));
  if (typeof device === 'string' || !device?.createCommandEncoder) {
    throw new EngineError('input', `There is no device '${device}'`, 'Use wasm, webgpu, auto or a GPUDevice', { device: `${device}` });
  }
  if (recover) throw new EngineError('input', 'A device of the page cannot be replaced', "Leave out 'recover', and load the bundle again on a new device");
  return load(url, { ...options, device: 'webgpu' }, (await import('./gpu_here.js')).openHere(device));
}

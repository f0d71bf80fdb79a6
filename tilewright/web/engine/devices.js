// Loads a bundle in the less common cases: on the faster device, on the caller's device, or with recovery.  Loaded on demand.
// Input: a bundle's URL, options of `load`.  Output: an engine; or an `input` error if there is no such device.

import { EngineError } from './errors.js';

/** @type {T.LoadOn} */
export async function loadOn(load, url, { recover, ...options }, device) {
  // This engine always recovers.
  if (device === 'auto') return (await import('./auto.js')).loadFastest(load, url, options);
  if (device === 'wasm') throw new EngineError('input', 'WebAssembly has no device that can be lost', "Leave out 'recover'", { device });
  if (device === 'webgpu') return (await import('./restart.js')).restarting(await load(url, options));
  if (typeof device === 'string' || !device?.createCommandEncoder) {
    throw new EngineError('input', `There is no device '${device}'`, 'Use wasm, webgpu, auto or a GPUDevice', { device: `${device}` });
  }
  if (recover) throw new EngineError('input', 'A device of the page cannot be replaced', "Leave out 'recover', and load the bundle again on a new device");
  return load(url, { ...options, device: 'webgpu' }, (await import('./gpu_in_thread.js')).openHere(device));
}

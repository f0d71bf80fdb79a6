// Loads on a device that is neither `wasm` nor `webgpu`: on the faster one, or on one of the caller; loaded on demand.
// Input: a bundle's URL, options of `load`.  Output: an engine; or an `input` error if there is no such device.

import { load } from './engine.js';
import { EngineError } from './errors.js';

/** @type {T.LoadOn} */
export async function loadOn(url, options, device) {
  if (device === 'auto') return (await import('./auto.js')).loadFastest(url, options);
  if (typeof device === 'string' || !device?.createCommandEncoder) {
    throw new EngineError('input', `There is no device '${device}'`, 'Use wasm, webgpu, auto or a GPUDevice', { device: `${device}` });
  }
  return load(url, { ...options, device: 'webgpu' }, (await import('./gpu_here.js')).openHere(device));
}

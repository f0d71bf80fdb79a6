// Instances of a bundle's modules over its memory, the same in every worker.
// Output: what the driver exports, and the table of kernels.

/** @import {Driver, Setup} from './types.js' */

/** @param {Setup} setup @param {number} worker */
export async function instantiate({ modules, memory, slots, scratch, scratchBytes }, worker) {
  const table = new WebAssembly.Table({ element: 'anyfunc', initial: slots });
  const own = new WebAssembly.Global({ value: 'i32', mutable: false }, (scratch + worker * scratchBytes) | 0);
  const imports = { env: { memory, table, scratch: own } };
  /** @type {WebAssembly.Exports} */
  let exports = {};
  for (const module of modules) ({ exports } = await WebAssembly.instantiate(module, imports));
  return { driver: /** @type {Driver} */ (/** @type {unknown} */ (exports)), table };
}

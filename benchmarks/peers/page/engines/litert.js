// LiteRT.js: XNNPACK with relaxed SIMD; its threaded build for more than one thread.

import { fetchAll } from '../tensors.js';

/** @typedef {import('../page.js').Tensor} Tensor */

const LITERT = '@litertjs/core';

/** @type {Record<string, string>} */
const DTYPES = { float32: 'f32', int32: 'i32', uint8: 'u8' };

/**
 * @param {number} threads
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads) {
  const { loadLiteRt, loadAndCompile, Tensor } = await import(LITERT);
  await loadLiteRt('/npm/@litertjs/core/wasm/', threads > 1 ? { threads: true } : {});
  return {
    about: {},
    async open({ base, inputs, outputs }) {
      const model = await loadAndCompile(`${base}model.tflite`, { accelerator: 'wasm', cpuOptions: { numThreads: threads } });
      const wanted = model.getInputDetails();
      const given = await fetchAll(base, inputs, true);
      const tensors = wanted.map((/** @type {any} */ { name, dtype, shape }, /** @type {number} */ at) => new Tensor(fitted(pick(given, name, at), dtype), Array.from(shape)));
      const results = model.getOutputDetails();
      return {
        async run() {
          const made = await model.run(tensors);
          return made.map((/** @type {any} */ tensor, /** @type {number} */ at) => {
            const data = tensor.toTypedArray();
            tensor.delete();
            const { dtype, shape } = results[at];
            return { name: outputs.length === 1 ? outputs[0] : results[at].name, dtype: DTYPES[dtype], shape: Array.from(shape), data };
          });
        },
        dispose() {
          tensors.forEach((/** @type {any} */ tensor) => tensor.delete());
          model.delete();
        },
      };
    },
  };
}

/** Converters rename inputs; where no name matches, their order decides. */
const pick = (/** @type {Tensor[]} */ given, /** @type {string} */ name, /** @type {number} */ at) => given.find((tensor) => name.includes(tensor.name)) ?? given[at];

/** LiteRT.js has no 64-bit integers. */
const fitted = (/** @type {Tensor} */ { data }, /** @type {string} */ dtype) => (dtype === 'int32' && !(data instanceof Int32Array) ? Int32Array.from(data, Number) : data);

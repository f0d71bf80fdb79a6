// LiteRT.js: XNNPACK with relaxed SIMD; its threaded build for more than one thread.

import { fetchAll } from '../tensors.js';

const DTYPES = { float32: 'f32', int32: 'i32', uint8: 'u8' };

/** @param {number} threads */
export async function start(threads) {
  const { loadLiteRt, loadAndCompile, Tensor } = await import('@litertjs/core');
  await loadLiteRt('/npm/@litertjs/core/wasm/', threads > 1 ? { threads: true } : {});
  return {
    about: {},
    async open({ base, inputs, outputs }) {
      const model = await loadAndCompile(`${base}model.tflite`, { accelerator: 'wasm', cpuOptions: { numThreads: threads } });
      const wanted = model.getInputDetails();
      const given = await fetchAll(base, inputs, true);
      const tensors = wanted.map(({ name, dtype, shape }, at) => new Tensor(fitted(pick(given, name, at), dtype), Array.from(shape)));
      const results = model.getOutputDetails();
      return {
        async run() {
          const made = await model.run(tensors);
          return made.map((tensor, at) => {
            const data = tensor.toTypedArray();
            tensor.delete();
            const { dtype, shape } = results[at];
            return { name: outputs.length === 1 ? outputs[0] : results[at].name, dtype: DTYPES[dtype], shape: Array.from(shape), data };
          });
        },
        dispose() {
          tensors.forEach((tensor) => tensor.delete());
          model.delete();
        },
      };
    },
  };
}

/** Converters rename inputs; where no name matches, their order decides. */
const pick = (given, name, at) => given.find((tensor) => name.includes(tensor.name)) ?? given[at];

/** LiteRT.js has no 64-bit integers. */
const fitted = ({ data }, dtype) => (dtype === 'int32' && !(data instanceof Int32Array) ? Int32Array.from(data, Number) : data);

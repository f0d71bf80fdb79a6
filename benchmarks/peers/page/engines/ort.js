// onnxruntime-web: its Wasm build without WebGPU, all graph optimisations, tensors reused.

import { fetchAll } from '../tensors.js';

const DIST = '/npm/onnxruntime-web/dist/';
/** @type {Record<string, string>} */
const DTYPES = { f32: 'float32', f64: 'float64', i8: 'int8', u8: 'uint8', i32: 'int32', i64: 'int64', bool: 'bool' };
const NAMES = Object.fromEntries(Object.entries(DTYPES).map(([ours, theirs]) => [theirs, ours]));

/**
 * @param {number} threads
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads) {
  const ort = await import(`${DIST}ort.wasm.bundle.min.mjs`);
  ort.env.wasm.wasmPaths = DIST;
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = 'error';
  return {
    about: { version: ort.env.versions.web },
    async open({ base, inputs, dims }) {
      const session = await ort.InferenceSession.create(`${base}model.onnx`, { executionProviders: ['wasm'], graphOptimizationLevel: 'all', freeDimensionOverrides: dims });
      const feeds = Object.fromEntries((await fetchAll(base, inputs)).map(({ name, dtype, data, shape }) => [name, new ort.Tensor(DTYPES[dtype], data, shape)]));
      return {
        async run() {
          const outputs = await session.run(feeds);
          return Object.entries(outputs).map(([name, /** @type {any} */ { type, dims, data }]) => ({ name, dtype: NAMES[type], shape: dims, data }));
        },
        dispose: () => session.release(),
      };
    },
  };
}

// onnxruntime-web on a GPU as a language model: its WebGPU build, caches in buffers that stay, the token chosen in the graph.
// Input: model.onnx of a case, its weights beside it, the shape and dtype of its caches.  Output: ids with the time of each.

import { ARRAYS, fetchBytes } from '../tensors.js';

const DIST = '/npm/onnxruntime-web/dist/';
/** @type {Record<string, string>} */
const DTYPES = { f32: 'float32', f16: 'float16' };

/** @returns {Promise<import('../page.js').Engine>} */
export async function start() {
  const ort = await import(`${DIST}ort.webgpu.bundle.min.mjs`);
  ort.env.wasm.wasmBinary = (await fetchBytes(`${DIST}ort-wasm-simd-threaded.asyncify.wasm`)).buffer;
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'error';
  return {
    about: { version: ort.env.versions.web },
    async open({ base, sizes: { states, shape, dtype } }) {
      const externalData = [{ path: 'weights.bin', data: await fetchBytes(`${base}weights.bin`) }];
      /** @type {Record<string, string>} */
      const preferredOutputLocation = Object.fromEntries(Object.values(states).map((name) => [name, 'gpu-buffer']));
      const session = await ort.InferenceSession.create(`${base}model.onnx`, { executionProviders: ['webgpu'], graphOptimizationLevel: 'all', externalData, preferredOutputLocation });
      /** @type {GPUDevice} */
      const gpu = await ort.env.webgpu.device;
      const size = shape.reduce((/** @type {number} */ all, /** @type {number} */ one) => all * one, ARRAYS[dtype].BYTES_PER_ELEMENT);
      const fresh = () => ort.Tensor.fromGpuBuffer(gpu.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC }), { dataType: DTYPES[dtype], dims: shape });
      const pairs = Object.entries(states);
      // The same tensor in and out: its operator then writes only the new rows.
      const caches = pairs.map(fresh);
      const past = Object.fromEntries(pairs.map(([name], at) => [name, caches[at]]));
      const present = Object.fromEntries(pairs.map(([, name], at) => [/** @type {string} */ (name), caches[at]]));
      return {
        run: () => Promise.reject(new Error('a language model speaks')),
        async speak({ ids, most }) {
          const start = performance.now();
          const times = [];
          const made = [];
          let [next, seen] = [ids, 0];
          while (made.length < most) {
            seen += next.length;
            const feeds = {
              ...past,
              input_ids: new ort.Tensor('int64', BigInt64Array.from(next, BigInt), [1, next.length]),
              seqlens_k: new ort.Tensor('int32', Int32Array.of(seen - 1), [1]),
            };
            const { token } = await session.run(feeds, { token: null, ...present });
            const id = Number((await token.getData())[0]);
            times.push(performance.now() - start);
            made.push(id);
            next = [id];
          }
          return { times, ids: made };
        },
        dispose: () => session.release(),
      };
    },
  };
}

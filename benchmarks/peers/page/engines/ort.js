// onnxruntime-web, all graph optimisations: its Wasm build without WebGPU, tensors reused; or its WebGPU build, inputs and outputs in the
// device's memory, its dispatches captured in the first runs and replayed if asked for.

import { fetchAll, fetchBytes } from '../tensors.js';

const DIST = '/npm/onnxruntime-web/dist/';
/** @type {Record<string, string>} */
const DTYPES = { f32: 'float32', f16: 'float16', f64: 'float64', i8: 'int8', u8: 'uint8', i32: 'int32', i64: 'int64', bool: 'bool' };
const NAMES = Object.fromEntries(Object.entries(DTYPES).map(([ours, theirs]) => [theirs, ours]));
/** Buffers of the device have whole words. */
const WORD = 4;

/**
 * @param {number} threads
 * @param {string | null} device
 * @param {boolean} captured
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads, device, captured) {
  const onGpu = device === 'webgpu';
  const ort = await import(`${DIST}ort.${onGpu ? 'webgpu' : 'wasm'}.bundle.min.mjs`);
  if (onGpu) ort.env.wasm.wasmBinary = (await fetchBytes(`${DIST}ort-wasm-simd-threaded.asyncify.wasm`)).buffer;
  else ort.env.wasm.wasmPaths = DIST;
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = 'error';
  const place = onGpu ? { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer', enableGraphCapture: captured } : { executionProviders: ['wasm'] };
  return {
    about: { version: ort.env.versions.web },
    async open({ base, inputs, dims }) {
      const session = await ort.InferenceSession.create(`${base}model.onnx`, { ...place, graphOptimizationLevel: 'all', freeDimensionOverrides: dims });
      const gpu = onGpu && await ort.env.webgpu.device;
      const tensorOf = (/** @type {import('../page.js').Tensor} */ { dtype, data, shape }) => {
        if (!gpu) return new ort.Tensor(DTYPES[dtype], data, shape);
        const size = Math.ceil(data.byteLength / WORD) * WORD;
        const buffer = gpu.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC });
        const bytes = new Uint8Array(size);
        bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
        gpu.queue.writeBuffer(buffer, 0, bytes);
        return ort.Tensor.fromGpuBuffer(buffer, { dataType: DTYPES[dtype], dims: shape });
      };
      const feeds = Object.fromEntries((await fetchAll(base, inputs)).map((tensor) => [tensor.name, tensorOf(tensor)]));
      /** A replay writes to the same buffers every time. */
      const free = (/** @type {Record<string, any>} */ outputs) => captured || Object.values(outputs).forEach((tensor) => tensor.dispose());
      return {
        async run() {
          const outputs = await session.run(feeds);
          const found = await Promise.all(Object.entries(outputs).map(async ([name, /** @type {any} */ tensor]) => ({ name, dtype: NAMES[tensor.type], shape: tensor.dims, data: gpu ? await tensor.getData() : tensor.data })));
          if (gpu) free(outputs);
          return found;
        },
        async stream(runs) {
          for (let run = 0; run < runs; run++) free(await session.run(feeds));
          await gpu.queue.onSubmittedWorkDone();
        },
        dispose: () => session.release(),
      };
    },
  };
}

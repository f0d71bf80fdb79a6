// onnxruntime-web, all graph optimisations: its Wasm build without WebGPU, tensors reused; or its WebGPU build, inputs and outputs in buffers
// that stay, its dispatches captured in the first run and replayed if asked for.

import { ARRAYS, fetchAll, fetchBytes, widened } from '../tensors.js';

const DIST = '/npm/onnxruntime-web/dist/';
/** @type {Record<string, string>} */
const DTYPES = { f32: 'float32', f16: 'float16', f64: 'float64', i8: 'int8', u8: 'uint8', i32: 'int32', i64: 'int64', bool: 'bool' };
const NAMES = Object.fromEntries(Object.entries(DTYPES).map(([ours, theirs]) => [theirs, ours]));
/** Buffers of the device have whole words. */
const WORD = 4;
const elementsOf = (/** @type {number[]} */ shape) => shape.reduce((all, size) => all * size, 1);
const bytesOf = (/** @type {string} */ dtype, /** @type {number[]} */ shape) => Math.ceil(elementsOf(shape) * ARRAYS[dtype].BYTES_PER_ELEMENT / WORD) * WORD;

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
    async open({ base, inputs, results, dims }) {
      const session = await ort.InferenceSession.create(`${base}model.onnx`, { ...place, graphOptimizationLevel: 'all', freeDimensionOverrides: dims });
      const given = await fetchAll(base, inputs);
      if (!onGpu) {
        const feeds = Object.fromEntries(given.map(({ name, dtype, data, shape }) => [name, new ort.Tensor(DTYPES[dtype], data, shape)]));
        return {
          async run() {
            const outputs = await session.run(feeds);
            return Object.entries(outputs).map(([name, /** @type {any} */ { type, dims, data }]) => ({ name, dtype: NAMES[type], shape: dims, data }));
          },
          dispose: () => session.release(),
        };
      }
      /** @type {GPUDevice} */
      const gpu = await ort.env.webgpu.device;
      const buffers = [...given, ...results].map(({ dtype, shape }) => gpu.createBuffer({ size: bytesOf(dtype, shape), usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC }));
      const tensors = [...given, ...results].map(({ name, dtype, shape }, at) => [name, ort.Tensor.fromGpuBuffer(buffers[at], { dataType: DTYPES[dtype], dims: shape })]);
      given.forEach(({ data }, at) => {
        const bytes = new Uint8Array(buffers[at].size);
        bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
        gpu.queue.writeBuffer(buffers[at], 0, bytes);
      });
      const [feeds, into] = [tensors.slice(0, given.length), tensors.slice(given.length)].map(Object.fromEntries);
      if (captured) await held(session.run(feeds, into), buffers);
      const made = buffers.slice(given.length);
      const back = gpu.createBuffer({ size: made.reduce((sum, { size }) => sum + size, 0), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
      return {
        async run() {
          await session.run(feeds, into);
          const encoder = gpu.createCommandEncoder();
          let end = 0;
          for (const buffer of made) {
            encoder.copyBufferToBuffer(buffer, 0, back, end, buffer.size);
            end += buffer.size;
          }
          gpu.queue.submit([encoder.finish()]);
          await back.mapAsync(GPUMapMode.READ);
          const all = back.getMappedRange().slice(0);
          back.unmap();
          let start = 0;
          return results.map(({ name, dtype, shape }, at) => {
            const data = new ARRAYS[dtype](all, start, elementsOf(shape));
            start += made[at].size;
            return widened({ name, dtype, shape, data });
          });
        },
        async stream(runs) {
          for (let run = 0; run < runs; run++) await session.run(feeds, into);
          await gpu.queue.onSubmittedWorkDone();
        },
        dispose: () => session.release(),
      };
    },
  };
}

/**
 * Keeps what the first run registered of these buffers: replays read it, but the end of that run gives it back (1.30.0).
 * @param {Promise<unknown>} running
 * @param {any[]} buffers
 */
async function held(running, buffers) {
  let ended = false;
  const end = running.finally(() => (ended = true));
  for (const buffer of buffers) {
    const known = () => Object.getOwnPropertySymbols(buffer).find(({ description }) => description === 'gpuBufferMetadata');
    while (!known() && !ended) await null;
    const key = known();
    // One more use than there are.
    if (key) buffer[key][1]++;
  }
  await end;
}

// TF.js with its WebGPU backend, or its Wasm one: the SIMD build for one thread, the threaded one for more.
// Kernels are ops on tensors that stay in its memory; models are graph models.

import { fetchAll } from '../tensors.js';

const script = (/** @type {string} */ src) => new Promise((resolve, reject) => {
  document.head.append(Object.assign(document.createElement('script'), { src, onload: resolve, onerror: () => reject(new Error(src)) }));
});

/**
 * @param {number} threads
 * @param {string | null} device
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads, device) {
  const backend = device ?? 'wasm';
  for (const [name, file] of [['core', 'tf-core'], ['backend-cpu', 'tf-backend-cpu'], ['converter', 'tf-converter'], [`backend-${backend}`, `tf-backend-${backend}`]]) {
    await script(`/npm/@tensorflow/tfjs-${name}/dist/${file}.min.js`);
  }
  /** @type {any} */
  const { tf } = /** @type {any} */ (globalThis);
  if (!device) useThreads(tf, threads);
  await tf.setBackend(backend);
  await tf.ready();
  return {
    about: { version: tf.version_core, threads: threads > 1 ? tf.wasm.getThreadsCount() : 1 },
    async open(task) {
      if (task.inputs.some(({ dtype }) => dtype === 'f16')) throw new Error('It has no 16-bit floats');
      const load = async (/** @type {any[]} */ list) => Object.fromEntries((await fetchAll(task.base, list, true)).map(({ name, dtype, data, shape }) => [name, dtype === 'f32' ? tf.tensor(data, shape) : tf.tensor(Int32Array.from(data, Number), shape, 'int32')]));
      const tensors = { ...await load(task.inputs), ...await load(task.constants) };
      const model = task.op in KERNELS ? null : await tf.loadGraphModel(`${task.base}model.json`);
      const once = () => (model ? model.execute(tensors) : KERNELS[task.op](tf, tensors, task.sizes));
      return {
        async run() {
          const y = once();
          const data = await y.data();
          const { shape, dtype } = y;
          y.dispose();
          return [{ name: task.outputs[0], dtype: dtype === 'float32' ? 'f32' : 'i32', shape, data }];
        },
        async stream(runs) {
          for (let run = 0; run < runs; run++) tf.dispose(once());
          // TF.js leaves its compute pass open, and WebGPU refuses the commands of an open pass.
          const gpu = tf.backend();
          gpu.endComputePassEncoder();
          // It has no commands right after it has submitted some of its own accord, every 15 dispatches.
          if (gpu.commandEncoder) gpu.submitQueue();
          await gpu.device.queue.onSubmittedWorkDone();
        },
        dispose() {
          Object.values(tensors).forEach((tensor) => tensor.dispose());
          model?.dispose();
        },
      };
    },
  };
}

/** @param {any} tf @param {number} threads */
function useThreads(tf, threads) {
  tf.wasm.setWasmPaths('/npm/@tensorflow/tfjs-backend-wasm/dist/');
  tf.env().set('WASM_HAS_MULTITHREAD_SUPPORT', threads > 1);
  if (threads > 1) {
    tf.wasm.setThreadsCount(threads);
    // Its pool has at most half of the cores that the browser names, whatever it is told.
    Object.defineProperty(navigator, 'hardwareConcurrency', { value: 2 * threads });
  }
}

/** @type {Record<string, (tf: any, operands: any, sizes: any) => any>} */
const KERNELS = {
  matmul: (tf, { x, w }) => tf.matMul(x, w),
  attention: (tf, { q, k, v }, { rows, keys, heads, depth }) => tf.tidy(() => {
    const split = (/** @type {any} */ x, /** @type {number} */ length) => tf.transpose(tf.reshape(x, [1, length, heads, depth]), [0, 2, 1, 3]);
    const scores = tf.mul(tf.matMul(split(q, rows), split(k, keys), false, true), 1 / Math.sqrt(depth));
    const mixed = tf.matMul(tf.softmax(scores), split(v, keys));
    return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [1, rows, heads * depth]);
  }),
  conv(tf, { x, w, b }, { stride, pad, groups }) {
    const pads = pad ? [[0, 0], [pad, pad], [pad, pad], [0, 0]] : 'valid';
    if (groups === 1) return tf.fused.conv2d({ x, filter: w, strides: stride, pad: pads, bias: b });
    // HWIO with one input channel per group is HWC1 turned round
    const filter = tf.reshape(w, [w.shape[0], w.shape[1], w.shape[3], 1]);
    const y = tf.fused.depthwiseConv2d({ x, filter, strides: stride, pad: pads, bias: b });
    filter.dispose();
    return y;
  },
};

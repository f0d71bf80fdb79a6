// jax-js: kernels through jit, models through its ONNX loader, which wants every size fixed.
// On Wasm its pool has as many workers as the browser names cores; without SharedArrayBuffer it has none.

import { fetchAll, fetchBytes, widened } from '../tensors.js';

const JAX = '@jax-js/jax';
const ONNX = '@jax-js/onnx';

/** @type {Record<string, string>} */
const DTYPES = { float32: 'f32', int32: 'i32', bool: 'bool', uint32: 'i32', float64: 'f64' };

/**
 * @param {number} threads
 * @param {string | null} device
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads, device) {
  if (threads === 1 && !device) Reflect.deleteProperty(globalThis, 'SharedArrayBuffer');
  else if (!device) Object.defineProperty(navigator, 'hardwareConcurrency', { value: threads });
  const jax = await import(JAX);
  const backend = device ?? 'wasm';
  await jax.init(backend);
  jax.defaultDevice(backend);
  const array = (/** @type {import('../page.js').Tensor} */ tensor) => {
    const { data, shape } = widened(tensor);
    const made = jax.numpy.array(data instanceof BigInt64Array ? Int32Array.from(data, Number) : data, { shape });
    return tensor.dtype === 'f16' ? made.astype(jax.numpy.float16) : made;
  };
  const outputOf = async (/** @type {string} */ name, /** @type {any} */ made) => {
    const y = made.dtype === 'float16' ? made.astype(jax.numpy.float32) : made;
    const { shape } = y;
    const dtype = DTYPES[y.dtype];
    return { name, dtype, shape, data: await y.data() };
  };
  /** @type {Record<string, (sizes: any) => (operands: any) => any>} */
  const kernels = {
    matmul: () => ({ x, w }) => jax.numpy.matmul(x, w),
    attention: ({ rows, keys, heads, depth }) => ({ q, k, v }) => {
      // Its own attention parses einsum with what Node 20 lacks.
      const split = (/** @type {any} */ x, /** @type {number} */ length, /** @type {number[]} */ order) => x.reshape([1, length, heads, depth]).transpose(order);
      const scores = jax.numpy.matmul(split(q, rows, [0, 2, 1, 3]), split(k, keys, [0, 2, 3, 1])).mul(depth ** -0.5);
      const mixed = jax.numpy.matmul(jax.nn.softmax(scores, -1), split(v, keys, [0, 2, 1, 3]));
      return mixed.transpose([0, 2, 1, 3]).reshape([1, rows, heads * depth]);
    },
    conv: ({ stride, pad, groups }) => ({ x, w, b }) => jax.lax.convGeneralDilated(x, w, [stride, stride], [[pad, pad], [pad, pad]], { featureGroupCount: groups }).add(b.reshape([1, -1, 1, 1])),
  };
  const results = (/** @type {any} */ made) => (made instanceof jax.Array ? [made] : Object.values(made));
  /** Nothing is computed of an array that nobody asks for: its buffer is, unread. */
  const stream = (/** @type {() => any} */ once) => async (/** @type {number} */ runs) => {
    for (let run = 0; run < runs; run++) {
      for (const y of results(once())) await y.gpuBuffer();
    }
    await jax.getWebGPUDevice().queue.onSubmittedWorkDone();
  };
  return {
    about: {},
    async open(task) {
      const arrays = Object.fromEntries((await fetchAll(task.base, [...task.inputs, ...task.constants])).map((tensor) => [tensor.name, array(tensor)]));
      const kept = () => Object.fromEntries(Object.entries(arrays).map(([name, value]) => [name, value.ref]));
      const dispose = () => Object.values(arrays).forEach((value) => value.dispose());
      if (task.op in kernels) {
        const kernel = jax.jit(kernels[task.op](task.sizes));
        return { run: async () => [await outputOf('y', kernel(kept()))], stream: stream(() => kernel(kept())), dispose };
      }
      const { ONNXModel } = await import(ONNX);
      const onnx = new ONNXModel(await fetchBytes(`${task.base}fixed.onnx`));
      const model = jax.jit(onnx.run);
      return {
        run: async () => Promise.all(Object.entries(model(kept())).map(([name, y]) => outputOf(name, y))),
        stream: stream(() => model(kept())),
        dispose() {
          dispose();
          onnx.dispose();
        },
      };
    },
  };
}

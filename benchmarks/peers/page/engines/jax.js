// jax-js on its Wasm backend: kernels through jit, models through its ONNX loader,
// which wants every size fixed.
// Its pool has as many workers as the browser names cores; without SharedArrayBuffer it has none.

import { fetchAll, fetchBytes } from '../tensors.js';

const JAX = '@jax-js/jax';
const ONNX = '@jax-js/onnx';

/** @type {Record<string, string>} */
const DTYPES = { float32: 'f32', int32: 'i32', bool: 'bool', uint32: 'i32', float64: 'f64' };

/**
 * @param {number} threads
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads) {
  if (threads === 1) Reflect.deleteProperty(globalThis, 'SharedArrayBuffer');
  else Object.defineProperty(navigator, 'hardwareConcurrency', { value: threads });
  const jax = await import(JAX);
  await jax.init('wasm');
  jax.defaultDevice('wasm');
  const array = (/** @type {import('../page.js').Tensor} */ { data, shape }) => jax.numpy.array(data instanceof BigInt64Array ? Int32Array.from(data, Number) : data, { shape });
  const outputOf = async (/** @type {string} */ name, /** @type {any} */ y) => {
    const { shape } = y;
    const dtype = DTYPES[y.dtype];
    return { name, dtype, shape, data: await y.data() };
  };
  /** @type {Record<string, (conv: any) => (operands: any) => any>} */
  const kernels = {
    matmul: () => ({ x, w }) => jax.numpy.matmul(x, w),
    conv: ({ stride, pad, groups }) => ({ x, w, b }) => jax.lax.convGeneralDilated(x, w, [stride, stride], [[pad, pad], [pad, pad]], { featureGroupCount: groups }).add(b.reshape([1, -1, 1, 1])),
  };
  return {
    about: {},
    async open(task) {
      const arrays = Object.fromEntries((await fetchAll(task.base, [...task.inputs, ...task.constants])).map((tensor) => [tensor.name, array(tensor)]));
      const kept = () => Object.fromEntries(Object.entries(arrays).map(([name, value]) => [name, value.ref]));
      const dispose = () => Object.values(arrays).forEach((value) => value.dispose());
      if (task.op in kernels) {
        const kernel = jax.jit(kernels[task.op](task.conv));
        return { run: async () => [await outputOf('y', kernel(kept()))], dispose };
      }
      const { ONNXModel } = await import(ONNX);
      const onnx = new ONNXModel(await fetchBytes(`${task.base}fixed.onnx`));
      const model = jax.jit(onnx.run);
      return {
        run: async () => Promise.all(Object.entries(model(kept())).map(([name, y]) => outputOf(name, y))),
        dispose() {
          dispose();
          onnx.dispose();
        },
      };
    },
  };
}

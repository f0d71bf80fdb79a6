// Operands of a case as typed arrays.
// Input: descriptions of files.py.  Output: tensors; `last` asks for the channels-last form.

/** @type {Record<string, any>} */
export const ARRAYS = { f32: Float32Array, f16: Uint16Array, f64: Float64Array, i8: Int8Array, u8: Uint8Array, i32: Int32Array, i64: BigInt64Array, bool: Uint8Array };

/**
 * @param {string} base
 * @param {any[]} described
 * @param {boolean} [last]
 * @returns {Promise<import('./page.js').Tensor[]>}
 */
export const fetchAll = (base, described, last = false) => Promise.all(described.map(async ({ name, dtype, shape, file, last: other }) => {
  const from = last && other ? other : { shape, file };
  const response = await fetch(base + from.file);
  if (!response.ok) throw new Error(`${from.file}: ${response.status}`);
  return { name, dtype, shape: from.shape, data: new ARRAYS[dtype](await response.arrayBuffer()) };
}));

/** @param {string} url */
export async function fetchBytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** A tensor of halves as one of f32: not every engine of JavaScript has arrays of halves. @param {import('./page.js').Tensor} tensor @returns {import('./page.js').Tensor} */
export const widened = (tensor) => (tensor.dtype === 'f16' ? { ...tensor, dtype: 'f32', data: Float32Array.from(new Uint16Array(tensor.data.buffer, tensor.data.byteOffset, tensor.data.length), wide) } : tensor);

/** @param {number} bits */
function wide(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

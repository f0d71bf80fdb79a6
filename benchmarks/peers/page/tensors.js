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

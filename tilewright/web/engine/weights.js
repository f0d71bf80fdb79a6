// Weights in memory: where files go, and what makes f32 of the tensors that are narrower there.
// Input: a manifest, its files.  Output: T.Widening; widening.js loads only for bundles that need it.

import { readJson } from './bundle.js';

/** @type {T.Json} */
export const json = async (files, ref) => readJson(await files.bytes(ref), ref.file);

/** @type {T.Widener} */
export async function widener({ weights: { bytes, memory, tensors } }, files) {
  if (!memory) return { start: 0, memory: bytes, arrived() {} };
  const [{ widening }, listed] = await Promise.all([import('./widening.js'), json(files, tensors)]);
  return widening(listed, memory, memory - bytes);
}

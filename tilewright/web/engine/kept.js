// What this origin keeps of bundles: how much, and its deletion.  It loads on demand.
// Input: the store's folder.  Output: bytes.  Files of single bundles are tidy.js's.

import { FOLDER, root } from './store.js';

/** Total bytes of bundle files that this origin keeps. */
export async function cachedBytes() {
  /** @type {any} */
  const folder = await (await root())?.getDirectoryHandle(FOLDER).catch(() => null);
  let sum = 0;
  for await (const file of folder?.values() ?? []) sum += (await file.getFile()).size;
  return sum;
}

/** Deletes all kept bundle files; returns their total bytes. */
export async function clearCache() {
  const bytes = await cachedBytes();
  await (await root())?.removeEntry(FOLDER, { recursive: true }).catch(() => {});
  return bytes;
}

// Questions that a page can ask without loading a bundle: its manifest, and the files that this origin keeps.  Loaded on demand.
// Input: a bundle's URL.  Output: the manifest and its digest, or a typed error, as of a load; bytes of kept files.  cache_eviction.js
// deletes the files of single bundles.

import { probeHost, requireHost } from './features.js';
import { makeMeter } from './files.js';
import { openBundle } from './loader.js';
import { FOLDER, root } from './opfs_cache.js';
import { requireOptions } from './tensors.js';

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

/** @type {T.ReadManifestOf} */
export async function readManifestOf(url, options = {}) {
  requireOptions('inspect', options, 'key, name, verify');
  requireHost(probeHost());
  const { manifest, digest } = await openBundle(`${url}`, makeMeter(() => {}), new AbortController().signal, options);
  return { ...manifest, digest };
}

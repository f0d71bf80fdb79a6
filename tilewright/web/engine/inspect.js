// A bundle's manifest, without the bundle; loaded on demand.
// Input: a bundle's URL.  Output: the manifest and its digest; or a typed error, as of a load.

import { probeHost, requireHost } from './features.js';
import { makeMeter } from './files.js';
import { openBundle } from './loader.js';
import { requireOptions } from './tensors.js';

/** @type {T.ReadManifestOf} */
export async function readManifestOf(url, options = {}) {
  requireOptions('inspect', options, 'key, name, verify');
  requireHost(probeHost());
  const { manifest, digest } = await openBundle(`${url}`, makeMeter(() => {}), new AbortController().signal, options);
  return { ...manifest, digest };
}

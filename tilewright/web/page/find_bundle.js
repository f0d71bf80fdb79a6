// Finds a bundle that a page can use.
// Input: the server's list of bundles.  Output: the URL of the first one that embeds sentences, or looks at pictures.
// It reads manifests only; nothing large is downloaded.

import { EngineError, inspect } from '../engine/engine.js';
import { addressFor } from '../tune/device/visit.js';
import { countText } from './elements.js';

const LIST = '/api/bundles';
export const EMBEDDING = 'sentence_embedding';
export const TOKENIZER = 'tokenizer.json';
/** The asset that says what a model wants of a picture, and what its output means (docs/camera.md). */
export const CAMERA = 'camera.json';

/** @typedef {import('../engine/types.js').Manifest} Manifest */

export const findSentenceBundle = () => findBundle(embedsSentences, 'embeds sentences', `Serve a bundle with the output ${EMBEDDING} and the asset ${TOKENIZER}`);
export const findPictureBundle = () => findBundle(looksAtPictures, 'looks at pictures', `Serve a bundle with the asset ${CAMERA}, such as that of scripts/demo (docs/camera.md)`);

/**
 * Rejects with an EngineError if there is none.
 * @param {(manifest: Manifest) => boolean} fits
 * @param {string} what is missing if none does
 * @param {string} hint
 */
async function findBundle(fits, what, hint) {
  const entries = await bundleList();
  /** @type {unknown} */
  let problem = null;
  for (const { url, tuned } of entries) {
    try {
      const { address, manifest } = await readBundle(url, tuned);
      if (fits(manifest)) return address;
    } catch (error) {
      // A broken bundle must not hide a good one; its error is reported only if there is no good one.
      problem ??= error;
    }
  }
  if (problem) throw problem;
  throw new EngineError(
    'input',
    `No bundle of this server ${what} (it has ${countText(entries.length, 'bundle')})`,
    hint,
    { bundles: entries.map((entry) => entry.name) },
  );
}

/**
 * The bundle with the winning kernels of this device's class, or the plain one if that is not available (offline, or the
 * server has no tuning).
 * @param {string} url
 * @param {boolean} [tuned] whether the server has versions for device classes
 */
export async function readBundle(url, tuned) {
  const address = tuned ? await addressFor(url) : url;
  try {
    return { address, manifest: await inspect(address) };
  } catch (error) {
    if (address === url) throw error;
    return { address: url, manifest: await inspect(url) };
  }
}

/** @returns {Promise<{name: string, url: string, tuned?: boolean}[]>} */
export async function bundleList() {
  try {
    const response = await fetch(LIST, { cache: 'no-cache' });
    if (response.ok) return await response.json();
    throw new Error(`the server answered ${response.status}`);
  } catch (error) {
    throw new EngineError(
      'network',
      `The list of bundles could not be read: ${error instanceof Error ? error.message : error}`,
      'Check that the server is running, then try again',
      { url: LIST },
    );
  }
}

/** @param {Manifest} manifest */
function embedsSentences({ outputs, assets }) {
  return outputs.some(({ name }) => name === EMBEDDING) && assets.some(({ name }) => name === TOKENIZER);
}

/** @param {Manifest} manifest */
const looksAtPictures = ({ assets }) => assets.some(({ name }) => name === CAMERA);

// Finds language models.
// Input: the server's list of bundles.  Output: those that can chat, and the names of those without text files. It reads manifests only;
// nothing large is downloaded.

import { isLanguageModel, kindOf } from '../language/language.js';
import { bundleList, readBundle } from './find_bundle.js';

/** A bundle of the server, under the address that fits this device. @typedef {{name: string, address: string, manifest: import('../engine/types.js').Manifest}} Found */

/** The input by which language models are known: the index of the last valid key. */
const LAST_KEY = 'seqlens_k';

/**
 * Rejects with an EngineError if no bundle can be read.
 * @returns {Promise<{found: Found[], textless: string[]}>}
 */
export async function findLanguageBundles() {
  const entries = await bundleList();
  const read = await Promise.allSettled(entries.map(async ({ name, url, tuned }) => ({ name, ...await readBundle(url, tuned) })));
  const whole = read.flatMap((entry) => (entry.status === 'fulfilled' ? [entry.value] : []));
  const failed = read.find((entry) => entry.status === 'rejected');
  if (failed && !whole.length) throw failed.reason;
  const writers = whole.filter(({ manifest }) => manifest.states.length && manifest.inputs.some(({ name }) => name === LAST_KEY) && kindOf(manifest) !== 'speech');
  const lacking = writers.filter(({ manifest }) => !isLanguageModel(manifest));
  return { found: writers.filter((writer) => !lacking.includes(writer)), textless: lacking.map(({ name }) => name) };
}

// The status panel: what is going on, how far it is, and what to do when it failed.
// Input: states and progress.  Output: texts, bar and buttons of #status.

import { element } from './elements.js';
import { countText, errorText, sizeText } from './words.js';

/** @typedef {'loading' | 'embedding' | 'ready' | 'cancelled' | 'error'} State */

/** @type {Record<import('../engine/types.js').Progress['phase'], string>} */
const PHASES = { manifest: 'Reading the manifest', code: 'Loading kernels', weights: 'Loading weights', ready: 'Starting the model' };

/**
 * @param {State} state
 * @param {string} text
 * @param {{share?: number, hint?: string, code?: string}} [more]
 */
export function showStatus(state, text, { share, hint = '', code = '' } = {}) {
  const status = element('status');
  status.dataset.state = state;
  status.dataset.code = code;
  // Counting up is for the eye; a screen reader hears where it ends.
  element('status-text').setAttribute('aria-busy', String(share !== undefined));
  element('status-text').textContent = text;
  element('status-hint').textContent = hint;
  const bar = element('progress');
  bar.hidden = share === undefined;
  bar.value = share ?? 0;
  element('cancel').hidden = state !== 'loading';
  element('retry').hidden = state !== 'error' && state !== 'cancelled';
}

/** What comes after the end of it is no news: a tuner reads files, too. @param {import('../engine/types.js').Progress} progress */
export function showLoading({ phase, loadedBytes, totalBytes, cachedBytes }) {
  if (element('status').dataset.state !== 'loading') return;
  const share = totalBytes ? loadedBytes / totalBytes : 0;
  // The manifest alone, read while choosing a bundle, is not worth a word.
  const cached = cachedBytes > totalBytes / 100 ? `${sizeText(cachedBytes)} of it from this device` : '';
  showStatus('loading', `${PHASES[phase]}: ${sizeText(loadedBytes)} of ${sizeText(totalBytes)}`, { share, hint: cached });
}

/**
 * @param {import('./collection.js').Collection} collection
 * @param {number} maxTokens
 */
export function showCollection(collection, maxTokens) {
  const { embedded, entries, truncated, name } = collection;
  const cut = truncated ? `${countText(truncated, 'text')} longer than ${maxTokens} tokens: only the beginning counts.` : '';
  element('collection-text').textContent = `${name}: ${countText(entries.length, 'sentence')}`;
  if (embedded === entries.length) showStatus('ready', `Ready: ${countText(embedded, 'sentence')} to search`, { hint: cut });
  else showStatus('embedding', `Embedding sentence ${embedded + 1} of ${entries.length}. You can search already`, { share: embedded / entries.length, hint: cut });
}

/** @param {unknown} error */
export function showError(error) {
  const { code, message, hint } = errorText(error);
  showStatus('error', message, { hint, code });
}

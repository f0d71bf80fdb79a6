// The status panel: current activity, progress, and hints after an error.
// Input: states and progress.  Output: texts, bar and buttons of #status.

import { element } from './elements.js';
import { countText, errorText, sizeText } from './formatting.js';

/** @typedef {'loading' | 'embedding' | 'ready' | 'cancelled' | 'error'} StatusState */

/** @type {Record<import('../engine/types.js').Progress['phase'], string>} */
const PHASES = { manifest: 'Reading the manifest', code: 'Loading kernels', weights: 'Loading weights', ready: 'Starting the model', measure: 'Measuring processor and GPU' };

/**
 * @param {StatusState} state
 * @param {string} text
 * @param {{share?: number, hint?: string, code?: string}} [more]
 */
export function showStatus(state, text, { share, hint = '', code = '' } = {}) {
  const status = element('status');
  status.dataset.state = state;
  status.dataset.code = code;
  // aria-busy: a screen reader should not read out every step of a count.
  element('status-text').setAttribute('aria-busy', String(share !== undefined));
  element('status-text').textContent = text;
  element('status-hint').textContent = hint;
  const bar = element('progress');
  bar.hidden = share === undefined;
  bar.value = share ?? 0;
  element('cancel').hidden = state !== 'loading';
  element('retry').hidden = state !== 'error' && state !== 'cancelled';
}

/** Ignores progress after the load: the tuner reads files, too. @param {import('../engine/types.js').Progress} progress */
export function showLoading({ phase, loadedBytes, totalBytes, cachedBytes, pipelines }) {
  if (element('status').dataset.state !== 'loading') return;
  if (phase === 'code' && pipelines) {
    const { made, of } = pipelines;
    return showStatus('loading', `Making kernels: ${made} of ${of}`, { share: of && made / of });
  }
  const share = totalBytes ? loadedBytes / totalBytes : 0;
  // A cached manifest alone, which was read to choose the bundle, is not mentioned.
  const cached = cachedBytes > totalBytes / 100 ? `${sizeText(cachedBytes)} of it from this device` : '';
  showStatus('loading', `${PHASES[phase]}: ${sizeText(loadedBytes)} of ${sizeText(totalBytes)}`, { share, hint: cached });
}

/**
 * @param {import('./collection.js').Collection} collection
 * @param {number} maxTokens
 */
export function showCollection(collection, maxTokens) {
  const { embedded, entries, truncated, name } = collection;
  const cut = truncated ? `${countText(truncated, 'text')} cut to the first ${maxTokens} tokens.` : '';
  element('collection-text').textContent = `${name}: ${countText(entries.length, 'sentence')}`;
  if (embedded === entries.length) showStatus('ready', `Ready: ${countText(embedded, 'sentence')} to search`, { hint: cut });
  else showStatus('embedding', `Embedding sentence ${embedded + 1} of ${entries.length}. You can already search`, { share: embedded / entries.length, hint: cut });
}

/** @param {unknown} error */
export function showError(error) {
  const { code, message, hint } = errorText(error);
  showStatus('error', message, { hint, code });
}

// What every page with a model shows: the status panel, the model and its device, the latencies of the last runs.
// Input: states and progress, engine.info, a profile, runs one by one.  Output: texts, bar and buttons of #status, with hints after an
// error; texts in the side panels; in #latency a bar for each run and a line for their median, also as text and attributes.

import { forgetVerdicts } from '../engine/auto.js';
import { clearCache } from '../engine/engine.js';
import { bucketText, countText, draw, element, errorText, make, sizeText, timeText } from './elements.js';

/** @typedef {'idle' | 'loading' | 'embedding' | 'ready' | 'cancelled' | 'error'} StatusState */

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

const LISTED_STEPS = 12;

/** @type {Record<import('../engine/types.js').Device, string>} */
const DEVICES = { wasm: 'Processor', webgpu: 'GPU' };
/** What kernels that use no features need. @type {typeof DEVICES} */
const BASELINES = { wasm: 'baseline SIMD', webgpu: 'what every WebGPU has' };

/** What people chose; with `?software` in the page's address Automatic measures adapters that are software, too. */
export const chosenDevice = () => ({ device: element('device-choice').value, software: new URLSearchParams(location.search).has('software') });

/**
 * What the engine measured, or why it did not.
 * @param {import('../engine/types.js').Info} info
 * @param {string} unit what one run computes
 */
function showChoice({ device, adapter, choice }, unit) {
  const shown = element('device');
  shown.textContent = adapter ? `${DEVICES[device]} (WebGPU: ${adapter.description || adapter.name})` : `${DEVICES[device]} (WebAssembly)`;
  Object.assign(shown.dataset, { device, chosen: choice ? 'auto' : device });
  const { milliseconds: { wasm, webgpu } = {}, remembered = false, why = '' } = choice ?? {};
  const times = wasm !== undefined && webgpu !== undefined ? `Processor ${timeText(wasm)}, GPU ${timeText(webgpu)} per ${unit}${remembered ? ', measured at an earlier visit' : ''}. ` : '';
  element('device-why').textContent = choice ? `${times}${why}.` : 'As you chose; nothing was measured.';
}

/**
 * @param {import('../engine/types.js').Info} info
 * @param {string} unit what one run computes
 */
export function showDevice(info, unit) {
  const { features, cache } = info;
  showChoice(info, unit);
  const has = [
    features.simd && 'SIMD', features.relaxed_simd && 'relaxed SIMD', features.isolated && 'isolated',
    countText(features.threads, 'thread'),
  ];
  element('fact-model').textContent = `${info.name} (${info.tool})`;
  element('fact-variant').textContent = `${info.variant.name} (${info.variant.features.join(', ') || BASELINES[info.device]})`;
  element('fact-features').textContent = has.filter(Boolean).join(', ');
  element('fact-memory').textContent = sizeText(info.memoryBytes);
  element('fact-load').textContent = timeText(info.loadMilliseconds);
  element('fact-bytes').textContent = `${sizeText(cache.downloadedBytes)} downloaded, ${sizeText(cache.hitBytes)} from cache`;
  element('lost').replaceChildren(...info.lost.map((text) => make('li', { textContent: text })));
  element('forget').hidden = cache.state !== 'on';
}

/** What the button #forget does: it deletes what the browser keeps of all models. */
export function watchForget() {
  element('forget').addEventListener('click', async () => {
    const [bytes] = await Promise.all([clearCache(), forgetVerdicts()]);
    element('forget').hidden = true;
    element('fact-bytes').textContent = `${sizeText(bytes)} deleted; the next visit downloads again`;
  });
}

/** Without a service worker the page still works, but not offline. */
export function keepOffline() {
  navigator.serviceWorker?.register('/sw.js').catch(() => {});
}

/** @param {Record<string, number>} bucket */
export function showBucket(bucket) {
  const fact = element('fact-bucket');
  fact.textContent = bucketText(bucket);
  fact.dataset.bucket = JSON.stringify(bucket);
}

/** @param {Awaited<ReturnType<import('./model.js').SentenceModel['profile']>>} profile */
export function showProfile({ steps, bucket }) {
  const total = steps.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const slowest = steps.toSorted((a, b) => b.milliseconds - a.milliseconds).slice(0, LISTED_STEPS);
  const shown = slowest.length < steps.length ? `; the ${slowest.length} slowest` : '';
  element('profile-text').textContent = `${countText(steps.length, 'step')}, ${timeText(total)} (${bucketText(bucket)})${shown}:`;
  element('profile-steps').replaceChildren(...slowest.map(({ kernel, node, milliseconds }) => make('li', {},
    make('span', { textContent: `${kernel} · ${node}` }),
    make('span', { textContent: `${timeText(milliseconds)} · ${Math.round((milliseconds / total) * 100 || 0)} %` }))));
}

const SHOWN = 60;
const WIDTH = 300;
const HEIGHT = 96;

/** `purpose`: the class of its bar. @typedef {{milliseconds: number, purpose: string}} Run */

export class LatencyView {
  /** @type {Run[]} */
  #runs = [];
  #total = 0;
  #frame = 0;

  /** @param {Run} run */
  add(run) {
    this.#runs = [...this.#runs, run].slice(-SHOWN);
    this.#total++;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  /** Forgets all runs: those of another device tell nothing of this one. */
  clear() {
    cancelAnimationFrame(this.#frame);
    this.#runs = [];
    this.#total = this.#frame = 0;
    element('latency-text').textContent = '';
    const figure = element('latency');
    figure.replaceChildren();
    Object.assign(figure.dataset, { runs: 0, last: '', median: '' });
  }

  #draw() {
    const times = this.#runs.map(({ milliseconds }) => milliseconds);
    const median = times.toSorted((a, b) => a - b)[times.length >> 1];
    const last = times[times.length - 1];
    const text = `median ${timeText(median)}, last ${timeText(last)}`;
    element('latency-text').textContent = text;
    const figure = element('latency');
    Object.assign(figure.dataset, { runs: this.#total, last, median });
    figure.replaceChildren(this.#chart(times, median, text));
  }

  /**
   * @param {number[]} times
   * @param {number} median
   * @param {string} text
   */
  #chart(times, median, text) {
    const chart = draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `Latency of the last ${times.length} runs: ${text}` });
    // The scale ends at three medians, so that a slow first run does not flatten the others.
    const top = Math.max(Math.min(Math.max(...times), median * 3), 1e-6) * 1.1;
    const y = (/** @type {number} */ time) => HEIGHT * (1 - Math.min(time, top) / top);
    const step = WIDTH / SHOWN;
    this.#runs.forEach(({ milliseconds, purpose }, at) => chart.append(draw('rect', {
      class: `bar ${purpose}`, x: at * step, y: y(milliseconds), width: step - 1.2, height: HEIGHT - y(milliseconds), rx: 1,
    })));
    chart.append(draw('line', { class: 'median', x1: 0, x2: WIDTH, y1: y(median), y2: y(median), 'vector-effect': 'non-scaling-stroke' }));
    return chart;
  }
}

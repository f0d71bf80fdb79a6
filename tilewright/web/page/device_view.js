// Shows the loaded model, the device and what it costs; on demand a profile of the steps.
// Input: engine.info with the choice of the device, buckets of runs, a profile.  Output: texts in the side panels.

import { element, make } from './elements.js';
import { bucketText, countText, sizeText, timeText } from './formatting.js';

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

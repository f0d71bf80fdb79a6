// The camera page's controller: finds a bundle that looks at pictures, loads it, and shows it one frame after the other.
// Input: clicks, files, frames of the camera.  Output: a picture with what the model found in it, and how fast (#picture, #seen, #results,
// #rate).  The model and the views have files of their own.

import { sizeOf } from '../engine/frames.js';
import { countText, element, errorText, make, timeText } from './elements.js';
import { findPictureBundle } from './find_bundle.js';
import { PictureModel } from './picture_model.js';
import { cameraSource, fileSource, sampleSource } from './picture_sources.js';
import { chosenDevice, keepOffline, LatencyView, showDevice, showError, showLoading, showStatus, watchForget } from './status_view.js';

/**
 * @typedef {import('./picture_model.js').Seen} Seen
 * @typedef {import('./picture_model.js').Areas} Areas
 * @typedef {import('./picture_model.js').Labels} Labels
 */

/** Red, green, blue and opacity of what was found, on any picture. */
const TINT = [240, 110, 50, 130];
const [LINE, EDGE] = ['#ff5a1f', '#ffffff'];
/** Frames whose rate is shown. */
const RATED = 30;

/** When the last frames were shown. @type {number[]} */
let shown = [];

/** @param {import('./picture_model.js').Frame} frame @param {Seen} seen @param {import('./picture_sources.js').Source} source */
function showSeen(frame, { finding, place, milliseconds }, { name, still }) {
  const canvas = element('picture');
  [canvas.width, canvas.height] = sizeOf(frame);
  const context = canvas.getContext('2d');
  context.drawImage(frame, 0, 0, canvas.width, canvas.height);
  const text = finding.kind === 'areas' ? showAreas(context, finding, place) : showLabels(finding);
  element('seen').dataset.frames = String(Number(element('seen').dataset.frames ?? 0) + 1);
  element('seen-text').textContent = text;
  canvas.setAttribute('aria-label', `${name}: ${text}`);
  showRate(still, milliseconds);
}

/** Of another source. */
function forgetRate() {
  shown = [];
}

/** @param {boolean} still @param {number} milliseconds */
function showRate(still, milliseconds) {
  shown = [...shown, performance.now()].slice(-RATED);
  const rate = (shown.length - 1) * 1000 / (shown[shown.length - 1] - shown[0]);
  const rated = !still && shown.length > 1;
  Object.assign(element('rate').dataset, { milliseconds, rate: rated ? rate : '' });
  element('rate').textContent = rated ? `${rate.toFixed(1)} frames/s, ${timeText(milliseconds)} each` : `${timeText(milliseconds)} for the picture`;
}

/** @param {CanvasRenderingContext2D} context @param {Areas} found @param {Seen['place']} place */
function showAreas(context, { label, map, above, areas }, [left, top, wide, high]) {
  const { width, height } = context.canvas;
  const mask = new ImageData(map.width, map.height);
  map.data.forEach((cell, at) => cell > above && mask.data.set(TINT, 4 * at));
  const layer = new OffscreenCanvas(map.width, map.height);
  /** @type {OffscreenCanvasRenderingContext2D} */ (layer.getContext('2d')).putImageData(mask, 0, 0);
  context.drawImage(layer, left * map.width, top * map.height, wide * map.width, high * map.height, 0, 0, width, height);

  const [across, down] = [width / (wide * map.width), height / (high * map.height)];
  const boxes = areas.map(({ box: [x, y, w, h], score }) => ({ box: [(x - left * map.width) * across, (y - top * map.height) * down, w * across, h * down], score }));
  const line = Math.max(2, Math.max(width, height) / 250);
  for (const [colour, thickness] of /** @type {[string, number][]} */ ([[EDGE, 2 * line], [LINE, line]])) {
    Object.assign(context, { strokeStyle: colour, lineWidth: thickness });
    for (const { box: [x, y, w, h] } of boxes) context.strokeRect(x, y, w, h);
  }
  element('seen').dataset.areas = JSON.stringify(boxes);
  return areas.length ? `${countText(areas.length, 'area')} of ${label}` : `No ${label} found`;
}

/** @param {Labels} found */
function showLabels({ ranked }) {
  element('results').replaceChildren(...ranked.map(({ label, share }) => {
    const bar = make('div', { className: 'bar' });
    bar.style.setProperty('--share', String(Math.min(1, Math.max(0, share))));
    const item = make('li', {}, make('p', { className: 'sentence', textContent: label }), make('p', { className: 'score', textContent: `${(100 * share).toFixed(1)} %` }), make('p', {}), bar);
    item.dataset.share = String(share);
    return item;
  }));
  return ranked[0].label;
}

/** @typedef {import('./picture_sources.js').Source} Source */

const latency = new LatencyView();
/** @type {PictureModel | null} */
let model = null;
/** @type {Source} */
let source = sampleSource();
let loading = new AbortController();
/** Number of the newest loop; older ones end. */
let turn = 0;

async function start() {
  loading = new AbortController();
  const { signal } = loading;
  showStatus('loading', 'Looking for a model', { share: 0 });
  try {
    const url = await findPictureBundle();
    signal.throwIfAborted();
    model = await PictureModel.load(url, { ...chosenDevice(), signal, onProgress: showLoading });
    model.engine.onlost = (info) => showDevice(info, 'picture');
    showDevice(model.engine.info, 'picture');
    look();
  } catch (error) {
    // Errors of a cancelled load are ignored; another one may already be running.
    if (!signal.aborted) fail(error);
  }
}

/** Shows the model frames of the source until there is another model or source. */
async function look() {
  const number = ++turn;
  const [using, from] = [model, source];
  if (!using) return;
  forgetRate();
  /** Whether a picture is shown already. */
  let shown = false;
  try {
    do {
      const frame = await from.next();
      if (!frame) return;
      try {
        const seen = await using.look(frame);
        if (number !== turn) return;
        showSeen(frame, seen, from);
        if (!shown) showStatus('ready', from.still ? `Ready: ${from.name}` : `Looking at ${from.name}`);
        shown = true;
        latency.add({ milliseconds: seen.milliseconds, purpose: 'query' });
      } finally {
        from.done(frame);
      }
    } while (!from.still && number === turn);
  } catch (error) {
    if (number === turn) fail(error);
  }
}

/** @param {unknown} error */
function fail(error) {
  release();
  showError(error);
}

/** The views must not offer an engine that may be dead. */
function release() {
  turn++;
  model?.dispose();
  model = null;
}

/** Changes the source; a mistake leaves the one before. @param {() => Source | Promise<Source>} open */
async function use(open) {
  const problem = element('source-problem');
  problem.textContent = '';
  try {
    const next = await open();
    source.end();
    source = next;
    element('camera').hidden = !source.still;
    element('camera-end').hidden = source.still;
    await look();
  } catch (error) {
    const { code, message, hint } = errorText(error);
    problem.dataset.code = code;
    problem.textContent = `${message}. ${hint}.`;
  }
}

/** The last picture stays. @param {string} [why] */
function endCamera(why = '') {
  turn++;
  source.end();
  source = sampleSource();
  element('camera').hidden = false;
  element('camera-end').hidden = true;
  element('source-problem').textContent = why;
  if (model) showStatus('ready', 'Ready: the camera is off');
}

element('camera').addEventListener('click', () => use(() => cameraSource(endCamera)));
element('camera-end').addEventListener('click', () => endCamera());
element('sample').addEventListener('click', () => use(sampleSource));
element('file').addEventListener('change', async () => {
  const [file] = element('file').files;
  if (file) await use(() => fileSource(file));
  // Otherwise opening the same file again would fire no event.
  element('file').value = '';
});

const drop = element('seen');
drop.addEventListener('dragover', (/** @type {DragEvent} */ event) => {
  event.preventDefault();
  drop.classList.add('over');
});
drop.addEventListener('dragleave', () => drop.classList.remove('over'));
drop.addEventListener('drop', (/** @type {DragEvent} */ event) => {
  event.preventDefault();
  drop.classList.remove('over');
  const file = event.dataTransfer?.files[0];
  if (file) use(() => fileSource(file));
});

element('cancel').addEventListener('click', () => {
  loading.abort();
  showStatus('cancelled', 'Cancelled. Completed files are kept');
});
element('retry').addEventListener('click', start);
element('device-choice').addEventListener('change', () => {
  loading.abort();
  release();
  latency.clear();
  start();
});

watchForget();
keepOffline();
start();

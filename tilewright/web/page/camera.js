// The camera page's controller: finds a bundle that looks at pictures, loads it, and shows it one frame after the other.
// Input: clicks, files, frames of the camera.  Output: calls of the model and the views, which have their own files.

import { clearCache } from '../engine/engine.js';
import { forgetVerdicts } from '../engine/auto.js';
import { findPictureBundle } from './find_bundle.js';
import { chosenDevice, showDevice } from './device_view.js';
import { element } from './elements.js';
import { LatencyView } from './latency_view.js';
import { PictureModel } from './picture_model.js';
import { cameraSource, fileSource, sampleSource } from './picture_sources.js';
import { forgetRate, showSeen } from './picture_view.js';
import { showError, showLoading, showStatus } from './status_view.js';
import { errorText, sizeText } from './formatting.js';

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
element('forget').addEventListener('click', async () => {
  const [bytes] = await Promise.all([clearCache(), forgetVerdicts()]);
  element('forget').hidden = true;
  element('fact-bytes').textContent = `${sizeText(bytes)} deleted; the next visit downloads again`;
});

// If this fails the page still works, but not offline.
navigator.serviceWorker?.register('/sw.js').catch(() => {});
start();

// The demo page's controller: finds a bundle, loads it, embeds a collection, answers queries as they are typed.
// Input: typing and clicks.  Output: a ranking as a list in #results, with the words of the query marked.  The model and the views have
// files of their own.

import { collectionFromText, exampleCollection, MOST_ENTRIES } from './collection.js';
import { countText, element, make, timeText } from './elements.js';
import { findSentenceBundle } from './find_bundle.js';
import { SentenceModel } from './model.js';
import { chosenDevice, keepOffline, LatencyView, showBucket, showCollection, showDevice, showError, showLoading, showProfile, showStatus, watchForget } from './status_view.js';
import { TuningPanel } from './tuning.js';

/** @typedef {import('./collection.js').Hit} Hit */

/** Shorter words are not marked. */
const SHORTEST_WORD = 4;
/** Stop words, which are not marked either. */
const COMMON = new Set('about also been being does from have into more most much some such than that their them then there these they this those very were what when where which while will with would your'.split(' '));

/**
 * @param {string} query
 * @param {Hit[]} hits
 */
function showRanking(query, hits) {
  const list = element('results');
  const words = wordsOf(query);
  list.replaceChildren(...hits.map((hit) => row(hit, words)));
  list.dataset.query = query;
  element('empty').hidden = hits.length > 0;
}

/**
 * @param {Hit} hit
 * @param {Set<string>} words
 */
function row({ text, topic, score }, words) {
  const bar = make('div', { className: 'bar' });
  bar.style.setProperty('--share', String(Math.min(1, Math.max(0, score))));
  const item = make('li', {},
    make('p', { className: 'sentence' }, ...marked(text, words)),
    make('p', { className: 'score', textContent: score.toFixed(2), title: 'Cosine similarity' }),
    make('p', { className: 'topic', textContent: topic }),
    bar);
  item.dataset.score = String(score);
  return item;
}

/** @param {string} text */
const wordsOf = (text) => new Set((text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => word.length >= SHORTEST_WORD && !COMMON.has(word)).map(stem));

/**
 * A crude stemmer, enough to match "cook" and "cooking".
 * @param {string} word
 */
const stem = (word) => word.replace(/(ing|ies|es|ed|s)$/, '');

/**
 * @param {string} text
 * @param {Set<string>} words
 */
function marked(text, words) {
  return text.split(/([\p{L}\p{N}]+)/u).map((piece) => (
    piece.length >= SHORTEST_WORD && words.has(stem(piece.toLowerCase())) ? make('mark', { textContent: piece }) : piece
  ));
}

/** @typedef {import('./collection.js').Collection} Collection */

const EXAMPLES = ['something warm for a cold evening', 'how do plants get their energy', 'machines that changed history', 'being kind to strangers'];
const SHOWN_HITS = 12;
/** Milliseconds. */
const DEBOUNCE = 90;

const latency = new LatencyView();
/** @type {SentenceModel | null} */
let model = null;
const tuning = new TuningPanel(() => model?.engine ?? null);
/** @type {Collection | null} */
let collection = null;
let loading = new AbortController();
let embedding = new AbortController();
/** @type {Record<string, number>} */
let lastBucket = {};

/** `kept`: a collection to go on with, instead of the examples. @param {Collection | null} kept */
async function start(kept = null) {
  loading = new AbortController();
  const { signal } = loading;
  showStatus('loading', 'Looking for a model', { share: 0 });
  try {
    const url = await findSentenceBundle();
    const first = kept ?? await exampleCollection();
    signal.throwIfAborted();
    model = await SentenceModel.load(url, { ...chosenDevice(), signal, onProgress: showLoading, onRun: noteRun });
    model.engine.onlost = (info) => showDevice(info, 'sentence');
    showDevice(model.info, 'sentence');
    await tuning.restore(model.engine);
    await search(first);
  } catch (error) {
    // Errors of a cancelled load are ignored; another one may already be running.
    if (!signal.aborted) fail(error);
  }
}

/** Loads the model anew on the device that was selected; vectors do not depend on it. */
function change() {
  loading.abort();
  embedding.abort();
  tuning.stop();
  model?.dispose();
  model = null;
  latency.clear();
  start(collection);
}

function cancel() {
  loading.abort();
  showStatus('cancelled', 'Cancelled. Completed files are kept');
}

/** @param {unknown} error */
function fail(error) {
  // The engine may be dead: the views must not offer it.
  tuning.stop();
  model?.dispose();
  model = null;
  showError(error);
}

/** @param {import('./model.js').Run} run */
function noteRun(run) {
  latency.add(run);
  lastBucket = run.bucket;
  if (run.purpose === 'query' || !queryText()) showBucket(run.bucket);
}

/** @param {Collection} next */
async function search(next) {
  if (!model) return;
  const using = model;
  embedding.abort();
  embedding = new AbortController();
  const { signal } = embedding;
  collection = next;
  showCollection(next, using.maxTokens);
  answerQuery();
  await next.embed(using, () => showCollection(next, using.maxTokens), signal).catch((error) => {
    // The model was disposed of for another device.
    if (!signal.aborted) throw error;
  });
  if (!signal.aborted) answerQuery();
}

// Queries: only the newest is shown.

const queryText = () => element('query').value.trim();
let asked = 0;

async function answerQuery() {
  const query = queryText();
  const number = ++asked;
  if (!query || !model || !collection) {
    showRanking('', []);
    element('summary').textContent = '';
    return;
  }
  const using = model;
  try {
    const start = performance.now();
    const { vector, truncated } = await using.embed(query, 'query');
    if (number !== asked) return;
    showRanking(query, collection.rank(vector, SHOWN_HITS));
    const cut = truncated ? `, cut to ${using.maxTokens} tokens` : '';
    element('summary').textContent = `${countText(collection.embedded, 'sentence')} compared in ${timeText(performance.now() - start)}${cut}`;
  } catch (error) {
    if (model === using) fail(error);
  }
}

let timer = 0;
element('query').addEventListener('input', () => {
  clearTimeout(timer);
  timer = window.setTimeout(answerQuery, DEBOUNCE);
});

element('examples').append(...EXAMPLES.map((text) => {
  const chip = make('button', { type: 'button', textContent: text });
  chip.addEventListener('click', () => {
    element('query').value = text;
    answerQuery();
  });
  return chip;
}));

// The user's own collections

/**
 * @param {string} name
 * @param {string} text
 */
function useText(name, text) {
  const own = collectionFromText(name, text);
  const { length } = own.entries;
  if (!model || length === 0 || length > MOST_ENTRIES) {
    const why = !model ? 'Wait until the model is loaded' : length === 0 ? 'There is no sentence in this text' : `That is ${countText(length, 'sentence')}: at most ${MOST_ENTRIES} fit`;
    element('collection-text').textContent = why;
    return;
  }
  element('restore').hidden = false;
  search(own).catch(fail);
}

element('collection').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  useText('Your text', element('text').value);
});
element('file').addEventListener('change', async () => {
  const [file] = element('file').files;
  if (file) useText(file.name, await file.text());
  // Otherwise opening the same file again would fire no event.
  element('file').value = '';
});
element('restore').addEventListener('click', async () => {
  element('restore').hidden = true;
  await exampleCollection().then(search).catch(fail);
});

// Buttons and panels

element('cancel').addEventListener('click', cancel);
element('retry').addEventListener('click', () => start());
element('device-choice').addEventListener('change', change);
element('profile').addEventListener('toggle', async () => {
  if (!model || !element('profile').open) return;
  element('profile-text').textContent = 'Measuring';
  try {
    showProfile(await model.profile({ bucket: lastBucket }));
  } catch (error) {
    fail(error);
  }
});

watchForget();
keepOffline();
start();

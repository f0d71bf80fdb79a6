// Shows a ranking as a list, and marks words of the query in the sentences.
// Input: hits and the query.  Output: elements in #results.  It does not rank.

import { element, make } from './elements.js';

/** @typedef {import('./collection.js').Hit} Hit */

/** Shorter words are not marked. */
const SHORTEST_WORD = 4;
/** Stop words, which are not marked either. */
const COMMON = new Set('about also been being does from have into more most much some such than that their them then there these they this those very were what when where which while will with would your'.split(' '));

/**
 * @param {string} query
 * @param {Hit[]} hits
 */
export function showRanking(query, hits) {
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

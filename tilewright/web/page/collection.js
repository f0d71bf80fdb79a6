// A collection of sentences and their vectors; ranking by cosine.
// Input: texts and a model.  Output: entries in order of similarity to a query's vector.
// Vectors have unit length, so the dot product is the cosine.

/**
 * @typedef {{text: string, topic: string}} Entry
 * @typedef {Entry & {score: number}} Hit
 */

export const MOST_ENTRIES = 2000;

export class Collection {
  /** @type {Float32Array[]} */
  #vectors = [];
  truncated = 0;

  /**
   * @param {string} name
   * @param {Entry[]} entries
   */
  constructor(name, entries) {
    this.name = name;
    this.entries = entries;
  }

  get embedded() {
    return this.#vectors.length;
  }

  /**
   * Embeds one entry at a time, so that queries can run in between.
   * @param {import('./model.js').SentenceModel} model
   * @param {() => void} onProgress
   * @param {AbortSignal} signal ends it early, without an error
   */
  async embed(model, onProgress, signal) {
    while (this.embedded < this.entries.length && !signal.aborted) {
      const { vector, truncated } = await model.embed(this.entries[this.embedded].text, 'entry');
      if (signal.aborted) return;
      this.#vectors.push(vector);
      this.truncated += Number(truncated);
      onProgress();
    }
  }

  /**
   * The most similar embedded entries, best first.
   * @param {Float32Array} query of unit length
   * @param {number} limit
   * @returns {Hit[]}
   */
  rank(query, limit) {
    const hits = this.#vectors.map((vector, at) => ({ ...this.entries[at], score: dot(vector, query) }));
    return hits.sort((one, other) => other.score - one.score).slice(0, limit);
  }
}

/**
 * @param {Float32Array} a
 * @param {Float32Array} b
 */
function dot(a, b) {
  let sum = 0;
  for (let at = 0; at < a.length; at++) sum += a[at] * b[at];
  return sum;
}

/** The collection that comes with the page. */
export async function exampleCollection() {
  const response = await fetch('sentences.json');
  /** @type {Record<string, string[]>} */
  const topics = await response.json();
  const entries = Object.entries(topics).flatMap(([topic, texts]) => texts.map((text) => ({ text, topic })));
  return new Collection('Examples', entries);
}

/**
 * Splits a text into lines, and lines into sentences.
 * @param {string} name
 * @param {string} text
 */
export function collectionFromText(name, text) {
  const segmenter = new Intl.Segmenter(undefined, { granularity: 'sentence' });
  const texts = text.split(/\r?\n/).flatMap((line) => Array.from(segmenter.segment(line), ({ segment }) => segment.trim()));
  const entries = texts.filter((piece) => /\p{L}|\p{N}/u.test(piece)).map((piece) => ({ text: piece, topic: '' }));
  return new Collection(name, entries);
}

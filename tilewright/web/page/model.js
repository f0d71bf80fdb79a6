// A sentence model: text in, unit vector out.
// Input: a bundle with tokenizer files.  Output: vectors, and the time of every run.
// It neither chooses sentences nor shows anything.

import { EngineError, load } from '../engine/engine.js';
import { Tokenizer } from '../vendor/tokenizers/tokenizers.min.mjs';
import { EMBEDDING, TOKENIZER } from './find_bundle.js';

/**
 * @typedef {'query' | 'entry'} Purpose
 * @typedef {{milliseconds: number, bucket: Record<string, number>, purpose: Purpose}} Run
 * @typedef {{vector: Float32Array, truncated: boolean}} Embedding
 */

const TOKENIZER_CONFIG = 'tokenizer_config.json';
const KNOWN_INPUTS = ['input_ids', 'attention_mask', 'token_type_ids'];

export class SentenceModel {
  #engine;
  #tokenizer;
  #inputs;
  /** @type {(run: Run) => void} */
  #onRun;
  /** Maximum tokens of a text; longer ones are cut. */
  maxTokens;
  /** The length to which texts are padded if the model's shape is fixed; else 0. */
  #fixedTokens = 0;

  /**
   * @param {import('../engine/types.js').Engine} engine
   * @param {Tokenizer} tokenizer
   * @param {(run: Run) => void} onRun
   */
  constructor(engine, tokenizer, onRun) {
    const { inputs, dims } = engine.info;
    const unknown = inputs.find(({ name }) => !KNOWN_INPUTS.includes(name));
    const ids = inputs.find(({ name }) => name === 'input_ids');
    if (unknown || !ids) {
      throw new EngineError('input', `This page cannot fill the model's inputs: ${inputs.map(({ name }) => name).join(', ')}`,
        `It knows ${KNOWN_INPUTS.join(', ')}`, {});
    }
    const length = ids.shape[1];
    if (typeof length === 'number') this.#fixedTokens = length;
    this.maxTokens = typeof length === 'number' ? length : Math.max(...dims[length]);
    this.#engine = engine;
    this.#tokenizer = tokenizer;
    this.#inputs = inputs.map(({ name }) => name);
    this.#onRun = onRun;
  }

  /**
   * @param {string} url
   * @param {import('../engine/types.js').LoadOptions & {onRun: (run: Run) => void}} options
   */
  static async load(url, { onRun, ...options }) {
    const engine = await load(url, options);
    const stop = () => engine.dispose();
    options.signal?.addEventListener('abort', stop);
    try {
      const config = engine.info.assets.includes(TOKENIZER_CONFIG) ? await readJson(engine, TOKENIZER_CONFIG) : {};
      const tokenizer = new Tokenizer(await readJson(engine, TOKENIZER), config);
      return new SentenceModel(engine, tokenizer, onRun);
    } catch (error) {
      engine.dispose();
      throw error;
    } finally {
      options.signal?.removeEventListener('abort', stop);
    }
  }

  get info() {
    return this.#engine.info;
  }

  /** For the tuner, which swaps kernels in it. */
  get engine() {
    return this.#engine;
  }

  /**
   * The text's embedding, of unit length.
   * @param {string} text
   * @param {Purpose} purpose
   * @returns {Promise<Embedding>}
   */
  async embed(text, purpose) {
    const { ids, truncated } = this.#tokens(text);
    const length = this.#fixedTokens || ids.length;
    /** @type {Record<string, Int32Array>} */
    const columns = {
      input_ids: Int32Array.from({ length }, (_, at) => ids[at] ?? 0),
      attention_mask: Int32Array.from({ length }, (_, at) => Number(at < ids.length)),
      token_type_ids: new Int32Array(length),
    };
    const inputs = Object.fromEntries(this.#inputs.map((name) => [name, { data: columns[name], shape: [1, length] }]));
    const { outputs, milliseconds, bucket } = await this.#engine.run(inputs);
    this.#onRun({ milliseconds, bucket, purpose });
    return { vector: outputs[EMBEDDING].data, truncated };
  }

  /** @param {{bucket: Record<string, number>}} options */
  profile({ bucket }) {
    return this.#engine.profile({ bucket });
  }

  dispose() {
    this.#engine.dispose();
  }

  /** @param {string} text */
  #tokens(text) {
    const { ids } = this.#tokenizer.encode(text);
    if (ids.length <= this.maxTokens) return { ids, truncated: false };
    // A cut text must still end with the end token.
    const end = this.#tokenizer.encode('').ids.slice(-1);
    return { ids: [...ids.slice(0, this.maxTokens - end.length), ...end], truncated: true };
  }
}

/**
 * @param {import('../engine/types.js').Engine} engine
 * @param {string} asset
 */
async function readJson(engine, asset) {
  return JSON.parse(new TextDecoder().decode(await engine.asset(asset)));
}

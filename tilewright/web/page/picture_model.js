// A model that looks at pictures: a frame in, what a person sees out: areas of a map, or labels with their shares.
// Input: a bundle with camera.json (docs/camera.md), and frames.  Output: a finding for each, where it lies, and how long it took.
// It neither gets frames nor shows anything.

import { EngineError, load } from '../engine/engine.js';
import { placeOf, sizeOf } from '../engine/frames.js';
import { CAMERA } from './find_bundle.js';

/**
 * Left, top, width and height in cells of the map; `score`: the mean of its cells.
 * @typedef {{box: import('../engine/functions.js').Box, score: number}} Area
 * @typedef {{data: Float32Array, width: number, height: number}} Cells
 * @typedef {{kind: 'areas', label: string, map: Cells, above: number, areas: Area[]}} Areas
 * @typedef {{kind: 'labels', ranked: {label: string, share: number}[]}} Labels
 * @typedef {Areas | Labels} Finding
 * @typedef {import('../engine/types.js').Output} Output
 */

const MOST_LABELS = 5;
/** Smaller areas are noise: cells. */
const LEAST_CELLS = 9;

/**
 * A cell belongs to an area if it is `above`; an area counts if the mean of its cells is at least `sure`.  `grow`: models that mark only the
 * core of an area are trained with a distance in proportion to its area over its perimeter.
 * @param {Output} output a map of numbers from 0 to 1
 * @param {{label: string, above?: number, sure?: number, grow?: number}} result
 * @returns {Areas}
 */
export function areasOf({ data, shape }, { label, above = 0.5, sure = above, grow = 0 }) {
  const [height, width] = shape.filter((size) => size !== 1);
  const areas = connected({ data, width, height }, above).filter(({ cells, score }) => cells >= LEAST_CELLS && score >= sure);
  return { kind: 'areas', label, above, map: { data, width, height }, areas: areas.map(({ box, score }) => ({ box: grown(box, grow, width, height), score })) };
}

/**
 * @param {Output} output a number per label
 * @param {{labels: string[], softmax?: boolean}} result `softmax`: the numbers are no shares yet
 * @returns {Labels}
 */
export function labelsOf({ data }, { labels, softmax = false }) {
  const numbers = Array.from(/** @type {Float32Array} */ (data));
  const most = Math.max(...numbers);
  const powers = softmax ? numbers.map((number) => Math.exp(number - most)) : numbers;
  const sum = softmax ? powers.reduce((sum, power) => sum + power, 0) : 1;
  const ranked = powers.map((power, at) => ({ label: labels[at], share: power / sum })).sort((a, b) => b.share - a.share);
  return { kind: 'labels', ranked: ranked.slice(0, MOST_LABELS) };
}

/** Areas of cells that touch each other at a side, from top to bottom. @param {Cells} map @param {number} above */
function connected({ data, width, height }, above) {
  const seen = new Uint8Array(data.length);
  const found = [];
  for (let first = 0; first < data.length; first++) {
    if (seen[first] || !(data[first] > above)) continue;
    seen[first] = 1;
    const open = [first];
    let [left, right, bottom, cells, sum] = [width, 0, 0, 0, 0];
    for (let cell = open.pop(); cell !== undefined; cell = open.pop()) {
      const [x, y] = [cell % width, Math.floor(cell / width)];
      [left, right, bottom] = [Math.min(left, x), Math.max(right, x), Math.max(bottom, y)];
      cells++;
      sum += data[cell];
      for (const [next, inside] of /** @type {[number, boolean][]} */ ([[cell - 1, x > 0], [cell + 1, x < width - 1], [cell - width, y > 0], [cell + width, y < height - 1]])) {
        if (!inside || seen[next] || !(data[next] > above)) continue;
        seen[next] = 1;
        open.push(next);
      }
    }
    const top = Math.floor(first / width);
    found.push({ box: [left, top, right + 1 - left, bottom + 1 - top], cells, score: sum / cells });
  }
  return found;
}

/** @param {number[]} box @param {number} grow @param {number} width @param {number} height @returns {import('../engine/functions.js').Box} */
function grown([left, top, wide, high], grow, width, height) {
  const more = grow * wide * high / (2 * (wide + high));
  const [x, y] = [Math.max(0, left - more), Math.max(0, top - more)];
  return [x, y, Math.min(width, left + wide + more) - x, Math.min(height, top + high + more) - y];
}

/**
 * @typedef {import('../engine/types.js').Engine} Engine
 * @typedef {import('../engine/types.js').FrameInput['frame']} Frame
 * @typedef {{scale?: number[], bias?: number[], fit?: import('../engine/types.js').Fit, result: any}} Settings
 * `place`: left, top, width and height of the picture in the input, as parts of it.
 * @typedef {{finding: Finding, place: import('../engine/functions.js').Box, milliseconds: number}} Seen
 */

/** @type {Record<string, (output: import('../engine/types.js').Output, result: any) => Finding>} */
const READERS = { areas: areasOf, labels: labelsOf };
/** The engine's filters look at four pixels: what is larger than this many times the input is shrunk first. */
const LARGE = 2;

export class PictureModel {
  #engine;
  #settings;
  #input;
  #output;
  /** Width and height of the input. @type {[number, number]} */
  #size;

  /**
   * @param {Engine} engine
   * @param {Settings} settings
   */
  constructor(engine, settings) {
    const { inputs, outputs } = engine.info;
    const { kind, output: wanted = outputs[0].name, label, labels } = settings.result ?? {};
    const fail = (/** @type {string} */ problem, /** @type {string} */ hint) => new EngineError('input', problem, hint, { settings });
    const [{ name, shape }] = inputs;
    const sizes = shape.filter((size) => typeof size === 'number');
    if (inputs.length > 1 || sizes.length !== 4) {
      throw fail(`This page cannot fill the model's inputs: ${inputs.map(({ name, shape }) => `${name} [${shape.join(', ')}]`).join(', ')}`, 'It gives one picture of a fixed size; build the model with --shape');
    }
    if (!Object.hasOwn(READERS, kind)) throw fail(`${CAMERA} has an unknown kind of result: ${kind}`, `Use ${Object.keys(READERS).join(' or ')}`);
    const output = outputs.find((one) => one.name === wanted);
    if (!output) throw fail(`${CAMERA} names an unknown output: ${wanted}`, `Use ${outputs.map((one) => one.name).join(', ')}`);
    const long = output.shape.filter((size) => size !== 1);
    if (kind === 'areas' && long.length !== 2) throw fail(`The output ${wanted} is not a map: [${output.shape.join(', ')}]`, 'Areas are found in maps [1, 1, height, width]');
    if (kind === 'areas' && !label) throw fail(`${CAMERA} does not say what the areas are`, 'Give them a label, such as "text"');
    if (kind === 'labels' && long[0] !== labels?.length) throw fail(`The output ${wanted} has ${long[0]} numbers, and ${CAMERA} ${labels?.length ?? 'no'} labels`, 'Give a label for each number');
    this.#engine = engine;
    this.#settings = settings;
    this.#input = name;
    this.#output = wanted;
    const [height, width] = sizes[1] === 3 || sizes[1] === 1 ? sizes.slice(2) : sizes.slice(1);
    this.#size = [width, height];
  }

  /**
   * @param {string} url
   * @param {import('../engine/types.js').LoadOptions} options
   */
  static async load(url, options) {
    const engine = await load(url, options);
    const stop = () => engine.dispose();
    options.signal?.addEventListener('abort', stop);
    try {
      return new PictureModel(engine, JSON.parse(new TextDecoder().decode(await engine.asset(CAMERA))));
    } catch (error) {
      engine.dispose();
      throw error;
    } finally {
      options.signal?.removeEventListener('abort', stop);
    }
  }

  get engine() {
    return this.#engine;
  }

  /** The caller closes the frame. @param {Frame} frame @returns {Promise<Seen>} */
  async look(frame) {
    const start = performance.now();
    const { scale, bias, fit = 'contain', result } = this.#settings;
    const [width, height] = this.#size;
    const [left, top, wide, high] = placeOf(fit, sizeOf(frame), this.#size);
    const small = await shrunk(frame, LARGE * Math.max(wide, high));
    const { outputs } = await this.#engine.run({ [this.#input]: { frame: small, scale, bias, fit } }).finally(() => small !== frame && /** @type {ImageBitmap} */ (small).close());
    const finding = READERS[result.kind](outputs[this.#output], result);
    return { finding, place: [left / width, top / height, wide / width, high / height], milliseconds: performance.now() - start };
  }

  dispose() {
    this.#engine.dispose();
  }
}

/**
 * The frame, or a copy whose longer side has so many pixels.
 * @param {Frame} frame
 * @param {number} most
 * @returns {Promise<Frame>}
 */
export async function shrunk(frame, most) {
  const [width, height] = sizeOf(frame);
  const factor = most / Math.max(width, height);
  if (factor >= 1) return frame;
  const [resizeWidth, resizeHeight] = [width, height].map((size) => Math.max(1, Math.round(size * factor)));
  return createImageBitmap(frame, { resizeWidth, resizeHeight, resizeQuality: 'high' });
}

// A model that looks at pictures: a frame in, what it found out.
// Input: a bundle with camera.json (docs/camera.md), and frames.  Output: a finding for each, where it lies, and how long it took.
// It neither gets frames nor shows anything.

import { EngineError, load } from '../engine/engine.js';
import { placeOf, sizeOf } from '../engine/frames.js';
import { CAMERA } from './find_bundle.js';
import { areasOf, labelsOf } from './findings.js';

/**
 * @typedef {import('../engine/types.js').Engine} Engine
 * @typedef {import('../engine/types.js').FrameInput['frame']} Frame
 * @typedef {{scale?: number[], bias?: number[], fit?: import('../engine/types.js').Fit, result: any}} Settings
 * `place`: left, top, width and height of the picture in the input, as parts of it.
 * @typedef {{finding: import('./findings.js').Finding, place: import('../engine/functions.js').Box, milliseconds: number}} Seen
 */

/** @type {Record<string, (output: import('../engine/types.js').Output, result: any) => import('./findings.js').Finding>} */
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
    if (kind === 'areas' && long.length !== 2) throw fail(`The output ${wanted} is no map: [${output.shape.join(', ')}]`, 'Areas are found in maps [1, 1, height, width]');
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

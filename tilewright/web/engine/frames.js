// Pictures as inputs: turns `{frame, scale, bias, fit}` of a run into an input that the device accepts.
// Input: a run's inputs, some with a `frame`.  Output: the run's result; or an `input` error. On WebGPU the worker samples a VideoFrame
// (gpu_frames.js); for WebAssembly this file reads pixels from a canvas.

import { EngineError } from './errors.js';
import { elementsOf, requireKnown } from './tensors.js';

/** For each fit, the scales of the picture's width and height. @type {Record<T.Fit, (x: number, y: number) => [number, number]>} */
const FITS = {
  stretch: (x, y) => [x, y],
  contain: (x, y) => [Math.min(x, y), Math.min(x, y)],
  cover: (x, y) => [Math.max(x, y), Math.max(x, y)],
};
/** Element types of inputs that accept pictures. */
const TAKES = ['f32', 'f16'];
/** Weights of red, green and blue for grey, as in JPEG (BT.601). */
const GREY = [0.299, 0.587, 0.114];

/** @type {T.RunOn} */
export async function runOn(run, info, inputs, options) {
  /** @type {{pixels: VideoFrame | null}[]} */
  const copies = [];
  try {
    const taken = Object.entries(inputs).map(([name, input]) => {
      if (!/** @type {any} */ (input)?.frame) return [name, input];
      const picture = pictureOf(requireKnown(name, info.inputs, 'input'), /** @type {T.FrameInput} */ (input));
      if (!info.adapter) return [name, { shape: picture.shape, data: pixelsOf(picture) }];
      const { frame: _, ...rest } = picture;
      const data = { ...rest, pixels: copyOf(picture), length: elementsOf(picture.shape) };
      copies.push(data);
      return [name, { shape: picture.shape, data }];
    });
    return await run(Object.fromEntries(taken), options);
  } finally {
    // The engine keeps the last run's inputs, and a message cannot contain a closed frame.
    for (const copy of copies) {
      copy.pixels?.close();
      copy.pixels = null;
    }
  }
}

/** The checked description of a picture; throws `input`. @type {T.PictureOf} */
function pictureOf({ name, dtype, shape: declared }, { frame, scale = 1, bias = 0, fit = 'stretch', shape = declared }) {
  const fail = (/** @type {string} */ problem, /** @type {string} */ hint, facts = {}) => new EngineError('input', `Input '${name}' ${problem}`, hint, { input: name, ...facts });
  const facts = { expected: declared, found: shape };
  const sizes = /** @type {number[]} */ (shape);
  if (!TAKES.includes(dtype)) throw fail(`takes no frame: its elements are ${dtype}`, `Frames become ${TAKES.join(' or ')}; give an array`, { dtype });
  if (!sizes.every((size) => Number.isInteger(size) && size > 0)) throw fail(`has open dimensions: [${shape.join(', ')}]`, 'Give the shape: {frame, shape}', facts);
  const [batch, ...rest] = sizes;
  const axis = [0, 2].find((at) => rest[at] === 3 || rest[at] === 1) ?? -1;
  if (sizes.length !== 4 || batch !== 1 || axis < 0) {
    throw fail(`takes no frame: its shape is [${shape.join(', ')}]`, 'Frames fit [1, 3, h, w], [1, 1, h, w], [1, h, w, 3] and [1, h, w, 1]', facts);
  }
  const channels = rest[axis];
  const [height, width] = axis ? rest : rest.slice(1);
  const [scales, biases] = Object.entries({ scale, bias }).map(([part, given]) => {
    const numbers = typeof given === 'number' ? Array(channels).fill(given) : Array.from(given);
    if (numbers.length === channels && numbers.every(Number.isFinite)) return numbers;
    throw fail(`has a wrong ${part}: expected ${channels} numbers, found [${numbers.join(', ')}]`, `Give one number, or one for each of ${channels} channels`, { part, expected: channels, found: numbers });
  });
  if (!Object.hasOwn(FITS, fit)) throw fail(`has an unknown fit '${fit}'`, `Use ${Object.keys(FITS).join(', ')}`, { fit });
  const [own, high] = sizeOf(frame);
  if (!(own && high)) throw fail('has a frame without a picture: it is closed, or not loaded', 'Give an open VideoFrame or ImageBitmap, or an element that has its picture');
  return {
    name, frame, shape: sizes, width, height, channels, last: axis > 0, scale: scales, bias: biases,
    box: placeOf(fit, [own, high], [width, height]),
  };
}

/** Left, top, width and height of a picture in an input; pages use it to draw results over the picture. @type {T.PlaceOf} */
export function placeOf(fit, [own, high], [width, height]) {
  const [x, y] = FITS[fit](width / own, height / high);
  return [(width - own * x) / 2, (height - high * y) / 2, own * x, high * y];
}

/** Width and height of any picture, 0 if it has none. @param {any} frame @returns {[number, number]} */
export const sizeOf = (frame) => [frame.displayWidth ?? frame.videoWidth ?? frame.naturalWidth ?? frame.width, frame.displayHeight ?? frame.videoHeight ?? frame.naturalHeight ?? frame.height];

/** @type {(name: string, job: () => any) => any} */
function orRefused(name, job) {
  try {
    return job();
  } catch (error) {
    throw new EngineError('input', `The frame of input '${name}' cannot be read: ${/** @type {Error} */ (error).message}`,
      'Give a VideoFrame, ImageBitmap, video, image or canvas of this origin', { input: name });
  }
}

/** Another reference to the picture, which the engine closes. @type {(picture: T.Picture) => VideoFrame} */
const copyOf = ({ name, frame }) => orRefused(name, () => (
  frame instanceof VideoFrame ? frame.clone() : new VideoFrame(/** @type {any} */ (frame), { timestamp: 0, alpha: 'discard' })));

/** @type {(picture: T.Picture) => Float32Array} */
function pixelsOf({ name, frame, width, height, channels, last, scale, bias, box }) {
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false, willReadFrequently: true }));
  const { data: bytes } = orRefused(name, () => {
    context.drawImage(/** @type {any} */ (frame), ...box);
    return context.getImageData(0, 0, width, height);
  });
  const area = width * height;
  const [step, stride] = last ? [channels, 1] : [1, area];
  const array = new Float32Array(area * channels);
  for (let channel = 0; channel < channels; channel++) {
    const factor = scale[channel] / 255, offset = bias[channel];
    const weights = channels > 1 ? GREY.map((_, colour) => Number(colour === channel)) : GREY;
    for (let pixel = 0, at = channel * stride; pixel < area; pixel++, at += step) {
      const colour = 4 * pixel;
      array[at] = (bytes[colour] * weights[0] + bytes[colour + 1] * weights[1] + bytes[colour + 2] * weights[2]) * factor + offset;
    }
  }
  return array;
}

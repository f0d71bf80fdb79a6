// Where pictures come from: the camera, a file, a sample that is drawn here.
// Input: a choice of the person.  Output: a source of frames, or an error in words.  It shows nothing and runs no model.

import { EngineError } from '../engine/engine.js';
import { shrunk } from './picture_model.js';

/**
 * `next`: the newest frame, which the caller closes with `done`; null once the source has ended.  `still`: there is only one.
 * @typedef {import('./picture_model.js').Frame} Frame
 * @typedef {{name: string, still: boolean, next: () => Promise<Frame | null>, done: (frame: Frame) => void, end: () => void}} Source
 */

/** Pixels of the longer side: as many as the page can show. */
const LARGEST = 1280;
/** Enough for models of a few hundred pixels; browsers may give another size. */
const CAMERA_SIZE = { width: { ideal: 640 }, height: { ideal: 480 } };

/** What the browser's refusals mean, by name. @type {Record<string, [string, string]>} */
const REFUSALS = {
  NotAllowedError: ['The camera is not allowed for this page', 'Allow it in the browser, or open a picture'],
  NotFoundError: ['There is no camera on this device', 'Open a picture, or look at the sample'],
  NotReadableError: ['The camera does not start', 'Close other programs that use it, or open a picture'],
};

/**
 * Frames of the camera, each once.  Rejects with an EngineError.
 * @param {(why: string) => void} onend called when the camera ends by itself
 * @returns {Promise<Source>}
 */
export async function cameraSource(onend) {
  if (!navigator.mediaDevices) throw new EngineError('host', 'The browser gives this page no camera', 'Browsers want https or localhost for that; open a picture instead');
  const stream = await navigator.mediaDevices.getUserMedia({ video: { ...CAMERA_SIZE, facingMode: 'environment' } }).catch((error) => {
    const [message, hint] = REFUSALS[error.name] ?? [`The camera does not start: ${error.message}`, 'Open a picture instead'];
    throw new EngineError('host', message, hint, { name: error.name });
  });
  const [track] = stream.getVideoTracks();
  // Browsers slow down what is not in the page.
  const video = Object.assign(document.createElement('video'), { className: 'hidden', srcObject: stream, muted: true, playsInline: true, ariaHidden: 'true' });
  document.body.append(video);
  /** @type {PromiseWithResolvers<null>} */
  const ended = Promise.withResolvers();
  const end = () => {
    track.stop();
    video.remove();
    ended.resolve(null);
  };
  track.addEventListener('ended', () => {
    end();
    onend('The camera has ended');
  });
  video.play().catch(() => {});
  /** Resolves once there is a frame that was not taken yet. @type {PromiseWithResolvers<true>} */
  let fresh = Promise.withResolvers();
  const note = () => {
    fresh.resolve(true);
    video.requestVideoFrameCallback(note);
  };
  video.requestVideoFrameCallback(note);
  async function next() {
    if (!(await Promise.race([ended.promise, fresh.promise]))) return null;
    fresh = Promise.withResolvers();
    // On WebGPU a VideoFrame needs no copy.
    return globalThis.VideoFrame ? new VideoFrame(video) : createImageBitmap(video);
  }
  return { name: track.label || 'Camera', still: false, end, next, done: (frame) => /** @type {VideoFrame} */ (frame).close() };
}

/** Rejects with an EngineError if it is not a picture. @param {File} file */
export async function fileSource(file) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new EngineError('input', `${file.name} is not a picture that this browser can read`, 'Open a JPEG, PNG or WebP', { type: file.type });
  });
  return stillSource(file.name, await shrunk(bitmap, LARGEST));
}

/** A street with signs: something to read and to look at. */
export function sampleSource() {
  const canvas = Object.assign(document.createElement('canvas'), { width: 640, height: 480 });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const box = (/** @type {string} */ colour, /** @type {[number, number, number, number]} */ ...place) => {
    context.fillStyle = colour;
    context.fillRect(...place);
  };
  const words = (/** @type {string} */ text, /** @type {number} */ size, /** @type {string} */ colour, /** @type {number} */ x, /** @type {number} */ y) => {
    context.font = `700 ${size}px sans-serif`;
    context.textAlign = 'center';
    context.fillStyle = colour;
    context.fillText(text, x, y);
  };
  box('#bcd7ea', 0, 0, 640, 480);
  box('#8a8f94', 0, 420, 640, 60);
  box('#c9694a', 60, 70, 330, 350);
  box('#3d2b24', 85, 95, 280, 64);
  words('BOOKSHOP', 40, '#fff4e2', 225, 142);
  box('#f4e7c6', 85, 190, 150, 150);
  words('New', 34, '#7a2f1a', 160, 245);
  words('arrivals', 28, '#7a2f1a', 160, 285);
  box('#5c3a2c', 265, 190, 95, 230);
  box('#f5f5f0', 280, 240, 65, 34);
  words('open', 22, '#2c5a3c', 312, 264);
  box('#5d6066', 508, 190, 10, 230);
  box('#1f5fa8', 430, 110, 170, 90);
  words('Station', 34, '#ffffff', 515, 150);
  words('400 m', 26, '#ffffff', 515, 185);
  return stillSource('Sample', canvas);
}

/** @param {string} name @param {Frame} picture @returns {Source} */
const stillSource = (name, picture) => ({ name, still: true, next: async () => picture, done: () => {}, end: () => {} });

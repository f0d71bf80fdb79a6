// Shows a picture with what the model found in it, and how fast.
// Input: a frame, what was seen in it, and the source.  Output: #picture, #seen, #results and #rate.

import { sizeOf } from '../engine/frames.js';
import { element, make } from './elements.js';
import { countText, timeText } from './formatting.js';

/**
 * @typedef {import('./picture_model.js').Seen} Seen
 * @typedef {import('./findings.js').Areas} Areas
 * @typedef {import('./findings.js').Labels} Labels
 */

/** Red, green, blue and opacity of what was found, on any picture. */
const TINT = [240, 110, 50, 130];
const [LINE, EDGE] = ['#ff5a1f', '#ffffff'];
/** Frames whose rate is shown. */
const RATED = 30;

/** When the last frames were shown. @type {number[]} */
let shown = [];

/** @param {import('./picture_model.js').Frame} frame @param {Seen} seen @param {import('./picture_sources.js').Source} source */
export function showSeen(frame, { finding, place, milliseconds }, { name, still }) {
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
export function forgetRate() {
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

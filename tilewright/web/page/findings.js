// From a model's output to what a person sees: areas of a map, or labels with their shares.
// Input: an output, and `result` of camera.json.  Output: a finding.  It touches no element and knows no picture.

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

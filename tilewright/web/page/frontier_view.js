// Draws the frontier: the critical model's slowdown to the right, normal work upwards, a curve for each policy.
// Input: points, which slowdown, a bound.  Output: an SVG of the figure's width in #frontier, with every point, and a legend.

import { best } from './corun_results.js';
import { draw, drawText, element, make } from './elements.js';

/** @typedef {import('./corun_results.js').Point} Point */

/** Where ticks may stand; the axis of slowdowns is logarithmic. */
const RATIOS = [1, 1.05, 1.1, 1.2, 1.4, 1.6, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
const SHARES = [0, 0.25, 0.5, 0.75, 1];
const HEIGHT = 380;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 18, 14, 44];
/** Pixels between ticks, at least. */
const APART = 34;
/** Colours are told apart by shapes, too. */
const SHAPES = [disc, square, triangle, diamond];

/**
 * @param {Point[]} points
 * @param {{measure: import('./corun_results.js').Measure, words: string, bound: number | null, policies: string[]}} how `bound`:
 *   drawn as a line;  `policies`: all that there are, so that each keeps its colour
 */
export function showFrontier(points, { measure, words, bound, policies }) {
  const figure = element('frontier');
  const width = Math.max(figure.clientWidth, 240);
  const slowdowns = [...points.map((point) => point[measure]), ...(bound ? [bound] : [])];
  const [low, high] = [Math.min(1, ...slowdowns), Math.max(1.2, ...slowdowns) * 1.04];
  const top = Math.max(1, ...points.map(({ normal_share }) => normal_share)) * 1.03;
  const x = (/** @type {number} */ ratio) => LEFT + Math.log(ratio / low) / Math.log(high / low) * (width - LEFT - RIGHT);
  const y = (/** @type {number} */ share) => HEIGHT - BOTTOM - share / top * (HEIGHT - TOP - BOTTOM);
  const chart = draw('svg', { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': `Normal work against the critical model's slowdown, ${words}` });
  let room = 0;
  for (const ratio of RATIOS.filter((one) => one >= low && one <= high && x(one) <= width - RIGHT)) {
    chart.append(draw('path', { class: 'grid', d: `M${x(ratio)} ${TOP}V${HEIGHT - BOTTOM}` }));
    if (x(ratio) < room) continue;
    room = x(ratio) + APART;
    chart.append(drawText(x(ratio), HEIGHT - BOTTOM + 16, `${ratio}×`, 'middle'));
  }
  for (const share of SHARES) {
    chart.append(draw('path', { class: 'grid', d: `M${LEFT} ${y(share)}H${width - RIGHT}` }), drawText(LEFT - 6, y(share) + 4, `${100 * share} %`, 'end'));
  }
  chart.append(drawText((LEFT + width - RIGHT) / 2, HEIGHT - 8, `slowdown, ${words}`, 'middle'));
  if (bound) chart.append(draw('path', { class: 'bound', d: `M${x(bound)} ${TOP}V${HEIGHT - BOTTOM}` }));
  const series = Map.groupBy(points, ({ policy }) => policy);
  for (const [policy, of] of series) {
    const number = policies.indexOf(policy);
    const line = draw('g', { class: `policy-${number % 9}`, 'data-policy': policy });
    line.append(draw('path', { class: 'curve', d: `M${best(of, measure).map((point) => `${x(point[measure])} ${y(point.normal_share)}`).join('L')}` }));
    for (const point of of) {
      const mark = draw('path', { class: 'mark', d: SHAPES[number % SHAPES.length](x(point[measure]), y(point.normal_share), 4.5) });
      mark.append(Object.assign(draw('title', {}), { textContent: saying(point, measure) }));
      line.append(mark);
    }
    chart.append(line);
  }
  figure.replaceChildren(chart);
  element('frontier-legend').replaceChildren(...[...series.keys()].map((policy) => legendOf(policy, policies.indexOf(policy))));
}

/** @param {Point} point @param {import('./corun_results.js').Measure} measure */
function saying({ policy, max_slowdown, normal_share, ...point }, measure) {
  const given = max_slowdown === null ? '' : `, bound ${max_slowdown}×`;
  return `${policy}${given}: ${point[measure].toFixed(3)}×, ${(100 * normal_share).toFixed(1)} % normal work`;
}

/** @param {string} policy @param {number} number */
function legendOf(policy, number) {
  const sign = draw('svg', { width: 14, height: 14, class: `policy-${number % 9}`, 'aria-hidden': 'true' });
  sign.append(draw('path', { class: 'mark', d: SHAPES[number % SHAPES.length](7, 7, 5) }));
  return make('li', {}, sign, policy);
}

/** @param {number} x @param {number} y @param {number} r */
function disc(x, y, r) {
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}

/** @param {number} x @param {number} y @param {number} r */
function square(x, y, r) {
  return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`;
}

/** @param {number} x @param {number} y @param {number} r */
function triangle(x, y, r) {
  return `M${x} ${y - r}l${r} ${1.8 * r}h${-2 * r}Z`;
}

/** @param {number} x @param {number} y @param {number} r */
function diamond(x, y, r) {
  return `M${x} ${y - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}Z`;
}

// Draws which model ran on which multiprocessor at what time: a row for each multiprocessor, a colour for each model.
// Input: spans of a trace.  Output: an SVG in #timeline with a path for each task, and a legend.

import { draw, drawText, element, make } from './elements.js';

/** @typedef {import('./corun_results.js').Span} Span */

const [LEFT, RIGHT, TOP, BOTTOM] = [48, 12, 6, 26];
/** Pixels of a lane, between rows, and of the picture's width at least. */
const [LANE, GAP, LEAST] = [4, 5, 720];
const TICKS = 5;

/** @param {Span[]} spans */
export function showTimeline(spans) {
  const figure = element('timeline');
  const rows = [...Map.groupBy(spans, ({ sm }) => sm)].sort(([a], [b]) => a - b);
  const width = Math.max(figure.clientWidth, LEAST);
  const end = spans.reduce((most, { begin, long }) => Math.max(most, begin + long), 0) || 1;
  const scale = (width - LEFT - RIGHT) / end;
  /** @type {Map<number, number>} */
  const tops = new Map();
  let height = TOP;
  const names = rows.map(([sm, of]) => {
    const lanes = 1 + of.reduce((most, { lane }) => Math.max(most, lane), 0);
    tops.set(sm, height);
    height += lanes * LANE + GAP;
    return drawText(LEFT - 6, height - GAP - lanes * LANE / 2 + 4, `SM ${sm}`, 'end');
  });
  const chart = draw('svg', { width, height: height + BOTTOM, role: 'img', 'aria-label': `What ran on ${rows.length} multiprocessors in ${end.toFixed(0)} microseconds` });
  for (let tick = 0; tick <= TICKS; tick++) {
    const at = LEFT + tick / TICKS * end * scale;
    const anchor = tick === TICKS ? 'end' : 'middle';
    chart.append(draw('path', { class: 'grid', d: `M${at} ${TOP}V${height}` }), drawText(at, height + 16, `${(tick / TICKS * end).toFixed(0)} µs`, anchor));
  }
  chart.append(...names);
  const tasks = tasksOf(spans);
  for (const [task, { look, of }] of tasks) {
    const boxes = of.map(({ sm, lane, begin, long }) => {
      const from = Math.max(begin, 0);
      const wide = Math.max(0.4, (begin + long - from) * scale);
      return `M${LEFT + from * scale} ${(tops.get(sm) ?? 0) + lane * LANE}h${wide}v${LANE - 0.5}h${-wide}Z`;
    });
    chart.append(draw('path', { class: `mark ${look}`, 'data-task': task, 'data-spans': of.length, d: boxes.join('') }));
  }
  figure.replaceChildren(chart);
  element('timeline-legend').replaceChildren(...[...tasks].map(([task, { look }]) => {
    const sign = draw('svg', { width: 12, height: 12, class: look, 'aria-hidden': 'true' });
    sign.append(draw('path', { class: 'mark', d: 'M0 0h12v12h-12Z' }));
    return make('li', {}, sign, task);
  }));
}

/** Critical tasks first, all in one colour. @param {Span[]} spans @returns {Map<string, {look: string, of: Span[]}>} */
function tasksOf(spans) {
  let normal = 0;
  const groups = [...Map.groupBy(spans, ({ task }) => task)].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }));
  groups.sort(([, [a]], [, [b]]) => Number(b.critical) - Number(a.critical));
  return new Map(groups.map(([task, of]) => [task, { look: of[0].critical ? 'policy-0' : `policy-${1 + normal++ % 8}`, of }]));
}

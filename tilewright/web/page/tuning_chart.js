// Draws latency against rounds of tuning, as nnJIT's Fig. 16: a falling line, and every trial as a point.
// Input: a tuning log.  Output: a chart by uPlot in #tuning-chart, and the same in words.
// A trial's point is at the latency expected with its kernel, so the line moves to adopted ones.  If the drawn bucket does not
// run that kernel, the point lies on the line.

import uPlot from '../vendor/uplot/uPlot.esm.js';
import { element } from './elements.js';

/** @typedef {import('./tuning_log.js').Outcome} Outcome */

const HEIGHT = 260;
/** Slower trials than this multiple of the highest latency are drawn at the top edge. */
const ROOM = 1.25;

/** @param {string} name */
const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * How each outcome is drawn: a colour, and a shape that can be told apart without colour.
 * @type {Record<Outcome, {name: string, colour: string, size: number, form: (path: Path2D, x: number, y: number, r: number) => void}>}
 */
const LOOKS = {
  adopted: { name: 'adopted', colour: '--good', size: 6, form: disc },
  same: { name: 'no difference', colour: '--soft', size: 3, form: disc },
  slower: { name: 'slower', colour: '--warn', size: 4.5, form: triangle },
  rejected: { name: 'rejected', colour: '--bad', size: 4.5, form: cross },
};
const OUTCOMES = /** @type {Outcome[]} */ (Object.keys(LOOKS));

export class TuningChart {
  #figure = element('tuning-chart');
  /** @type {uPlot | null} */
  #plot = null;

  constructor() {
    new ResizeObserver(() => this.#plot?.setSize(this.#size)).observe(this.#figure);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#plot?.redraw());
  }

  /** @param {import('./tuning_log.js').TuningLog} log */
  show(log) {
    const trials = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, log.trials.filter((trial) => trial.outcome === outcome).length]));
    Object.assign(this.#figure.dataset, { points: log.latencies.length, ...trials });
    this.#figure.setAttribute('aria-label', `Latency against rounds of tuning: ${log.text}`);
    const data = dataOf(log);
    if (this.#plot) this.#plot.setData(data);
    else this.#plot = new uPlot(this.#options, data, this.#figure);
  }

  clear() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  get #size() {
    return { width: Math.max(this.#figure.clientWidth, 200), height: HEIGHT };
  }

  /** @returns {ConstructorParameters<typeof uPlot>[0]} */
  get #options() {
    const font = '12px system-ui, sans-serif';
    const axis = { stroke: colour('--soft'), font, grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 } };
    return {
      ...this.#size,
      legend: { show: false },
      cursor: { show: false },
      padding: [12, 12, 0, 0],
      scales: { x: { time: false, range: (_, least, most) => [least ?? 0, Math.max(most ?? 1, (least ?? 0) + 8)] }, y: { range: rangeOf } },
      axes: [
        { ...axis, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
        { ...axis, size: 72, values: (_, splits) => splits.map((split) => `${split} ms`) },
      ],
      series: [
        {},
        { stroke: colour('--clay'), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        ...OUTCOMES.map(pointsOf),
      ],
    };
  }
}

/**
 * Data for uPlot: one row per event.  Trials repeat the last latency, so that the line extends to the last trial.
 * @param {import('./tuning_log.js').TuningLog} log
 */
function dataOf({ latencies, trials }) {
  const rows = [
    ...latencies.map(({ round, milliseconds }) => ({ round, milliseconds, outcome: null })),
    ...trials.filter(({ milliseconds }) => milliseconds > 0),
  ].sort((a, b) => a.round - b.round || Number(a.outcome === null) - Number(b.outcome === null));
  let now = latencies[0]?.milliseconds ?? null;
  const line = rows.map(({ outcome, milliseconds }) => (now = outcome === null ? milliseconds : now));
  const top = Math.max(...latencies.map(({ milliseconds }) => milliseconds)) * ROOM;
  const points = OUTCOMES.map((wanted) => rows.map(({ outcome, milliseconds }) => (outcome === wanted ? Math.min(milliseconds, top) : null)));
  return [rows.map(({ round }) => round), line, ...points];
}

/** The y range, with a small margin and not from zero, so that a gain of a few percent is visible. @type {(chart: uPlot, least: number | null, most: number | null) => [number, number]} */
function rangeOf(_, least, most) {
  if (least === null || most === null) return [0, 1];
  const margin = Math.max((most - least) * 0.08, most * 0.01);
  return [Math.max(0, least - margin), most + margin];
}

/** @param {Outcome} outcome */
function pointsOf(outcome) {
  const { name, colour: variable, size, form } = LOOKS[outcome];
  return {
    label: name,
    stroke: colour(variable),
    paths: () => null,
    points: {
      show: true, stroke: colour(variable), fill: colour(variable), width: form === cross ? 2 : 0.01,
      paths: (/** @type {uPlot} */ chart, /** @type {number} */ series, /** @type {number} */ first, /** @type {number} */ last) => {
        const path = new Path2D();
        for (let at = first; at <= last; at++) {
          const [x, y] = [chart.data[0][at], chart.data[series][at]];
          if (x !== null && y !== null) form(path, chart.valToPos(x, 'x', true), chart.valToPos(y, 'y', true), size * devicePixelRatio);
        }
        return { stroke: path, fill: path };
      },
    },
  };
}

/** @param {Path2D} path @param {number} x @param {number} y @param {number} r */
function disc(path, x, y, r) {
  path.moveTo(x + r, y);
  path.arc(x, y, r, 0, 2 * Math.PI);
}

/** @param {Path2D} path @param {number} x @param {number} y @param {number} r */
function triangle(path, x, y, r) {
  path.moveTo(x, y - r);
  path.lineTo(x + r, y + r * 0.8);
  path.lineTo(x - r, y + r * 0.8);
  path.closePath();
}

/** @param {Path2D} path @param {number} x @param {number} y @param {number} r */
function cross(path, x, y, r) {
  for (const way of [-1, 1]) {
    path.moveTo(x - r, y - way * r);
    path.lineTo(x + r, y + way * r);
  }
}

// Draws the latencies of the last runs as bars, with their median as a line.
// Input: runs, one by one.  Output: an inline SVG in #latency, and the same as text and attributes.
// It redraws at most once per frame.

import { draw, element } from './elements.js';
import { timeText } from './formatting.js';

const SHOWN = 60;
const WIDTH = 300;
const HEIGHT = 96;

/** `purpose`: the class of its bar. @typedef {{milliseconds: number, purpose: string}} Run */

export class LatencyView {
  /** @type {Run[]} */
  #runs = [];
  #total = 0;
  #frame = 0;

  /** @param {Run} run */
  add(run) {
    this.#runs = [...this.#runs, run].slice(-SHOWN);
    this.#total++;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  /** Forgets all runs: those of another device tell nothing of this one. */
  clear() {
    cancelAnimationFrame(this.#frame);
    this.#runs = [];
    this.#total = this.#frame = 0;
    element('latency-text').textContent = '';
    const figure = element('latency');
    figure.replaceChildren();
    Object.assign(figure.dataset, { runs: 0, last: '', median: '' });
  }

  #draw() {
    const times = this.#runs.map(({ milliseconds }) => milliseconds);
    const median = times.toSorted((a, b) => a - b)[times.length >> 1];
    const last = times[times.length - 1];
    const text = `median ${timeText(median)}, last ${timeText(last)}`;
    element('latency-text').textContent = text;
    const figure = element('latency');
    Object.assign(figure.dataset, { runs: this.#total, last, median });
    figure.replaceChildren(this.#chart(times, median, text));
  }

  /**
   * @param {number[]} times
   * @param {number} median
   * @param {string} text
   */
  #chart(times, median, text) {
    const chart = draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `Latency of the last ${times.length} runs: ${text}` });
    // The scale ends at three medians, so that a slow first run does not flatten the others.
    const top = Math.max(Math.min(Math.max(...times), median * 3), 1e-6) * 1.1;
    const y = (/** @type {number} */ time) => HEIGHT * (1 - Math.min(time, top) / top);
    const step = WIDTH / SHOWN;
    this.#runs.forEach(({ milliseconds, purpose }, at) => chart.append(draw('rect', {
      class: `bar ${purpose}`, x: at * step, y: y(milliseconds), width: step - 1.2, height: HEIGHT - y(milliseconds), rx: 1,
    })));
    chart.append(draw('line', { class: 'median', x1: 0, x2: WIDTH, y1: y(median), y2: y(median), 'vector-effect': 'non-scaling-stroke' }));
    return chart;
  }
}

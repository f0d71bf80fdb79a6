// Shows a tuning session: chart, table of kernels, a line of text, and the applicable buttons.
// Input: a tuning log and a state.  Output: elements of #tuning.  During a session it redraws at most once per frame.
// The chart library is loaded with the first session, not with the page.

import { element, make } from './elements.js';
import { bestOf, gainOf } from './tuning_log.js';

/**
 * @typedef {'idle' | 'running' | 'paused' | 'measuring' | 'done' | 'error'} TuningState
 * @typedef {import('./tuning_log.js').TuningLog} TuningLog
 * @typedef {import('./tuning_log.js').Slot} Slot
 */

/** Why a kernel keeps its default, in words. @type {Record<string, string>} */
const FIXED = { extents: 'not tuned: ends at run time' };

export class TuningView {
  /** @type {import('./tuning_chart.js').TuningChart | null} */
  #chart = null;
  #frame = 0;
  /** @type {TuningLog | null} */
  #log = null;
  #rows = new Map();

  /**
   * @param {TuningState} state
   * @param {string} text
   */
  state(state, text) {
    // A pause or an end must show all results up to then.
    if (state !== 'running') this.#flush();
    const section = element('tuning');
    const open = state === 'running' || state === 'paused';
    const busy = open || state === 'measuring';
    section.dataset.state = state;
    element('tune').hidden = busy;
    for (const id of ['tune-budget', 'tune-share', 'tune-forget', 'tune-measure']) element(id).disabled = busy;
    element('tune-pause').hidden = !open;
    element('tune-pause').textContent = state === 'paused' ? 'Resume' : 'Pause';
    element('tune-stop').hidden = !busy;
    // aria-busy: rounds pass too fast to be read out, only the end is.
    element('tuning-text').setAttribute('aria-busy', String(state === 'running'));
    element('tuning-text').textContent = text;
  }

  /** Shows the buttons for tuned kernels if there are any. @param {boolean} tuned */
  offer(tuned) {
    for (const id of ['tune-forget', 'tune-measure']) element(id).hidden = !tuned;
  }

  /** Shows a gain that was measured on request. @param {Gains.Gain} gain */
  told({ verdict, text }) {
    element('tuning').dataset.gain = verdict;
    this.state('done', text);
  }

  /** Prepares for a new session: clears chart and table. */
  async begin() {
    const { TuningChart } = await import('./tuning_chart.js');
    this.#chart ??= new TuningChart();
    this.#chart.clear();
    this.#rows.clear();
    element('tuning-rows').replaceChildren();
    element('tuning-results').hidden = false;
  }

  /** @param {TuningLog} log */
  show(log) {
    this.#log = log;
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  /** Draws now if a frame is pending. */
  #flush() {
    if (!this.#frame) return;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (this.#log) this.#draw(this.#log);
  }

  /** @param {TuningLog} log */
  #draw(log) {
    this.#chart?.show(log);
    Object.assign(element('tuning').dataset, { rounds: log.round, changed: log.changed, class: log.device, gain: log.gain?.verdict ?? '' });
    element('tuning-class').textContent = log.device;
    for (const slot of log.slots.values()) this.#row(slot);
  }

  /** @param {Slot} slot */
  #row(slot) {
    const row = this.#rows.get(slot.spec) ?? makeRow(slot);
    if (!this.#rows.has(slot.spec)) element('tuning-rows').append(row);
    this.#rows.set(slot.spec, row);
    const { change, tried, gflops, fixed } = slot;
    const cells = [
      change ? `default → #${change.candidate}${change.mark === 'extended' ? ' (extended)' : ''}` : FIXED[fixed] ?? (tried ? 'default' : '–'),
      change ? gainText(change.gain) : '–',
      gflops > 0 ? (gflops * gainOf(slot)).toFixed(1) : '–',
      String(tried),
    ];
    row.dataset.candidate = change ? change.candidate : 'default';
    row.classList.toggle('changed', change !== null);
    Array.from(row.cells).slice(-cells.length).forEach((cell, at) => (cell.textContent = cells[at]));
    row.cells[row.cells.length - cells.length].title = change?.schedule ?? '';
  }
}

/** @param {number | null} gain */
const gainText = (gain) => (gain === null ? 'not measured' : `${gain.toFixed(2)}×`);

/** @param {Slot} slot */
function makeRow({ spec, kind, shape, node, share }) {
  const name = make('th', { scope: 'row', title: node }, make('span', { textContent: kind }), make('span', { className: 'quiet', textContent: node }));
  const row = make('tr', {}, name, make('td', { textContent: shape }), make('td', { textContent: `${(share * 100).toFixed(1)} %` }),
    make('td', {}), make('td', {}), make('td', {}), make('td', {}));
  row.dataset.spec = String(spec);
  return row;
}

/** Describes the hello's fields in the preview before any message was sent; the classes are at /api/classes. */
const HELLO = {
  protocol: 1, bundle: "the model's name", digest: 'digest of its files', device: 'a device class', variant: 'its code variant', features: 'what kernels may use of the GPU', objective: 'latency',
  specs: 'numbers of its kernels', shares: 'shares of the time: 1, 1/4, 1/16 …', tried: 'candidates tried in this visit, if the connection was lost', skip: 'number of tries: 0, 16, 32, 64 …', check: false,
};

/**
 * Previews all messages to the server: what tuning always sends, and what it sends only if results are shared.
 * @param {TuningLog | null} log
 * @param {string} browser
 * @param {any[]} sent
 */
export function showPreview(log, browser, sent) {
  const of = (/** @type {string} */ name) => sent.filter(({ type }) => type === name);
  const or = (/** @type {any[]} */ told, /** @type {any[]} */ otherwise) => (told.length ? told : otherwise);
  const hellos = or(of('hello'), [{ type: 'hello', ...HELLO, browser }]);
  const wanted = of('want').reduce((sum, { count }) => sum + count, 0);
  const results = (log?.trials ?? []).filter(({ refuted }) => !refuted).map(({ spec, candidate, verdict }) => ({ type: 'result', spec, candidate, verdict }));
  const reports = [...log?.slots.values() ?? []].flatMap((slot) => {
    const top = bestOf(slot);
    return top.length ? [{ type: 'report', nonce: '32 random digits', spec: slot.spec, checksum: 'checksum of the space of candidates', top, gold: 'the answer to a gold question, if one was asked' }] : [];
  });
  const shown = {
    always: [...hellos, { type: 'want', count: wanted || 'number of candidates' }, { type: 'bye' }],
    'if shared': [...or(of('result'), results), ...or(of('report'), reports)],
  };
  element('tune-preview').textContent = JSON.stringify(shown, null, 1);
}

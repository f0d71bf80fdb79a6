// The tuning panel: starts, pauses and stops tuning of the loaded model, measures the gain, deletes tuned kernels.
// Input: clicks, an engine.  Output: events for the log and the view.  tune/tuner.js tunes, tune/exchange/gain.js measures the gain.
// The tuner's files are loaded on demand.

import { forget, restore } from '../tune/records/persist.js';
import { browserFamily } from '../tune/device/device_class.js';
import { rememberClass } from '../tune/device/visit.js';
import { countText, element, errorText } from './elements.js';
import { TuningLog } from './tuning_log.js';
import { showPreview, TuningView } from './tuning_view.js';

/** @typedef {import('../engine/types.js').Engine} Engine */

const SOCKET = '/api/tune';
const MEASURING = "Comparing tuned kernels with the bundle's own";

export class TuningPanel {
  #view = new TuningView();
  /** @type {TuningLog | null} */
  #log = null;
  /** Messages that the last session sent. @type {any[]} */
  #sent = [];
  #stop = new AbortController();
  /** Ends the check of the crowd's kernels: a session includes it. */
  #checked = new AbortController();
  #gate = new Gate();
  #running = false;
  #engine;

  /** @param {() => Engine | null} engine the model's engine, once it is loaded */
  constructor(engine) {
    this.#engine = engine;
    element('tune').addEventListener('click', () => this.start());
    element('tune-pause').addEventListener('click', () => this.#toggle());
    element('tune-stop').addEventListener('click', () => this.stop());
    element('tune-forget').addEventListener('click', () => this.#forget());
    element('tune-measure').addEventListener('click', () => this.#measure());
    element('tune-details').addEventListener('toggle', () => this.#preview());
  }

  /** Called when a model was loaded: swaps in tuned kernels of earlier visits, and has the crowd's checked. @param {Engine} engine */
  async restore(engine) {
    const restored = await restore(engine);
    element('tuning').hidden = false;
    this.#view.state('idle', restored ? `${countText(restored, 'tuned kernel')} from an earlier visit, gain not measured yet` : '');
    this.#view.offer(restored > 0);
    this.#check(engine).catch(() => {});
  }

  /** The page works without: the next visit tries again. @param {Engine} engine */
  async #check(engine) {
    this.#checked = new AbortController();
    const { check } = await import('../tune/check.js');
    const { signal } = this.#checked;
    await check(engine, { signal, report: element('tune-share').checked, onSend: (header) => this.#sent.push(header) });
  }

  async start() {
    const engine = this.#engine();
    if (!engine || this.#running) return;
    this.#running = true;
    this.#checked.abort();
    this.#stop = new AbortController();
    this.#gate.open();
    const log = this.#log = new TuningLog();
    this.#sent = [];
    this.#view.state('running', 'Starting');
    try {
      await this.#view.begin();
      const [{ tune }, { socketSource }] = await Promise.all([import('../tune/tuner.js'), import('../tune/sources/socket.js')]);
      await tune(engine, {
        source: gated(socketSource(SOCKET, (header) => this.#sent.push(header)), this.#gate),
        budget: Number(element('tune-budget').value),
        report: element('tune-share').checked,
        signal: this.#stop.signal,
        onEvent: (/** @type {Record<string, any>} */ event) => this.#take(log, event),
      });
      this.#view.state('done', `${this.#stop.signal.aborted ? 'Stopped' : 'Done'}: ${log.text}`);
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#running = false;
      if (log.tuned) this.#view.offer(true);
      this.#preview();
    }
  }

  /** Stops tuning; kernels adopted so far stay in use. */
  stop() {
    this.#stop.abort();
    this.#gate.open();
  }

  /**
   * @param {TuningLog} log
   * @param {Record<string, any>} event
   */
  #take(log, event) {
    if (event.type === 'start') rememberClass(event.class);
    log.take(event);
    this.#view.show(log);
    if (this.#gate.closed) return;
    if (log.paused) this.#view.state('running', `Waiting (${log.paused}): ${log.text}`);
    else if (!log.ended) this.#view.state('running', log.text);
  }

  /** Pauses or resumes; a running trial is finished first. */
  #toggle() {
    if (this.#gate.closed) this.#gate.open();
    else this.#gate.close();
    const paused = this.#gate.closed;
    this.#view.state(paused ? 'paused' : 'running', `${paused ? 'Paused: ' : ''}${this.#log?.text ?? ''}`);
  }

  /** Measures the gain of all tuned kernels, of this and earlier visits. */
  async #measure() {
    const engine = this.#engine();
    if (!engine || this.#running) return;
    this.#running = true;
    this.#stop = new AbortController();
    this.#view.state('measuring', MEASURING);
    try {
      const { measureGain } = await import('../tune/exchange/gain.js');
      const onEvent = (/** @type {Record<string, any>} */ { type, pairs }) => {
        if (type === 'turns') this.#view.state('measuring', `${MEASURING}: ${countText(pairs, 'pair')}`);
      };
      this.#view.told(await measureGain(engine, { signal: this.#stop.signal, onEvent }));
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#running = false;
    }
  }

  async #forget() {
    const engine = this.#engine();
    try {
      if (engine) await forget(engine);
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#view.offer(false);
    this.#view.state('idle', "Deleted: the bundle's own kernels are in use again");
  }

  /** @param {unknown} error */
  #fail(error) {
    const { message, hint } = errorText(error);
    this.#view.state('error', `${message}. ${hint}`);
  }

  #preview() {
    if (element('tune-details').open) showPreview(this.#log, browserFamily(), this.#sent);
  }
}

/** Holds back the next candidate while the user pauses. */
class Gate {
  /** @type {PromiseWithResolvers<void> | null} */
  #held = null;

  get closed() {
    return this.#held !== null;
  }

  close() {
    this.#held ??= Promise.withResolvers();
  }

  open() {
    this.#held?.resolve();
    this.#held = null;
  }

  passed() {
    return this.#held?.promise;
  }
}

/**
 * A source whose next candidate waits for the gate.  If a newer call of `next` arrives meanwhile (of a restarted session),
 * the older one resolves with null.
 * @param {Tune.Source} source
 * @param {Gate} gate
 * @returns {Tune.Source}
 */
export function gated(source, gate) {
  let turn = 0;
  return {
    ...source,
    async next() {
      const mine = ++turn;
      await gate.passed();
      return mine === turn ? source.next() : null;
    },
  };
}

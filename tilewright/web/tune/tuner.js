// The tuning session: kernels get faster while a page uses the model.
// Input: an engine, a source of candidates, a budget.  Output: events, a summary, an engine with faster kernels.  A candidate is adopted
// only if it computes the default's results and is faster beyond the noise, first in a worker with its own memory, then in the engine.
// active_session.js does the work; this file decides when, and has the session's states.

import { asEngineError, EngineError } from '../engine/errors.js';
import { requireOptions } from '../engine/tensors.js';
import { withSessionLock } from './loop/session_lock.js';
import { LATENCY, OBJECTIVES } from './loop/objective.js';
import { hear, makePace, shown } from './loop/pace.js';
import { ActiveSession, summaryOf } from './loop/active_session.js';

const OPTIONS = 'absence, budget, check, device, objective, onEvent, patience, report, rounds, seconds, signal, source, specs';

/** For each state, the states that may follow it. @type {Record<Tune.SessionState, Tune.SessionState[]>} */
const FOLLOWING = {
  created: ['waiting', 'ended'],
  waiting: ['opening', 'ended'],
  opening: ['timing', 'choosing', 'closing', 'resting', 'ended'],
  timing: ['choosing', 'closing'],
  choosing: ['trying', 'confirming', 'closing'],
  trying: ['adopting', 'timing', 'choosing', 'closing'],
  adopting: ['timing', 'choosing', 'closing'],
  confirming: ['timing', 'closing'],
  closing: ['resting', 'ended'],
  resting: ['waiting', 'ended'],
  ended: [],
};

/** @type {Tune.Tune} */
export const tune = async (engine, options) => new TuningSession(engine, options).run();

/** The session that `tune` runs.  A page that creates one itself can see its state. */
export class TuningSession {
  /** @type {T.Engine} */
  #engine;

  /** The page's options, completed by defaults. @type {Tune.SessionOptions} */
  #options;

  /** @type {Tune.SessionState} */
  #state = 'created';

  /** Results so far; they are kept while another tab tunes. @type {Tune.Story} */
  #story = { rounds: 0, spent: 0, latency: null, gain: null, changed: new Map(), won: new Map(), effects: new Map() };

  /** Ends the session: the page's signal fired, the engine was disposed, or its worker died. */
  #stop = new AbortController();

  /** Throws `input` for bad options. @param {T.Engine} engine @param {Tune.Options} options */
  constructor(engine, options) {
    requireOptions('tune', options, OPTIONS);
    const { objective = LATENCY, budget = 0.05, onEvent = () => {} } = options;
    if (!(budget > 0)) throw new EngineError('input', `budget must be above 0, found ${budget}`, 'Give a share of the time, such as 0.05; 1 is all of it', { budget });
    if (!OBJECTIVES.includes(objective)) throw new EngineError('input', `Unknown objective: ${objective}`, `Choose one of ${OBJECTIVES.join(', ')}`, { objective });
    this.#engine = engine;
    this.#options = { ...options, objective, budget, onEvent };
  }

  /** The session's present state. */
  get state() {
    return this.#state;
  }

  /** Runs the session, once; resolves and rejects as `tune` does. */
  async run() {
    if (this.#state !== 'created') throw new EngineError('input', 'A tuning session runs once', 'Make another one');
    const { signal, source, onEvent } = this.#options;
    const cancel = () => this.#stop.abort(signal?.reason);
    if (signal?.aborted) cancel();
    signal?.addEventListener('abort', cancel);
    // -1: the engine was disposed, or its worker died.
    const deaf = hear(this.#engine, (open) => open < 0 && this.#stop.abort());
    let summary = summaryOf(this.#story);
    try {
      for (let again = false; !this.#stop.signal.aborted; again = true) {
        this.#enter('waiting');
        const turn = await this.#turn(again);
        summary = turn.summary ?? summary;
        if (!turn.left) break;
        await this.#rest();
      }
    } catch (error) {
      throw asEngineError(error);
    } finally {
      this.#enter('ended');
      deaf();
      source.close();
      signal?.removeEventListener('abort', cancel);
    }
    onEvent({ type: 'end', summary });
    return summary;
  }

  /** The only place where the state changes. @param {Tune.SessionState} state */
  #enter(state) {
    if (state === this.#state) return;
    if (!FOLLOWING[this.#state].includes(state)) throw new Error(`A tuning session cannot go from ${this.#state} to ${state}`);
    this.#state = state;
  }

  /** Waits until no other session tunes the bundle; then works until the end, or until the bundle is left to another tab. @type {Tune.TakeTurn} */
  async #turn(again) {
    const { onEvent } = this.#options;
    const leaving = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, leaving.signal]);
    const work = (/** @type {boolean} */ waited) => this.#work(signal, () => leaving.abort(), again || waited);
    const summary = await withSessionLock(this.#engine, signal, onEvent, work).catch(unlessOver(signal));
    return { summary, left: leaving.signal.aborted };
  }

  /** `leave`: leaves the bundle to another tab; `anew`: another tab may have found winners. @type {Tune.SessionWork} */
  async #work(signal, leave, anew) {
    this.#enter('opening');
    const { budget, absence, ...options } = this.#options;
    const pace = makePace({ engine: this.#engine, budget, signal, onEvent: options.onEvent, leave, absence, spent: this.#story.spent });
    try {
      const enter = (/** @type {Tune.SessionState} */ state) => this.#enter(state);
      const active = await ActiveSession.open({ engine: this.#engine, options, story: this.#story, pace, signal, enter }, anew);
      return await active.run();
    } finally {
      pace.end();
    }
  }

  /** Leaves the bundle to another tab while this page is hidden for long; returns when it is visible. */
  async #rest() {
    this.#enter('resting');
    await shown(this.#stop.signal).then(() => this.#options.onEvent({ type: 'resumed' }), unlessOver(this.#stop.signal));
  }
}

/** Ignores errors after an abort. @param {AbortSignal} signal */
const unlessOver = (signal) => (/** @type {unknown} */ error) => {
  if (!signal.aborted) throw error;
};

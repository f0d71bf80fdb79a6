// Decides when tuning may work: within its budget, never while a run is open, not in a hidden tab.
// Input: jobs of the engine, visibility of the page, milliseconds spent.  Output: promises to wait for.
//
// Runs often follow each other closely, and a trial in between would delay the next one.  So tuning waits until the engine was idle for
// QUIET.  A page that runs the model for each camera frame, or without pause, is never idle that long: then tuning uses the gap after one
// run in EACH, however short it is.

import { tunedOf } from '../records/engine_state.js';

/** Milliseconds of idle time: longer than a frame at 25 per second, shorter than a person notices. */
const QUIET = 45;
/** Milliseconds without such idle time after which short gaps are used. */
const BUSY = 2000;
/**
 * The least runs, and milliseconds, between two such gaps.  A trial stops about 2 ms after a run began, so less than one run in twenty is
 * delayed.
 */
const EACH = 40;
const SPACE = 100;
/** Milliseconds of work in one piece; also the most that can be saved up. */
const PIECE = 50;
/** The most milliseconds between two checks, in case an event was missed; also the most that a jump of the clock counts. */
const NAP = 2000;
/** Milliseconds after which a hidden page lets another tab tune. */
const ABSENCE = 30_000;
/** Size of the window of run times per plan. */
const RECENT = 15;

/** Resolves after `milliseconds`; rejects with the signal's reason as soon as it fires. @type {Tune.Sleep} */
export const sleep = (milliseconds, signal) => new Promise((resolve, reject) => {
  signal.throwIfAborted();
  const stop = () => {
    clearTimeout(timer);
    reject(signal.reason);
  };
  const timer = setTimeout(() => {
    signal.removeEventListener('abort', stop);
    resolve();
  }, milliseconds);
  signal.addEventListener('abort', stop);
});

/** Settles like the promise, or rejects with the signal's reason if that fires first. @type {Tune.Unless} */
export const unless = (promise, signal) => new Promise((resolve, reject) => {
  const stop = () => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop);
  promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
});

/** Adds a listener for an engine's jobs; returns a function that removes it.  Listeners may be removed in any order. @type {Tune.Hear} */
export function hear(engine, hearer) {
  const tuned = tunedOf(engine);
  const known = tuned.hearers ??= listen(engine);
  known.all.add(hearer);
  return () => {
    known.all.delete(hearer);
    if (known.all.size) return;
    tuned.hearers = null;
    Object.defineProperty(engine, 'onjob', { value: known.page, writable: true });
  };
}

/**
 * Turns `onjob` into a property that calls the page's callback and all listeners.  The page may still replace it, and its
 * new callback may call the one it replaced: only the outermost call reaches the listeners.
 * @param {T.Engine} engine
 */
function listen(engine) {
  /** @type {Tune.Hearers} */
  const known = { all: new Set(), page: engine.onjob };
  let latest = engine.onjob;
  const set = (/** @type {T.Engine['onjob']} */ page) => {
    known.page = page;
    /** @type {T.Engine['onjob']} */
    const tell = latest = (...news) => {
      page(...news);
      if (tell === latest) for (const hearer of [...known.all]) hearer(...news);
    };
  };
  set(engine.onjob);
  Object.defineProperty(engine, 'onjob', { get: () => latest, set, enumerable: true, configurable: true });
  return known;
}

const isHidden = () => globalThis.document?.visibilityState === 'hidden';

/** Resolves as soon as the page is visible; rejects when the signal fires. @param {AbortSignal} signal */
export const shown = (signal) => unless(new Promise((resolve) => {
  const look = () => isHidden() || resolve(null);
  globalThis.document?.addEventListener('visibilitychange', look, { signal });
  look();
}), signal);

/** @type {Tune.MakePace} */
export function makePace({ engine, budget, signal, onEvent, leave = () => {}, spent = 0, absence = ABSENCE }) {
  /** By plan, milliseconds of the page's latest runs. @type {Map<number, number[]>} */
  const runs = new Map();
  let trials = { pause(/** @type {boolean} */ _on) {} };
  /** Jobs in the engine's queue, and how many of them are the tuner's. */
  let [open, own] = [0, 0];
  /** Milliseconds since the start, without jumps of the clock; and the clock at the last tick. */
  let [elapsed, clock] = [0, performance.now()];
  /** `elapsed` when the page last used the engine, and when the engine had last been idle for QUIET. */
  let [active, calm] = [-Infinity, 0];
  /** Whether a short gap is in use; `elapsed` at the last one; runs since then. */
  let [lent, lentAt, since] = [false, 0, 0];
  /** Milliseconds of work that the budget allows; once they are used up, tuning rests until a whole PIECE is saved. */
  let [credit, resting] = [PIECE, false];
  /** Whether a trial is in progress, and whether it was paused. */
  let [trying, paused] = [false, false];
  let latest = -1;
  /** @type {(() => void)[]} */
  let waiting = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let absent;

  function tick() {
    const now = performance.now();
    const passed = Math.min(Math.max(0, now - clock), NAP);
    clock = now;
    elapsed += passed;
    if (trying && !paused) credit -= passed;
    if (!isHidden()) credit = Math.min(PIECE, credit + budget * passed);
    if (!open && elapsed - active >= QUIET) calm = elapsed;
  }

  /** Milliseconds until tuning may continue, or until the next check; 0: now. */
  function rest() {
    if (open || isHidden()) return NAP;
    const left = active + QUIET - elapsed;
    if (left > 0 && !lent) return left;
    if (budget >= 1) return 0;
    resting = credit <= 0 || (resting && credit < PIECE);
    return resting ? (PIECE - credit) / budget : 0;
  }

  function look() {
    clearTimeout(timer);
    tick();
    let wait = rest();
    paused = wait > 0;
    trials.pause(paused);
    if (!paused) {
      waiting.forEach((go) => go());
      waiting = [];
      if (trying && budget < 1) wait = credit;
    }
    // Without a timer, paused trials would never continue.
    if (wait) timer = setTimeout(look, Math.min(NAP, Math.ceil(wait)));
  }

  /** A run of the page began or ended. */
  function turned() {
    active = elapsed;
    lent = !open && ++since >= EACH && elapsed - calm > BUSY && elapsed - lentAt >= SPACE;
    if (lent) [lentAt, since] = [elapsed, 0];
  }

  function seen() {
    onEvent(isHidden() ? { type: 'paused', why: 'hidden' } : { type: 'resumed' });
    clearTimeout(absent);
    if (isHidden()) absent = setTimeout(leave, absence);
    look();
  }

  /** Adds to the time spent; ignores times from a clock that jumped. @param {number} milliseconds */
  function spend(milliseconds) {
    if (!(milliseconds > 0 && milliseconds < Infinity)) return 0;
    spent += milliseconds;
    return milliseconds;
  }

  const deaf = hear(engine, (now, plan, milliseconds) => {
    if (now < 0) return;
    tick();
    open = now;
    if (!own || plan !== undefined) turned();
    if (plan !== undefined && milliseconds !== undefined) {
      latest = plan;
      runs.set(plan, [...runs.get(plan) ?? [], milliseconds].slice(-RECENT));
    }
    look();
  });
  globalThis.document?.addEventListener('visibilitychange', seen);
  if (isHidden()) seen();

  return {
    get spent() {
      return spent;
    },

    /** The plan of the page's last run, or -1. */
    get latest() {
      return latest;
    },

    recent: (plan) => runs.get(plan) ?? [],

    forgetRuns: () => runs.clear(),

    /** Registers the trials to pause while tuning must wait. */
    guard(given) {
      trials = given;
      look();
    },

    spend(milliseconds) {
      credit -= spend(milliseconds);
    },

    /** Waits until there is time for tuning. */
    async turn() {
      signal.throwIfAborted();
      await unless(new Promise((resolve) => {
        waiting.push(() => resolve(null));
        look();
      }), signal);
    },

    /** Runs a trial; its time counts, except for pauses. */
    async trial(work) {
      trying = true;
      look();
      try {
        const outcome = await unless(work(), signal);
        spend(outcome.milliseconds);
        return outcome;
      } finally {
        tick();
        trying = false;
      }
    },

    /** Runs a job of the tuner in the engine's queue, within the budget or `now`; its time counts. */
    async job(work, now = false) {
      if (!now) await this.turn();
      signal.throwIfAborted();
      const from = performance.now();
      own++;
      try {
        // Not raced against the signal: a swap and its bookkeeping must finish together.
        return await work();
      } finally {
        own--;
        this.spend(performance.now() - from);
      }
    },

    end() {
      clearTimeout(timer);
      clearTimeout(absent);
      deaf();
      globalThis.document?.removeEventListener('visibilitychange', seen);
    },
  };
}

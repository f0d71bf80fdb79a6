// When tuning may go on: within its share of the time, never while a run waits, not in a hidden tab.
// Input: what the engine and the page are doing, milliseconds that were spent.  Output: promises to wait for.
//
// After a run the next one often comes at once, and a trial would lie on its start.  So tuning waits until the page
// has left the engine alone for `QUIET`.  A page that runs the model for each picture of a camera, or on and on, never
// does: such a page lends the gap behind one run in `EACH`, however short it is.

/** Milliseconds without a run: more than a picture takes at 25 per second, less than a person notices. */
const QUIET = 45;
/** Milliseconds without such rest after which gaps are lent. */
const BUSY = 2000;
/** Runs and milliseconds from one such gap to the next: a trial rests some 2 ms after a run began, and of twenty runs less than one may feel it. */
const EACH = 40;
const SPACE = 100;
/** Milliseconds of work in one piece.  No more than one is saved up. */
const PIECE = 50;
/** Milliseconds after which states are looked at again, whatever was missed; a clock that jumps counts no more. */
const NAP = 2000;
/** Milliseconds after which a hidden page makes room for another tab. */
const ABSENCE = 30_000;
/** Runs of a plan whose times are kept. */
const RECENT = 15;

/** Resolves after so many milliseconds; rejects at once when the signal fires. @type {Tune.Sleep} */
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

/** What the promise gives, or the signal's reason if that comes first. @type {Tune.Unless} */
export const unless = (promise, signal) => new Promise((resolve, reject) => {
  const stop = () => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop);
  promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
});

/** Of each engine, who hears of its jobs besides the page. @type {WeakMap<T.Engine, Tune.Hearers>} */
const heard = new WeakMap();

/** Hears of an engine's jobs until the function that it gives is called, in whatever order others come and go. @type {Tune.Hear} */
export function hear(engine, hearer) {
  const known = heard.get(engine) ?? listen(engine);
  known.all.add(hearer);
  heard.set(engine, known);
  return () => {
    known.all.delete(hearer);
    if (known.all.size) return;
    heard.delete(engine);
    Object.defineProperty(engine, 'onjob', { value: known.page, writable: true });
  };
}

/** What the page puts there meanwhile is told beside the hearers, and may call what it found there. @param {T.Engine} engine */
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

/** Resolves while the page is visible. @param {AbortSignal} signal */
export const shown = (signal) => unless(new Promise((resolve) => {
  const look = () => isHidden() || resolve(null);
  globalThis.document?.addEventListener('visibilitychange', look, { signal });
  look();
}), signal);

/** @type {Tune.MakePace} */
export function makePace({ engine, budget, signal, onEvent, leave = () => {}, spent = 0, absence = ABSENCE }) {
  /** Of each plan, milliseconds of the page's own latest runs. @type {Map<number, number[]>} */
  const runs = new Map();
  let trials = { pause(/** @type {boolean} */ _on) {} };
  /** Jobs in the engine's queue, and how many of them are the tuner's. */
  let [open, own] = [0, 0];
  /** Milliseconds since the beginning, and when the clock was looked at. */
  let [elapsed, clock] = [0, performance.now()];
  /** When the page last used the engine, and when it last left it alone for `QUIET`. */
  let [active, calm] = [-Infinity, 0];
  /** Whether this gap is lent, when the last one was, and runs since then. */
  let [lent, lentAt, since] = [false, 0, 0];
  /** Milliseconds of work that the budget allows now; once they are used up, a whole piece is waited for. */
  let [credit, resting] = [PIECE, false];
  /** Whether there is a trial, and whether it was told to rest. */
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

  /** Milliseconds until tuning may go on, or until it is worth to look again; 0: now. */
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
    // Trials rest until the next look, whoever waits for them.
    if (wait) timer = setTimeout(look, Math.min(NAP, Math.ceil(wait)));
  }

  /** The page's last run has ended, or another began. */
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

  /** @param {number} milliseconds a clock that jumped counts nothing */
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

    /** These trials rest while tuning has to. */
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

    /** A trial: it counts while it goes on, and rests in between. */
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

    /** A job of the tuner's own in the engine's queue, in its turn or `now`; its time counts. */
    async job(work, now = false) {
      if (!now) await this.turn();
      signal.throwIfAborted();
      const from = performance.now();
      own++;
      try {
        // What changes the engine is never left half-way: who ends it sees so after the bookkeeping.
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

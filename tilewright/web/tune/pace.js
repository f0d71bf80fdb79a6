// When tuning may go on: within its share of the time, never while a run waits, not in a hidden tab.
// Input: what the engine and the page are doing, milliseconds that were spent.  Output: promises to wait for.

/** Milliseconds of one nap: states are looked at again after it. */
const NAP = 200;
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

/** @type {Tune.MakePace} */
export function makePace({ engine, budget, stop, onEvent }) {
  const { signal } = stop;
  const before = engine.onjob;
  /** Of each plan, milliseconds of the page's own latest runs. @type {Map<number, number[]>} */
  const runs = new Map();
  let trials = { pause(/** @type {boolean} */ _on) {} };
  let [open, own, spent, elapsed] = [0, 0, 0, 0];
  let clock = performance.now();
  let latest = -1;
  const hidden = () => globalThis.document?.visibilityState === 'hidden';
  const busy = () => open > own;
  let wake = () => {};

  /** Milliseconds since the beginning, but for jumps back. */
  function passed() {
    const now = performance.now();
    elapsed += Math.max(0, now - clock);
    clock = now;
    return elapsed;
  }

  function look() {
    trials.pause(busy() || hidden());
    if (!busy() && !hidden()) wake();
  }

  function visible() {
    onEvent(hidden() ? { type: 'paused', why: 'hidden' } : { type: 'resumed' });
    look();
  }

  engine.onjob = (now, plan, milliseconds) => {
    before(now, plan, milliseconds);
    if (now < 0) return stop.abort();
    open = now;
    if (plan !== undefined && milliseconds !== undefined) {
      latest = plan;
      runs.set(plan, [...runs.get(plan) ?? [], milliseconds].slice(-RECENT));
    }
    return look();
  };
  globalThis.document?.addEventListener('visibilitychange', visible);
  if (hidden()) visible();

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

    /** These trials rest while a run waits. */
    guard(given) {
      trials = given;
      look();
    },

    /** A clock that jumped counts nothing. */
    spend(milliseconds) {
      if (milliseconds > 0 && milliseconds < Infinity) spent += milliseconds;
    },

    /** Waits until there is time for tuning. */
    async turn() {
      for (;;) {
        signal.throwIfAborted();
        if (busy() || hidden()) {
          await unless(Promise.race([new Promise((resolve) => (wake = () => resolve(null))), sleep(10 * NAP, signal)]), signal);
          continue;
        }
        const owed = spent / budget - passed();
        if (budget >= 1 || owed <= 0) return;
        await sleep(Math.min(owed, NAP), signal);
      }
    },

    /** A job of the tuner's own in the engine's queue; its time counts. */
    async job(work) {
      signal.throwIfAborted();
      const from = performance.now();
      own++;
      try {
        return await unless(work(), signal);
      } finally {
        own--;
        this.spend(performance.now() - from);
        look();
      }
    },

    end() {
      engine.onjob = before;
      globalThis.document?.removeEventListener('visibilitychange', visible);
    },
  };
}

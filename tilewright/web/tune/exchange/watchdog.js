// Detects that a job of an engine does not end.  A kernel that loops forever only after its trial would block the model; guard.js then ends
// it. Input: an engine, its jobs, and how long its slowest run took.  Output: one call, and a second one if the job still goes on.  Runs
// that the page holds back do not count.

/** Milliseconds between two checks.  Checks are counted, not time, since the device may sleep. */
const LOOK = 500;
/** The least milliseconds that a job may take. */
const TIMEOUT = 5000;
/** The multiple of the page's slowest run so far that a job may take: the tuner times many runs in one job. */
const TIMES = 50;
/** Operations per millisecond that every device can do, for models that have not run yet. */
const SLOW = 1e5;

/**
 * A function through which jobs pass.  It calls `act` when none of them has ended for too long; once more, with true, if that did not help.
 * @type {Tune.Watch}
 */
export function watch({ info: { plans } }, held, slowest, act) {
  const least = Math.max(TIMEOUT, ...plans.map(({ flops }) => flops / SLOW));
  let [acts, times, open, silent] = [0, 1, 0, 0];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  function rest() {
    clearInterval(timer);
    timer = undefined;
  }
  function look() {
    if (held()) silent = 0;
    if (++silent * LOOK < Math.max(least, TIMES * slowest()) * times) return;
    silent = 0;
    if (acts < 2) act(acts++ > 0);
  }
  return async (job, runs = 1) => {
    open++;
    times = Math.max(times, runs / TIMES);
    timer ??= setInterval(look, LOOK);
    try {
      return await job;
    } finally {
      silent = acts = 0;
      if (!--open) {
        times = 1;
        rest();
      }
    }
  };
}

// The worker's clock: its resolution, and how long a timed batch must take because of it.
// Output: milliseconds; NaN for an implausible time.  The page's device_class.js needs it without a worker's other code.

/** Ticks of the clock per batch. */
const TICKS = 20;
/** The least and the most milliseconds of a batch. */
const SHORTEST = 0.4;
const LONGEST = 20;

/** Milliseconds to measure the resolution. */
const PROBE = 4;
/** The most readings for that, in case the clock does not advance. */
const LOOKS = 200_000;

/** Milliseconds of the smallest step of the clock; 1 if it did not advance. */
export function resolution() {
  let finest = Infinity;
  const start = performance.now();
  let last = start;
  for (let look = 0; look < LOOKS && last - start < PROBE; look++) {
    const now = performance.now();
    if (now > last) finest = Math.min(finest, now - last);
    if (now !== last) last = now;
  }
  return Number.isFinite(finest) ? finest : 1;
}

/** Milliseconds of a timed batch, for a clock of this resolution. @param {number} finest */
export const batchMilliseconds = (finest) => Math.min(LONGEST, Math.max(SHORTEST, TICKS * finest));

/** Milliseconds of the work; NaN unless above 0 and below `most`: otherwise the clock jumped or did not advance. @type {Tune.Timed} */
export function timed(work, most) {
  const start = performance.now();
  work();
  const spent = performance.now() - start;
  return spent > 0 && spent < most ? spent : NaN;
}

// The clock of a worker: how fine it is, and how long what is timed must take for it.
// Input: nothing but the clock.  Output: milliseconds; NaN for a time that cannot be true.

/** Ticks of the clock in the shortest batch, and bounds of its length in milliseconds. */
const TICKS = 20;
const SHORTEST = 0.4;
const LONGEST = 20;

/** Looks at the clock for at most so many milliseconds, or so often if it stands still. */
const PROBE = 4;
const LOOKS = 200_000;

/** The smallest step of the clock that was seen; 1 if it never moved on. */
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

/** @param {number} finest */
export const batchMilliseconds = (finest) => Math.min(LONGEST, Math.max(SHORTEST, TICKS * finest));

/** Milliseconds of the work, at most `most`; NaN if the clock says what cannot be. @type {Tune.Timed} */
export function timed(work, most) {
  const start = performance.now();
  work();
  const spent = performance.now() - start;
  return spent > 0 && spent < most ? spent : NaN;
}

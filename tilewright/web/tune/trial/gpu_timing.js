// Timing in the trial worker on WebGPU: warm-up, rough times, and pairs of times of two kernels.
// Input: kernels; for pairs they must be warm.  Output: milliseconds of a kernel; pairs of times.  A submission runs a kernel many times.
// It is timed by timestamps if the device has them, otherwise by waiting for it.

import { yieldNow } from './yielding.js';
import { resolution } from './clock.js';
import { hasStamps, timed, touch } from './gpu_trial_memory.js';
import { median } from './statistics.js';

/** Milliseconds to which browsers round timestamps. */
const ROUNDED = 0.1;
/** Milliseconds of a batch: by timestamps; and by waiting, which itself takes up to a millisecond. */
const [STAMPED, WAITED] = [3, 12];
/** The least and the most milliseconds of warm-up; the number of measurements without a new minimum that ends it. */
const [WARM_LEAST, WARM_MOST, FLAT] = [10, 60, 3];
/** Measurements of a rough time, and the milliseconds that end it. */
const [QUICK_LOOKS, QUICK_MOST] = [3, 60];
/** The most runs of a kernel in one submission, and the factor by which they may grow at a time. */
const [MOST_TIMES, GROWTH] = [2048, 8];
/** Milliseconds of a kernel above which fewer rounds are compared. */
const LONG = 40;
/** Interrupted pairs, minus good ones, above which the page's gaps count as too short for pairs. */
const BROKEN = 3;

/** Resolution of the clock in milliseconds. */
export let finest = 1;
let batch = WAITED;

/** Measures the clock's resolution; called before anything is timed. */
export function readClock() {
  finest = hasStamps() ? ROUNDED : resolution();
  batch = hasStamps() ? STAMPED : Math.max(WAITED, 20 * finest);
}

/** The number of a kernel's runs in a batch. @param {number} time of one run */
const timesIn = (time) => Math.max(1, Math.min(MOST_TIMES, Math.round(batch / Math.max(time, 1e-4))));

/** The number of runs in each kernel's latest batch, with which the next measurement starts. @type {WeakMap<Tune.GpuRunner, number>} */
const reached = new WeakMap();

/** Milliseconds of one run, in batches that grow to their length; resolves with each time. @param {Tune.GpuRunner} runner @param {(times: number[], spent: number) => boolean} enough */
async function looks(runner, enough) {
  /** @type {number[]} */
  const found = [];
  let [times, spent] = [reached.get(runner) ?? 1, 0];
  while (!enough(found, spent)) {
    const time = await timed(runner, times) || batch / MOST_TIMES;
    spent += time;
    if (time >= batch / 2 || times >= MOST_TIMES) found.push(time / times);
    else times = Math.min(GROWTH * times, timesIn(time / times));
    await yieldNow();
  }
  reached.set(runner, times);
  return found;
}

/** Runs a kernel until its times stop falling; resolves with the best. @type {Tune.Warm} */
export async function warm(runner) {
  const found = await looks(/** @type {Tune.GpuRunner} */ (runner), (times, spent) => {
    const best = Math.min(...times);
    const flat = times.length > FLAT && times.slice(-FLAT).every((time) => time > 0.97 * best);
    return times.length > 0 && (spent > WARM_MOST || (spent > WARM_LEAST && flat));
  });
  return Math.min(...found);
}

/** The time of a single run, without compilation. @type {Tune.ColdEstimate} */
export async function coldEstimate(runner) {
  await touch(runner);
  const spent = await timed(/** @type {Tune.GpuRunner} */ (runner), 1) || 0;
  await yieldNow();
  return { whole: spent, spent };
}

/** A rough time of a warm kernel, in milliseconds. @type {Tune.WarmEstimate} */
export const warmEstimate = async (runner) => median(await looks(/** @type {Tune.GpuRunner} */ (runner),
  (times, spent) => times.length >= QUICK_LOOKS || (times.length > 0 && spent > QUICK_MOST)));

/**
 * Measures pairs: one kernel, then the other.  Resolves with null after a pause, and for an invalid time.  If gaps between runs of the page
 * are too short for pairs, a first side that was not interrupted is kept for the next attempt.
 * @type {Tune.PairsOf}
 */
export function pairsOf(first, second, times) {
  const runners = /** @type {Tune.GpuRunner[]} */ ([first, second]);
  const repeats = times.map(timesIn);
  /** Milliseconds of one side; NaN if a pause interrupted it. */
  const side = async (/** @type {number} */ which) => {
    const time = await timed(runners[which], repeats[which]) / repeats[which];
    return await yieldNow() ? NaN : time;
  };
  /** Interrupted pairs, minus good ones; the first side of such a pair, or NaN. */
  let [broken, kept] = [0, NaN];
  return {
    parts: 1,
    long: times[0] + times[1] > LONG,
    async measure(_, order) {
      const early = kept > 0 ? kept : await side(order);
      const late = early > 0 ? await side(1 - order) : NaN;
      const good = late > 0;
      broken = Math.min(BROKEN + 1, Math.max(0, broken + (good ? -1 : 1)));
      kept = good || broken <= BROKEN ? NaN : early;
      if (!good) return null;
      return order ? { first: late, second: early } : { first: early, second: late };
    },
  };
}

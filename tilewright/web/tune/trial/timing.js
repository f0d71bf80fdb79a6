// Timing in the trial worker: warm-up, rough times, and pairs of times of two kernels.
// Input: kernels; for pairs they must be warm.  Output: milliseconds of all tiles; pairs of times.

import { batchMilliseconds, resolution, timed } from './clock.js';
import { median } from './statistics.js';
import { YIELD_MS, yieldNow, yieldIfDue } from './yielding.js';

/** Milliseconds of one measurement, a group of calls that is timed as one sample. */
const LOOK = 3;
/** Maximum milliseconds of warm-up. */
const WARM_MOST = 160;
/** The most milliseconds of warm-up if measurements are few and long. */
const WARM_LIMIT = 480;
/** Minimum milliseconds of warm-up. */
const WARM_LEAST = 20;
/** A kernel slower than the other one by this factor may not be optimised yet. */
const WARM_SLOW = 1.6;
/** The number of measurements without a new minimum that ends the warm-up. */
const FLAT = 4;

/** Ticks of the clock from which on a single time is precise enough. */
const SURE_TICKS = 4;
/** The milliseconds that are assumed for a call shorter than a tick. */
const TINY = 1e-3;
/** Maximum runs in one timed batch. */
const MOST_RUNS = 2 ** 16;

/** Minimum calls of a rough measurement. */
const QUICK_LEAST = 7;
/** Maximum milliseconds of a rough measurement. */
const QUICK_MOST = 50;
/** Multiple of its expected time above which a batch is discarded. */
const ABSURD = 200;

/** Resolution of the clock in milliseconds. */
export let finest = 1;
/** Milliseconds of a batch. */
let batch = 1;

/** Measures the clock's resolution; called before anything is timed. */
export function readClock() {
  finest = resolution();
  batch = batchMilliseconds(finest);
}

/**
 * A function that times some tiles per call, and more with each call until that takes several ticks of the clock: a single tile or run may
 * be far shorter than one tick.
 * @type {Tune.GrowingBatches}
 */
function growingBatches(runner) {
  const { tiles, run } = /** @type {Tune.WasmRunner} */ (runner);
  const enough = Math.max(LOOK / 8, SURE_TICKS * finest);
  let [at, size] = [0, 1];
  return () => {
    const [from, to, times] = [at, Math.min(tiles, at + size), Math.max(1, Math.floor(size / tiles))];
    const time = timed(() => {
      for (let n = 0; n < times; n++) run(from, to);
    }, WARM_MOST * ABSURD) || 0;
    at = to % tiles;
    if (time < enough) size = Math.min(2 * size, MOST_RUNS * tiles);
    // A clock that does not advance must not block the worker forever.
    return { time, spent: time || (size < MOST_RUNS * tiles ? TINY : LOOK), count: times * (to - from), sure: time >= enough };
  };
}

/** Runs a kernel until its times stop falling; resolves with the best.  `other`: time of a kernel known to be warm, or NaN. @type {Tune.Warm} */
export async function warm(runner, other) {
  const next = growingBatches(runner);
  let [spent, flat] = [0, 0];
  let best = Infinity;
  for (let looks = 0; spent < WARM_MOST || (looks <= FLAT && spent < WARM_LIMIT); looks++) {
    let looked = 0;
    let count = 0;
    while (looked < LOOK) {
      const found = next();
      count += found.count;
      looked += found.spent;
      await yieldIfDue();
    }
    spent += looked;
    const now = looked / count * runner.tiles;
    flat = now < 0.97 * best ? 0 : flat + 1;
    best = Math.min(best, now);
    if (flat >= FLAT && spent > WARM_LEAST && (other ? best < WARM_SLOW * other : spent > 3 * WARM_LEAST)) break;
  }
  return best;
}

/**
 * Measures pairs: one kernel, then the other, on the same part of their tiles.  Resolves with null after a pause, which
 * leaves caches cold, and for an implausible time.
 * @type {Tune.PairsOf}
 */
export function pairsOf(first, second, times) {
  const parts = Math.max(1, Math.min(first.tiles, second.tiles, Math.ceil(Math.max(...times) / Math.max(YIELD_MS, batch))));
  const repeats = times.map((time) => Math.max(1, Math.round(batch / (time / parts))));
  let cold = true;
  const side = (/** @type {number} */ which, /** @type {number} */ part) => {
    const { tiles, run } = /** @type {Tune.WasmRunner} */ (which ? second : first);
    const [from, to] = [Math.floor(tiles * part / parts), Math.floor(tiles * (part + 1) / parts)];
    const expected = times[which] / parts * repeats[which];
    const time = timed(() => {
      for (let n = 0; n < repeats[which]; n++) run(from, to);
    }, ABSURD * Math.max(expected, batch));
    return time / repeats[which];
  };
  return {
    parts,
    long: times[0] + times[1] > 2 * YIELD_MS,
    async measure(part, order) {
      if (cold) {
        side(1 - order, part);
        if (await yieldNow()) return null;
      }
      const early = side(order, part);
      cold = await yieldNow();
      if (cold) return null;
      const late = side(1 - order, part);
      cold = await yieldNow();
      if (!(early > 0 && late > 0)) return null;
      return order ? { first: late, second: early } : { first: early, second: late };
    },
  };
}

/** The time of all tiles, estimated from the first few, whose code may still be cold. @type {Tune.ColdEstimate} */
export async function coldEstimate(runner) {
  const { tiles, run } = /** @type {Tune.WasmRunner} */ (runner);
  let [at, size, spent] = [0, 0, 0];
  while (at + size < tiles && spent < LOOK) {
    at += size;
    size = Math.min(tiles - at, 2 * size || 1);
    spent = timed(() => run(at, at + size), WARM_MOST * ABSURD) || 0;
    await yieldIfDue();
  }
  return { whole: spent / size * tiles, spent };
}

/** A rough time of all tiles of a warm kernel, in milliseconds. @type {Tune.WarmEstimate} */
export async function warmEstimate(runner) {
  const next = growingBatches(runner);
  const parts = [];
  let [total, count, spent] = [0, 0, 0];
  while ((total < LOOK || parts.length < QUICK_LEAST) && spent < QUICK_MOST) {
    const found = next();
    spent += found.spent;
    if (found.sure) {
      total += found.time;
      count += found.count;
      parts.push(found.time / found.count);
    }
    await yieldIfDue();
  }
  return parts.length ? Math.min(median(parts), total / count) * runner.tiles : QUICK_MOST;
}

// Timing in the trial worker: warm-up, rough times, and pairs of times of two kernels.
// Input: kernels; for pairs they must be warm.  Output: milliseconds of all tiles; pairs of times.

import { batchMilliseconds, resolution, timed } from './clock.js';
import { median } from './statistics.js';
import { BREATH, breathe, breatheIfDue } from './breath.js';

/** Milliseconds of one look, a group of calls that is timed as one sample. */
const LOOK = 3;
/** Maximum milliseconds of warm-up. */
const WARM_MOST = 160;
/** Maximum if looks are few and long. */
const WARM_LIMIT = 480;
/** Minimum milliseconds of warm-up. */
const WARM_LEAST = 20;
/** A kernel slower than the other one by this factor may not be optimised yet. */
const WARM_SLOW = 1.6;
/** Looks without a new minimum that end the warm-up. */
const FLAT = 4;

/** Minimum calls of a rough measurement. */
const QUICK_LEAST = 7;
/** Maximum milliseconds of one. */
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

/** Runs a kernel until its times stop falling; resolves with the best.  `other`: time of a kernel known to be warm, or NaN. @type {Tune.Warm} */
export async function warm(runner, other) {
  const { tiles, run } = /** @type {Tune.WasmRunner} */ (runner);
  let [at, step, spent, flat] = [0, 1, 0, 0];
  let best = Infinity;
  for (let looks = 0; spent < WARM_MOST || (looks <= FLAT && spent < WARM_LIMIT); looks++) {
    let looked = 0;
    let count = 0;
    while (looked < LOOK) {
      const end = Math.min(tiles, at + step);
      const time = Math.max(timed(() => run(at, end), WARM_MOST * ABSURD) || 0, 1e-3);
      count += end - at;
      at = end % tiles;
      looked += time;
      if (time < LOOK / 8 && step < tiles) step = Math.min(tiles, step * 2);
      await breatheIfDue();
    }
    spent += looked;
    const now = looked / count * tiles;
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
  const parts = Math.max(1, Math.min(first.tiles, second.tiles, Math.ceil(Math.max(...times) / Math.max(BREATH, batch))));
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
    long: times[0] + times[1] > 2 * BREATH,
    async measure(part, order) {
      if (cold) {
        side(1 - order, part);
        if (await breathe()) return null;
      }
      const early = side(order, part);
      cold = await breathe();
      if (cold) return null;
      const late = side(1 - order, part);
      cold = await breathe();
      if (!(early > 0 && late > 0)) return null;
      return order ? { first: late, second: early } : { first: early, second: late };
    },
  };
}

/** A rough time of all tiles of a warm kernel, in milliseconds. @type {Tune.Quick} */
export async function quick(runner) {
  const { tiles, run } = /** @type {Tune.WasmRunner} */ (runner);
  const parts = [];
  let [at, step, total, count] = [0, 1, 0, 0];
  while ((total < LOOK || parts.length < QUICK_LEAST) && total < QUICK_MOST) {
    const end = Math.min(tiles, at + step);
    const spent = timed(() => run(at, end), Infinity);
    if (spent > 0) {
      total += spent;
      count += end - at;
      parts.push(spent / (end - at));
    } else total += 0.05;
    at = end % tiles;
    if (!(spent > LOOK / 8)) step = Math.min(tiles, step * 2);
    await breatheIfDue();
  }
  return (parts.length ? Math.min(median(parts), total / Math.max(count, 1)) : total) * tiles;
}

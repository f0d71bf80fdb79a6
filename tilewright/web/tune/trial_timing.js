// Timing in the trial worker: until a kernel is warm, roughly, and two of them in turn.
// Input: kernels that are right.  Output: milliseconds of all tiles; a ratio and its interval.

import { batchMilliseconds, resolution, timed } from './clock.js';
import { judged, median } from './statistics.js';
import { BREATH, breathe, breatheAfter } from './trial_breath.js';

/** Warming up, milliseconds: the length of one look, when to stop at the latest, and before which
 * time no look counts; a kernel that is still so much slower than the other one may not be optimised yet. */
const LOOK = 3;
const WARM_MOST = 160;
const WARM_LEAST = 20;
const WARM_SLOW = 1.6;
/** So many looks without a new best end it. */
const FLAT = 4;

/** Pairs, or rounds of parts, before the first verdict; most pairs of each part. */
const PAIRS_LEAST = 10;
const PAIRS_MOST = 80;
const ROUNDS_LEAST = 2;
/** Rounds of parts without which nothing is called faster: of few parts, and of many. */
const [ROUNDS_FEW, ROUNDS_MANY, MANY] = [4, 3, 16];
/** What cannot gain this much, and does not look as if it gained at all, is not looked at for longer. */
const WORTH = 1.03;
/** After so many times as long it is given up even without a first verdict: something else has the core. */
const HOPELESS = 4;
/** Times that cannot be true, before it is given up. */
const DISCARDS = 40;
/** Calls by which a kernel is measured roughly, and milliseconds that they may take. */
const QUICK_LEAST = 7;
const QUICK_MOST = 100;
/** A batch that takes so many times what it should is no measurement. */
const ABSURD = 200;

/** The smallest step of the clock, and milliseconds of a batch. */
export let finest = 1;
let batch = 1;

export function readClock() {
  finest = resolution();
  batch = batchMilliseconds(finest);
}

/** Runs until the time per tile falls no more; `other` is that of a kernel known to be warm. @type {Tune.Warm} */
export async function warm(runner, other) {
  const { tiles, run } = runner;
  let [at, step, spent, flat] = [0, 1, 0, 0];
  let best = Infinity;
  for (let looks = 0; spent < WARM_MOST || looks <= FLAT; looks++) {
    let looked = 0;
    let count = 0;
    while (looked < LOOK) {
      const end = Math.min(tiles, at + step);
      const time = Math.max(timed(() => run(at, end), WARM_MOST * ABSURD) || 0, 1e-3);
      count += end - at;
      at = end % tiles;
      looked += time;
      if (time < LOOK / 8 && step < tiles) step = Math.min(tiles, step * 2);
      if (time >= LOOK / 8 || step >= tiles) await breatheAfter(time);
    }
    spent += looked;
    const now = looked / count * tiles;
    flat = now < 0.97 * best ? 0 : flat + 1;
    best = Math.min(best, now);
    if (flat >= FLAT && spent > WARM_LEAST && (other ? best < WARM_SLOW * other : spent > 3 * WARM_LEAST)) break;
  }
  return best;
}

/** Both kernels in turn, until the interval decides or the time is over. @type {Tune.Compare} */
export async function compare(first, second, times, margin, over) {
  const parts = Math.max(1, Math.min(first.tiles, second.tiles, Math.ceil(times[0] / BREATH)));
  const repeats = times.map((time) => Math.max(1, Math.round(batch / (time / parts))));
  const least = parts > 1 ? ROUNDS_LEAST * parts : PAIRS_LEAST;
  const enough = parts > 1 ? (parts < MANY ? ROUNDS_FEW : ROUNDS_MANY) * parts : PAIRS_LEAST;
  /** @type {Tune.Pair[]} */
  const pairs = [];
  let [discards, turn] = [0, 0];
  const side = (/** @type {number} */ which, /** @type {number} */ part) => {
    const { tiles, run } = which ? second : first;
    const [from, to] = [Math.floor(tiles * part / parts), Math.floor(tiles * (part + 1) / parts)];
    const expected = times[which] / parts * repeats[which];
    const time = timed(() => {
      for (let n = 0; n < repeats[which]; n++) run(from, to);
    }, ABSURD * Math.max(expected, batch));
    return time / repeats[which];
  };
  for (;;) {
    const part = turn % parts;
    const order = (turn + Math.floor(turn / parts)) % 2;
    const early = side(order, part);
    const broken = await breathe();
    const late = side(1 - order, part);
    if (broken || !(early > 0) || !(late > 0)) {
      // After a pause caches are cold: such a pair says nothing.
      if (!broken && ++discards > DISCARDS) break;
      if (broken) side(order, part);
      await breathe();
      continue;
    }
    pairs.push(order ? { part, first: late, second: early } : { part, first: early, second: late });
    turn++;
    await breathe();
    if (pairs.length < least && over(HOPELESS)) break;
    if (pairs.length < least || pairs.length % (parts > 1 ? parts : 2)) continue;
    const { ratio, low, high } = judged(pairs, parts);
    const sure = pairs.length >= enough;
    if (high < margin || (ratio < margin && high < WORTH) || (sure && (low > margin || ratio < 1 || pairs.length >= PAIRS_MOST * parts || over())) || over(HOPELESS)) break;
  }
  return { ...judged(pairs, parts), parts, sure: pairs.length >= enough, pairs: pairs.length, discards };
}

/** Milliseconds of all tiles of a warm kernel, roughly. @type {Tune.Quick} */
export async function quick({ tiles, run }) {
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
    await breatheAfter(spent || 0);
  }
  return (parts.length ? Math.min(median(parts), total / Math.max(count, 1)) : total) * tiles;
}

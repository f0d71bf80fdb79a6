// How many pairs of times it takes to know which of two kernels is faster.
// Input: a function that measures one pair, the time that is left.  Output: verdict, ratio, interval.
// What wins is measured again, from new pairs only: of many candidates the luckiest looks best, and its
// first figures flatter it.  It has no clock.

import { judged, median, SURE } from './statistics.js';

/** Rounds before which nothing is given up, most rounds, and how sure each of the two verdicts is.  Both
 * must err for a mistake; rounds of much work take long, so that they are fewer. */
const SHORT = { least: 10, most: 80, sure: SURE };
const LONG = { least: 4, most: 80, sure: 2.4 };
/** What is long is given up if after so many rounds of that many pairs its ratio is below this, and that of half of the pairs, too: each
 * kernel was the first one as often, and what is given up by mistake costs a gain, nothing else. */
const POOR = [0, 0.985, 0.995, 1];
const MANY = 30;
/** What cannot gain this much, and does not look as if it gained at all, is not looked at for longer. */
const WORTH = 1.03;
/** After so many times as long it is given up even without an interval: something else has the core. */
const HOPELESS = 6;
/** Pairs that were interrupted, or timed by a clock that jumped: so many, and two for each good one. */
const LOST = 40;

/** So many of many parts, from all regions of the work, say enough if they are so many times apart: whatever
 * differs between parts of two schedules, it does not differ by that much. */
const SOME = 10;
const WIDE = 2;
/** What need not be faster may look so much slower. */
const EVEN = 0.99;
const NOTHING = { ratio: NaN, low: NaN, high: NaN, first: NaN, second: NaN };

/** What some parts say, if that is clear. @type {Tune.Sweep} */
async function sweep(pair, parts) {
  const pairs = [];
  for (let at = 0; at < SOME; at++) {
    const found = await pair(Math.floor(parts * (at + 0.5) / SOME), at % 2);
    if (!found) return NOTHING;
    pairs.push(found);
  }
  const { first, second, ...found } = judged(pairs, 1, LONG.sure, WIDE);
  return found.low >= WIDE || found.high <= 1 / WIDE ? { ...found, first: parts * first, second: parts * second } : null;
}

/** Pairs until the interval lies on one side of the margin, or the time is over. @type {Tune.Compare} */
export async function compare({ measure, parts, long }, margin, over) {
  const { least, most, sure } = long ? LONG : SHORT;
  let [count, lost] = [0, 0];
  /** A good one, or null if there are hardly any. @param {number} part @param {number} order */
  const pair = async (part, order) => {
    for (;;) {
      const found = await measure(part, order);
      if (found) count++;
      if (found || ++lost > LOST + 2 * count) return found;
    }
  };
  const ended = (/** @type {Tune.Judgement} */ found) => ({ ...found, pairs: count, lost, undecided: Number.isNaN(found.ratio) });
  const clear = parts > SOME && await sweep(pair, parts);
  if (clear) return ended(clear);
  /** @type {Tune.Pair[]} */
  const pairs = [];
  for (;;) {
    const part = pairs.length % parts;
    const round = (pairs.length - part) / parts;
    const found = await pair(part, (part + round) % 2);
    if (!found) return ended(NOTHING);
    pairs.push(found);
    const rounds = Math.floor(pairs.length / parts);
    const hopeless = rounds >= LONG.least && over(HOPELESS);
    // In even numbers of rounds each kernel was the first one as often.
    if (!hopeless && (rounds < (long ? 1 : least) || pairs.length % (parts > 1 ? parts : 2))) continue;
    const verdict = judged(pairs, parts, sure);
    const { ratio, low, high } = verdict;
    if (!hopeless && rounds < least) {
      const usual = median(pairs.map(({ first, second }) => first / second));
      if (pairs.length >= MANY && Math.max(ratio, usual) < POOR[rounds]) return ended(verdict);
      continue;
    }
    const known = low > margin || high < margin || ratio < (long ? margin : 1) || (ratio < margin && high < WORTH);
    if (known || hopeless || rounds >= most || (high < Infinity && over(1))) return ended(verdict);
  }
}

/** Whether a kernel that need not be faster is as fast: its ratio, and no interval that lies below 1. @type {(found: Tune.Judgement) => boolean} */
const even = ({ ratio, high }) => ratio >= EVEN && high >= 1;

/**
 * The verdict on the second kernel, and whether it wins: faster, or as fast if it was granted something.  The figures are
 * those of the last comparison, as they were measured: only how soon it ends, and what it decides, depends on the grant.
 * @type {Tune.Contest}
 */
export async function contest(pairs, { margin, grant }, overs) {
  const helped = { ...pairs, measure: async (/** @type {number} */ part, /** @type {number} */ order) => {
    const found = await pairs.measure(part, order);
    return found && { ...found, first: grant * found.first };
  } };
  /** @type {(least: number, over: Tune.Over) => Promise<Tune.Compared>} */
  const ask = async (least, over) => {
    const { ratio, low, high, first, ...rest } = await compare(helped, least, over);
    return { ratio: ratio / grant, low: low / grant, high: high / grant, first: first / grant, ...rest };
  };
  const found = await ask(margin, overs[0]);
  if (!(found.low > margin / grant)) return { verdict: found.high < 1 ? 'slower' : 'same', wins: false, ...found };
  const again = await ask(1, overs[1]);
  const faster = again.low > 1 && again.ratio > margin;
  const wins = faster || (grant > 1 && again.low > 1 / grant && even(found) && even(again));
  return { verdict: faster ? 'faster' : 'same', wins, ...again };
}

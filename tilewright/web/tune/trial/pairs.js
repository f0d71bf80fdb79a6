// Sequential test: measures pairs of times until it is clear which of two kernels is faster.
// Input: a function that measures one pair, a time limit.  Output: verdict, ratio (first over second), interval.
// A winner is measured again from new pairs only, since the best of many candidates is partly lucky (winner's curse).
// It reads no clock itself.

import { judged, median, SURE } from './statistics.js';

/**
 * Minimum and maximum rounds, and the confidence of each of the two verdicts in standard deviations.  A wrong adoption needs
 * two wrong verdicts.  Rounds of long kernels take longer, so they are fewer.
 */
const SHORT = { least: 10, most: 80, sure: SURE };
const LONG = { least: 4, most: 80, sure: 2.4 };
/** By number of rounds: a long kernel is dropped early if both its ratio and the median ratio of its pairs are below this. */
const POOR = [0, 0.985, 0.995, 1];
/** Minimum number of pairs for that. */
const MANY = 30;
/** A kernel whose ratio is below the margin, and whose interval ends below this, is not measured further. */
const WORTH = 1.03;
/** Multiple of the time limit after which it gives up even without an interval: something else keeps the core busy. */
const HOPELESS = 6;
/** Maximum lost pairs (interrupted, or timed by a clock that jumped), plus two for each good one. */
const LOST = 40;

/** Number of parts that sweep() samples, evenly spread over the work. */
const SOME = 10;
/** Factor by which the kernels must differ in this sample to decide: single parts of equally fast schedules differ less. */
const WIDE = 2;
/** A kernel that need not be faster may have a ratio down to this. */
const EVEN = 0.99;
const NOTHING = { ratio: NaN, low: NaN, high: NaN, first: NaN, second: NaN };

/** Compares a sample of the parts; null unless the result is clear. @type {Tune.Sweep} */
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

/** Measures pairs until the interval lies on one side of the margin, or the time is over. @type {Tune.Compare} */
export async function compare({ measure, parts, long }, margin, over) {
  const { least, most, sure } = long ? LONG : SHORT;
  let [count, lost] = [0, 0];
  /** The next good pair, or null if too many were lost. @param {number} part @param {number} order */
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
    // Decides only when each kernel went first equally often.
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

/** Whether a kernel that need not be faster is as fast: neither its ratio nor its interval shows a loss. @type {(found: Tune.Judgement) => boolean} */
const even = ({ ratio, high }) => ratio >= EVEN && high >= 1;

/**
 * The verdict on the second kernel, and whether it wins: it is faster, or as fast and the bar has a grant (above 1).  The
 * grant affects decisions only: figures are as measured, from the last comparison.
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

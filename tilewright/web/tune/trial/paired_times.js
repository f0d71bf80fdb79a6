// Sequential test: measures pairs of times until it is clear which of two kernels is faster.
// Input: a function that measures one pair, a time limit.  Output: verdict, ratio (first over second), interval.  A winner is measured
// again with new pairs only, since the best of many candidates is partly lucky (winner's curse).  No clock is read here.

import { judged, median, SURE } from './statistics.js';

/**
 * Minimum and maximum rounds, and the confidence of each of the two verdicts in standard deviations.  A wrong adoption needs
 * two wrong verdicts.  Rounds of long kernels take longer, so they are fewer.
 */
const SHORT = { least: 10, most: 320, sure: SURE };
const LONG = { least: 4, most: 80, sure: 2.4 };
/** The most rounds for a kernel that only has to be as fast: with more rounds a slightly slower one could pass by chance. */
const MOST_GRANTED = 80;
/** The least parts of a long kernel in a group, and the most groups.  Each group has a ratio per round, so fewer rounds are enough. */
const [GROUP, MOST_GROUPS] = [8, 4];
/** Multiple of the time limit for a kernel that seems faster. */
const PROMISING = 2;
/** A short kernel is judged again after this share of more pairs: each judgement is another chance to be wrong. */
const LATER = 1.15;
/** By number of rounds: a long kernel is dropped early if both its ratio and the median ratio of its pairs are below this. */
const POOR = [0, 0.99, 1.005, 1.01];
/** The least number of pairs before a long kernel is dropped early. */
const MANY = 30;
/** A kernel whose ratio is below the margin, and whose interval ends below this, is not measured further. */
const WORTH = 1.03;
/** A short kernel that seems slower is measured until its interval's upper end falls below this. */
const HOPE = 1.06;
/** Multiple of the time limit after which it gives up even without an interval, because other work keeps the core busy. */
const HOPELESS = 6;
/**
 * The most lost pairs (interrupted, or timed by a clock that jumped), besides one for each good pair; and the most before the first good
 * one: then the page leaves no gap for a pair.
 */
const [LOST, NONE_YET] = [40, 12];

/** Parts that sweep() samples, in tenths of the work; the first FEW are spread over it as well. */
const SOME = [0, 3, 6, 9, 2, 5, 8, 1, 4, 7];
const FEW = 4;
/** Factor by which the kernels must differ in this sample to decide: single parts of equally fast schedules differ less. */
const WIDE = 2;
/** The factor that is required after only FEW parts. */
const WIDER = 4;
/** The lowest ratio of a kernel that need not be faster. */
const EVEN = 0.99;
const NOTHING = { ratio: NaN, low: NaN, high: NaN, first: NaN, second: NaN };

/** Compares a sample of the parts; null unless the result is clear. @type {Tune.Sweep} */
async function sweep(pair, parts) {
  const pairs = [];
  for (const tenth of SOME) {
    const found = await pair(Math.floor(parts * (tenth + 0.5) / SOME.length), pairs.length % 2);
    if (!found) return NOTHING;
    pairs.push(found);
    if (pairs.length !== FEW && pairs.length !== SOME.length) continue;
    const wide = pairs.length === FEW ? WIDER : WIDE;
    const { first, second, ...sure } = judged(pairs, 1, LONG.sure, wide);
    if (sure.low >= wide || sure.high <= 1 / wide) return { ...sure, first: parts * first, second: parts * second };
  }
  return null;
}

/** Measures pairs until the interval lies on one side of the margin, or the time is over. @type {Tune.Compare} */
export async function compare({ measure, parts, long, granted }, margin, over) {
  const { sure, ...limits } = long ? LONG : SHORT;
  const most = granted ? MOST_GRANTED : limits.most;
  const groups = long && !granted ? Math.max(1, Math.min(MOST_GROUPS, Math.floor(parts / GROUP))) : 1;
  const least = Math.max(2, limits.least + 1 - groups);
  let due = long ? 1 : least;
  let [count, lost] = [0, 0];
  /** The next good pair, or null if too many were lost. @param {number} part @param {number} order */
  const pair = async (part, order) => {
    for (;;) {
      const found = await measure(part, order);
      if (found) count++;
      if (found || ++lost > (count ? LOST + count : NONE_YET)) return found;
    }
  };
  const ended = (/** @type {Tune.Judgement} */ found) => ({ ...found, pairs: count, lost, undecided: Number.isNaN(found.ratio) });
  const clear = parts > SOME.length && await sweep(pair, parts);
  if (clear) return ended(clear);
  /** @type {Tune.Pair[]} */
  const pairs = [];
  for (;;) {
    const part = pairs.length % parts;
    const round = (pairs.length - part) / parts;
    const found = await pair(part, (Math.floor(part / groups) + round) % 2); // a group has both orders
    if (!found) return ended(NOTHING);
    pairs.push(found);
    const rounds = Math.floor(pairs.length / parts);
    const hopeless = rounds >= Math.min(least, LONG.least) && over(HOPELESS);
    // Decides only after each kernel was first equally often.
    const early = rounds < due && !over(PROMISING);
    if (!hopeless && (early || pairs.length % (parts > 1 ? parts : 2))) continue;
    if (!long) due = Math.min(most, rounds * LATER);
    const verdict = judged(pairs, parts, sure, undefined, groups);
    const { ratio, low, high } = verdict;
    if (!hopeless && rounds < least) {
      const usual = median(pairs.map(({ first, second }) => first / second));
      if (pairs.length >= MANY && Math.max(ratio, usual) < POOR[rounds]) return ended(verdict);
      continue;
    }
    const poor = ratio < (long ? margin : 1) && (long || granted || high < HOPE);
    const known = low > margin || high < margin || poor || (ratio < margin && high < WORTH);
    const limit = (groups > 1 || !(long || granted)) && ratio > margin ? PROMISING : 1;
    if (known || hopeless || rounds >= most || (high < Infinity && over(limit))) return ended(verdict);
  }
}

/** True if a kernel that need not be faster is as fast: neither its ratio nor its interval shows a loss. @type {(found: Tune.Judgement) => boolean} */
const even = ({ ratio, high }) => ratio >= EVEN && high >= 1;

/**
 * The verdict on the second kernel, and whether it wins: it is faster, or as fast and the bar has a grant (above 1).  The
 * grant affects decisions only: figures are as measured, from the last comparison.
 * @type {Tune.Contest}
 */
export async function contest(pairs, { margin, grant }, overs) {
  // With a grant, an equally fast kernel must be able to win, which needs whole rounds.
  const helped = { ...pairs, granted: grant > 1, measure: async (/** @type {number} */ part, /** @type {number} */ order) => {
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

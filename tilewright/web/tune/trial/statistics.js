// The verdict on two kernels from pairs of times: robust, with an interval, and undecided if need be.
// Input: pairs measured one right after the other.  Output: the ratio of their times with an interval.
// It measures nothing.
//
// Rounds are compared by the logarithm of their ratio.  Its centre and interval are those of
// Hodges and Lehmann (Wilcoxon's signed ranks): outliers, as of a core that did something else
// meanwhile, hardly move them.

/** Standard deviations of a normal distribution: 99.9 % of it lie within.  With 99 %, one of some
 * 20,000 simulated adoptions was of a kernel that is slower (benchmarks/crowd.py). */
export const SURE = 3.3;
/** No time counts as more than so many times the median of its part. */
const CLIP = 1.1;
/** So many rounds that all say so, and by this much or more, need no interval. */
const FEW = 4;
const FAR = 1.25;

/** @param {ArrayLike<number>} values */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Means of all pairs of values, each with itself too, in order. @param {number[]} values */
function pairMeans(values) {
  const means = new Float64Array(values.length * (values.length + 1) / 2);
  let at = 0;
  for (const [i, value] of values.entries()) for (let j = 0; j <= i; j++) means[at++] = (value + values[j]) / 2;
  return means.sort();
}

/** Infinite while there are too few values to say anything. @type {Tune.Interval} */
export function interval(values, sure = SURE) {
  const count = values.length;
  const means = pairMeans(values);
  // Ranks are whole numbers: the half corrects for that.
  const rank = Math.floor(means.length / 2 + 0.5 - sure * Math.sqrt(count * (count + 1) * (2 * count + 1) / 24));
  const centre = median(means);
  return rank < 1 ? { centre, low: -Infinity, high: Infinity } : { centre, low: means[rank - 1], high: means[means.length - rank] };
}

/** Times of whole rounds, of one side. @type {Tune.RoundsOf} */
function roundsOf(pairs, parts, side) {
  const sums = new Float64Array(Math.floor(pairs.length / parts));
  for (let part = 0; part < parts; part++) {
    const times = sums.map((_, round) => pairs[round * parts + part][side]);
    const most = CLIP * median(times);
    for (const [round, time] of times.entries()) sums[round] += Math.min(time, most);
  }
  return sums;
}

/**
 * One kernel or the other, from all whole rounds.  A kernel of little work is timed whole, a round is
 * one pair; one of much work in parts, which both cut at the same fractions of their tiles.  Parts of
 * two kernels are not the same work, only their sums are.
 * @type {Tune.Judged}
 */
export function judged(pairs, parts, sure = SURE, far = FAR) {
  const [first, second] = /** @type {const} */ (['first', 'second']).map((side) => roundsOf(pairs, parts, side));
  const ratios = Array.from(first, (time, round) => time / second[round]);
  const { centre, low, high } = interval(ratios.map(Math.log), sure);
  const sides = { ratio: Math.exp(centre), low: Math.exp(low), high: Math.exp(high), first: median(first), second: median(first) / Math.exp(centre) };
  if (ratios.length < FEW) return sides;
  if (ratios.every((ratio) => ratio > far)) return { ...sides, low: Math.max(sides.low, far) };
  if (ratios.every((ratio) => ratio < 1 / far)) return { ...sides, high: Math.min(sides.high, 1 / far) };
  return sides;
}

// The verdict on two kernels from pairs of times: robust, with an interval, and undecided if need be.
// Input: pairs measured one right after the other.  Output: the ratio of their times with an interval.
// It measures nothing.
//
// Pairs are compared by the logarithm of their ratio.  Its centre and interval are those of
// Hodges and Lehmann (Wilcoxon's signed ranks): outliers, as of a core that did something else
// meanwhile, hardly move them.

/** Standard deviations of a normal distribution: 99.9 % of it lie within.  With 99 %, one of some
 * 20,000 simulated adoptions was of a kernel that is slower (benchmarks/crowd.py). */
const SURE = 3.3;
/** A shortest time's deviation, in distances to the next one; what is always left to chance. */
const GAPS = 1.2;
const FLOOR = 0.003;

/** @param {number[]} values */
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
  const rank = Math.floor(means.length / 2 - sure * Math.sqrt(count * (count + 1) * (2 * count + 1) / 24));
  const centre = median(Array.from(means));
  return rank < 1 ? { centre, low: -Infinity, high: Infinity } : { centre, low: means[rank - 1], high: means[means.length - rank] };
}

/**
 * One kernel or the other, from all pairs.  A kernel of little work is timed whole; one of much work
 * in parts, which both cut at the same fractions of their tiles, in rounds over all parts.
 * @type {Tune.Judged}
 */
export function judged(pairs, parts, sure = SURE) {
  if (parts > 1) return summed(pairs, parts, sure);
  const { centre, low, high } = interval(pairs.map(({ first, second }) => Math.log(first / second)), sure);
  const first = median(pairs.map((pair) => pair.first));
  return { ratio: Math.exp(centre), low: Math.exp(low), high: Math.exp(high), first, second: first / Math.exp(centre) };
}

/**
 * Parts of two kernels are not the same work, only their sums are.  So each part counts with its
 * shortest time, which is the one that nothing disturbed; how far the next one is from it says how
 * much is left to chance.
 * @type {Tune.Judged}
 */
function summed(pairs, parts, sure = SURE) {
  const sides = /** @type {const} */ (['first', 'second']).map((side) => Array.from({ length: parts }, (_, part) => Float64Array.from(pairs.filter((pair) => pair.part === part), (pair) => pair[side]).sort()));
  if (sides.flat().some((times) => times.length < 2)) return { ratio: 1, low: 0, high: Infinity, first: NaN, second: NaN };
  const [first, second] = sides.map((side) => side.reduce((total, times) => total + times[0], 0));
  const gap = median(sides.flat().map((times) => Math.log(times[1] / times[0])));
  const chance = sure * (FLOOR + GAPS * gap) * Math.sqrt(2 / parts);
  const ratio = first / second;
  return { ratio, low: ratio * Math.exp(-chance), high: ratio * Math.exp(chance), first, second };
}

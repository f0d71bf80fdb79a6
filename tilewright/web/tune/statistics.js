// The verdict on two kernels from pairs of times: robust, with an interval, and undecided if need be.
// Input: pairs measured one right after the other.  Output: the ratio of their times with an interval.
// It measures nothing.
//
// Pairs are compared by the logarithm of their ratio.  Its centre and interval are those of
// Hodges and Lehmann (Wilcoxon's signed ranks): outliers, as of a core that did something else
// meanwhile, hardly move them.

/** Standard deviations of a normal distribution: 99 % of it lie within. */
const SURE = 2.58;

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
 * Kernels of much work are timed in parts, which both cut at the same fractions of their tiles; so
 * the parts differ a little, each in its own way: parts are compared with themselves, and weigh
 * what they take.
 * @type {Tune.Judged}
 */
export function judged(pairs, parts, sure = SURE) {
  const groups = Array.from({ length: parts }, (_, part) => pairs.filter((pair) => pair.part === part));
  if (groups.some((group) => !group.length)) return { ratio: 1, low: 0, high: Infinity, first: NaN, second: NaN };
  const logs = groups.map((group) => group.map(({ first, second }) => Math.log(first / second)));
  const centres = logs.map((group) => median(Array.from(pairMeans(group))));
  const firsts = groups.map((group) => median(group.map(({ first }) => first)));
  const first = sum(firsts);
  const second = sum(firsts.map((time, part) => time / Math.exp(centres[part])));
  const rest = logs.flatMap((group, part) => group.map((value) => value - centres[part]));
  // Each centre takes one degree of freedom.
  const free = parts === 1 ? 1 : Math.sqrt(rest.length / Math.max(rest.length - parts, 0));
  const { low, high } = interval(rest, sure);
  const scaled = (/** @type {number} */ bound) => first / second * Math.exp(Number.isFinite(bound) ? bound * free : bound);
  return { ratio: first / second, low: scaled(low), high: scaled(high), first, second };
}

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

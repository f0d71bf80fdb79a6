// Robust estimates from paired times of two kernels.
// Input: pairs of times, each measured back to back.  Output: the ratio with a confidence interval, infinite if undecided.
//
// The estimate is the Hodges-Lehmann centre of the rounds' log ratios.  The interval is that of Wilcoxon's signed-rank test.  Outliers, for
// example from a busy core, hardly move either.

/**
 * Half-width of intervals in standard deviations: 99.9 %.  With 99 %, one of some 20,000 simulated adoptions was of a
 * slower kernel (benchmarks/serving/crowd.py). */
export const SURE = 3.3;
/** Times are clipped to this multiple of their part's median. */
const CLIP = 1.1;
/** If at least FEW rounds all differ by at least the factor FAR, that bounds the interval. */
const FEW = 4;
const FAR = 1.25;

/** The median; NaN for no values. @param {ArrayLike<number>} values */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The Walsh averages, sorted: the means of all pairs of values, including each value with itself. @param {number[]} values */
function pairMeans(values) {
  const means = new Float64Array(values.length * (values.length + 1) / 2);
  let at = 0;
  for (const [i, value] of values.entries()) for (let j = 0; j <= i; j++) means[at++] = (value + values[j]) / 2;
  return means.sort();
}

/** Hodges-Lehmann centre and signed-rank interval; infinite for too few values. @type {Tune.Interval} */
export function interval(values, sure = SURE) {
  const count = values.length;
  const means = pairMeans(values);
  // 0.5 is the continuity correction of the normal approximation.
  const rank = Math.floor(means.length / 2 + 0.5 - sure * Math.sqrt(count * (count + 1) * (2 * count + 1) / 24));
  const centre = median(means);
  return rank < 1 ? { centre, low: -Infinity, high: Infinity } : { centre, low: means[rank - 1], high: means[means.length - rank] };
}

/** One kernel's times of complete rounds: sums over the parts of each group (every `groups`-th part), clipped. @type {Tune.RoundsOf} */
function roundsOf(pairs, parts, side, groups) {
  const rounds = Math.floor(pairs.length / parts);
  const sums = new Float64Array(rounds * groups);
  for (let part = 0; part < parts; part++) {
    const times = Array.from({ length: rounds }, (_, round) => pairs[round * parts + part][side]);
    const most = CLIP * median(times);
    for (const [round, time] of times.entries()) sums[round * groups + part % groups] += Math.min(time, most);
  }
  return sums;
}

/** By round and group, the first kernel's time over the second one's. @type {Tune.RatiosOf} */
function ratiosOf(pairs, parts, groups) {
  const second = roundsOf(pairs, parts, 'second', groups);
  return Array.from(roundsOf(pairs, parts, 'first', groups), (time, at) => time / second[at]);
}

/**
 * Judges two kernels by all complete rounds.  For a short kernel a round is one pair.  A long kernel is timed in parts, cut at the same
 * fractions of its tiles.  The parts of two schedules are different work, so only sums over many parts are compared.  The ratio is that of
 * whole rounds.  The interval is that of groups of parts, each spread over all of the work; if the groups differ, it is the wider one.
 * @type {Tune.Judged}
 */
export function judged(pairs, parts, sure = SURE, far = FAR, groups = 1) {
  const first = median(roundsOf(pairs, parts, 'first', 1));
  const ratios = ratiosOf(pairs, parts, groups);
  const { centre } = interval(ratiosOf(pairs, parts, 1).map(Math.log));
  const ends = interval(ratios.map(Math.log), sure);
  // With few groups their middle may differ from the ratio.
  const [low, high] = [centre < ends.low ? centre : ends.low, centre > ends.high ? centre : ends.high];
  const sides = { ratio: Math.exp(centre), low: Math.exp(low), high: Math.exp(high), first, second: first / Math.exp(centre) };
  if (ratios.length < FEW) return sides;
  if (ratios.every((ratio) => ratio > far)) return { ...sides, low: Math.max(sides.low, far) };
  if (ratios.every((ratio) => ratio < 1 / far)) return { ...sides, high: Math.min(sides.high, 1 / far) };
  return sides;
}

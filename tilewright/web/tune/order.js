// In which order candidates are tried when nobody else has tried them: as tuning/compose.py says.
// Input: kernels with their order of trial, and a hello.  Output: pairs of kernel and candidate.

import { COMPILERS } from './ledger.js';
import { LATENCY } from './objective.js';

/** Each kernel in proportion to its share of the time, best candidates first. @type {S.InOrder} */
export function inOrder(kernels, { specs, shares = [], tried = {} }) {
  const total = shares.reduce((sum, share) => sum + share, 0) || 1;
  const bySpec = new Map(kernels.map((kernel) => [kernel.spec, kernel]));
  const ranked = specs.flatMap((spec, number) => {
    const share = Math.max((shares[number] ?? total / specs.length) / total, 1e-6);
    return (bySpec.get(spec)?.order ?? []).map((candidate, rank) => ({ spec, candidate, number, turn: (rank + 1) / share }));
  });
  return ranked
    .filter(({ spec, candidate }) => !tried[spec]?.includes(candidate))
    .sort((a, b) => a.turn - b.turn || a.number - b.number)
    .map(({ spec, candidate }) => ({ spec, candidate }));
}

/** The order by latency made one by another objective, as tuning/candidates.py does: who needs less than the compiler's own, the least first. @type {S.Serving} */
export function serving({ order, candidates }, objective = LATENCY) {
  if (objective === LATENCY) return order;
  const needed = (/** @type {number} */ candidate) => candidates[candidate]?.needs?.[objective] ?? NaN;
  return order.filter((candidate) => needed(candidate) < needed(COMPILERS)).sort((a, b) => needed(a) - needed(b));
}

/** The part of a source that has nobody to tell. @type {Pick<Tune.Source, 'result' | 'report'>} */
export const unheard = {
  result() {},

  async report({ nonce }) {
    return { nonce, accepted: false, reason: 'off' };
  },
};

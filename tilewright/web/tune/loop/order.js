// In which order candidates are tried when nobody else has tried them: as tuning/compose.py says.
// Input: kernels with their order of trial, and a hello.  Output: pairs of kernel and candidate.

import { COMPILERS } from '../records/ledger.js';
import { LATENCY } from './objective.js';

/** Candidates of a kernel come in runs of so many: to change kernels costs a device time. */
const RUN = 4;

/**
 * First the compiler's own, where an order has it; then runs of one kernel, kernels in proportion to their share of the
 * time, best candidates first.
 * @type {S.InOrder}
 */
export function inOrder(kernels, { specs, shares = [], tried = {} }) {
  const bySpec = new Map(kernels.map((kernel) => [kernel.spec, kernel]));
  const weights = specs.map((_, number) => shares[number] ?? 1 / (number + 1));
  const total = weights.reduce((sum, share) => sum + share, 0) || 1;
  const ranked = specs.flatMap((spec, number) => {
    const { order = [] } = bySpec.get(spec) ?? {};
    const pace = 1 / Math.max(weights[number] / total, 1e-6);
    return [
      ...order.filter((candidate) => candidate === COMPILERS).map((candidate) => ({ spec, candidate, number, turn: -weights[number] })),
      ...order.filter((candidate) => candidate !== COMPILERS).map((candidate, rank) => ({ spec, candidate, number, turn: (Math.floor(rank / RUN) + 1) * pace })),
    ];
  });
  return ranked
    .filter(({ spec, candidate }) => !tried[spec]?.includes(candidate))
    .sort((a, b) => a.turn - b.turn || a.number - b.number)
    .map(({ spec, candidate }) => ({ spec, candidate }));
}

/**
 * The order by latency made one by another objective, as tuning/candidates.py does: who needs less than the compiler's
 * own, the least first; that one stays before all where it is the judge.
 * @type {S.Serving}
 */
export function serving({ order, candidates }, objective = LATENCY) {
  if (objective === LATENCY) return order;
  const needed = (/** @type {number} */ candidate) => candidates[candidate]?.needs?.[objective] ?? NaN;
  const less = order.filter((candidate) => needed(candidate) < needed(COMPILERS));
  return [...order.filter((candidate) => candidate === COMPILERS), ...less.sort((a, b) => needed(a) - needed(b))];
}

/** The part of a source that has nobody to tell. @type {Pick<Tune.Source, 'result' | 'report'>} */
export const unheard = {
  result() {},

  async report({ nonce }) {
    return { nonce, accepted: false, reason: 'off' };
  },
};

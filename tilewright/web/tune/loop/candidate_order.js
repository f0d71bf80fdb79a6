// The order in which candidates are tried without a server's knowledge; the same as in tuning/candidate_order.py.
// Input: kernels with their order of trial, and a hello.  Output: pairs of kernel and candidate.

import { COMPILERS } from '../records/ledger.js';
import { LATENCY } from './objective.js';

/** Consecutive candidates of one kernel, since changing to another kernel takes preparation. */
const RUN = 4;

/**
 * The compiler's own candidates come first, if an order has them.  Then kernels alternate in runs of RUN candidates, in proportion to their
 * share of the time, best candidates first.
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
 * Re-sorts an order by latency for another objective, as tuning/candidates.py does: only candidates that need less than
 * the compiler's own, the least first.  The compiler's own stays first where the order has it.
 * @type {S.Serving}
 */
export function serving({ order, candidates }, objective = LATENCY) {
  if (objective === LATENCY) return order;
  const needed = (/** @type {number} */ candidate) => candidates[candidate]?.needs?.[objective] ?? NaN;
  const less = order.filter((candidate) => needed(candidate) < needed(COMPILERS));
  return [...order.filter((candidate) => candidate === COMPILERS), ...less.sort((a, b) => needed(a) - needed(b))];
}

/** Methods of a source without a server: results and reports are dropped. @type {Pick<Tune.Source, 'result' | 'report'>} */
export const unheard = {
  result() {},

  async report({ nonce }) {
    return { nonce, accepted: false, reason: 'off' };
  },
};

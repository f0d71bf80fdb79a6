// A session's kernels as plain data, for the `start` event and the summary.
// Input: the tools of a session.  Output: plain data.  A kernel's times and gain are from its trials: warm, alternating, one thread.

import { exchanges, NONE, unknown } from '../exchange/gain.js';

/** @type {Tune.StartOf} */
export const startOf = ({ targets, ledger }) => [...targets.values()].map(({ spec, plan, node, part, share, kernel, flops }) => {
  const { kind = kernel, shape = '', fixed = '', default: own = 0 } = ledger.offers.get(spec) ?? {};
  const { candidate = 0, schedule = '', moved = false } = ledger.winner(spec) ?? {};
  const current = ledger.winner(spec) ? { candidate, schedule, gain: gainOf(ledger, spec), moved } : null;
  return { spec, plan, kind, shape, fixed, node, part, share, flops, default: own, current };
});

/** Null if it was never measured. @type {(ledger: Tune.Ledger, spec: number) => number | null} */
const gainOf = (ledger, spec) => (ledger.unknown(spec) ? null : ledger.gain(spec));

/** Without tools: the summary of a session that ended while it started. @type {Tune.SummaryOf} */
export function summaryOf({ rounds, spent, latency, gain }, tools) {
  const at = (/** @type {number | null} */ candidate, /** @type {number} */ milliseconds, /** @type {number} */ flops, schedule = '') => (
    { candidate, schedule, milliseconds, gflops: flops / milliseconds / 1e6 });
  const kernels = [...tools?.targets.values() ?? []].map(({ spec, kernel, node, own, flops }) => {
    const { ledger } = /** @type {Tune.Tools} */ (tools);
    const offer = ledger.offers.get(spec);
    const gain = gainOf(ledger, spec);
    return {
      spec, kind: offer?.kind ?? kernel, shape: offer?.shape ?? '', fixed: offer?.fixed ?? '', node, gain, tried: ledger.tried(spec).length,
      default: at(ledger.own(spec), own, flops), current: at(ledger.current(spec), own / (gain ?? NaN), flops, ledger.winner(spec)?.schedule),
    };
  });
  const told = gain ?? (tools && exchanges(tools).length ? unknown('the session ended before the measurement') : NONE);
  return { rounds, seconds: spent / 1000, class: tools?.device ?? '', kernels, latency, gain: told };
}

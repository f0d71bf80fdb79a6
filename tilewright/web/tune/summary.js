// What a session says of its kernels: at the start, and at the end.
// Input: the tools of a session.  Output: plain data.

/** @type {Tune.StartOf} */
export const startOf = ({ targets, ledger }) => [...targets.values()].map(({ spec, plan, node, part, share, kernel, flops, milliseconds }) => {
  const { kind = kernel, shape = '', default: own = 0 } = ledger.offers.get(spec) ?? {};
  const { candidate = 0, schedule = '', ratio: gain = 1, moved = false } = ledger.winner(spec) ?? {};
  const current = ledger.winner(spec) ? { candidate, schedule, gain, moved } : null;
  return { spec, plan, kind, shape, node, part, share, flops, milliseconds, default: own, current };
});

/** Before there are tools: a session that had hardly begun. @type {Tune.SummaryOf} */
export function summaryOf({ rounds, spent, before, after }, tools) {
  const at = (/** @type {number} */ candidate, /** @type {number} */ milliseconds, /** @type {number} */ flops, schedule = '') => (
    { candidate, schedule, milliseconds, gflops: flops / milliseconds / 1e6 });
  const kernels = [...tools?.targets.values() ?? []].map(({ spec, kernel, node, milliseconds, flops }) => {
    const { ledger } = /** @type {Tune.Tools} */ (tools);
    const offer = ledger.offers.get(spec);
    const gain = ledger.gain(spec);
    return {
      spec, kind: offer?.kind ?? kernel, shape: offer?.shape ?? '', node, gain, tried: ledger.tried(spec).length,
      default: at(offer?.default ?? 0, milliseconds, flops), current: at(ledger.current(spec), milliseconds / gain, flops, ledger.winner(spec)?.schedule),
    };
  });
  return { rounds, seconds: spent / 1000, class: tools?.device ?? '', kernels, before, after };
}

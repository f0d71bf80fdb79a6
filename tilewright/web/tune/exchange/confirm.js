// At a session's end: checks that the model is not slower with all kernels that the session adopted.
// Input: the tools of a session with its changed kernels.  Output: an engine and ledger without the changes that do not
// pay.  Each kernel was faster by itself, but together they share caches and cores.

import { guardOf } from './guard.js';
import { changeOf } from '../records/device_record.js';
import { pairedRuns } from './paired_runs.js';

/** @type {Tune.Confirm} */
export const confirm = (tools) => guardOf(tools.engine).undisturbed([...tools.changed.keys()], () => confirmed(tools));

/** @type {Tune.Confirm} */
async function confirmed(tools) {
  const { changed, targets, ledger } = tools;
  /** Changed kernels by plan, since each plan is timed by itself. @type {Map<number, number[]>} */
  const plans = new Map();
  for (const spec of changed.keys()) {
    const target = targets.get(spec);
    // It trapped in a run of the page, or another tab changed the record.
    if (!target || !ledger.winner(spec)) continue;
    plans.set(target.plan, [...plans.get(target.plan) ?? [], spec]);
  }
  for (const specs of plans.values()) {
    if (!await slower(tools, specs)) continue;
    const sure = specs.filter((spec) => changed.get(spec)?.better);
    const some = sure.length && sure.length < specs.length;
    await undo(tools, some ? specs.filter((spec) => !sure.includes(spec)) : specs);
    if (some && await slower(tools, sure)) await undo(tools, sure);
  }
  changed.clear();
}

/** Whether the model is slower with these kernels, beyond the noise. @type {Tune.Slower} */
async function slower(tools, specs) {
  const { targets, ledger, changed } = tools;
  const target = /** @type {Tune.Target} */ (targets.get(specs[0]));
  const kernels = specs.map((spec) => ({ winner: /** @type {Tune.Winner} */ (ledger.winner(spec)), back: changed.get(spec)?.before }));
  const { high } = await pairedRuns(tools, target, kernels);
  return high < 1;
}

/** @type {Tune.Undo} */
async function undo({ engine, pace, ledger, changed, source, onEvent }, specs) {
  const backs = await backsOf(engine, changed, specs);
  await pace.job(() => engine.swap(backs), true);
  for (const spec of specs) {
    const { candidate, ratio } = /** @type {Tune.Winner} */ (ledger.winner(spec));
    const before = changed.get(spec)?.before;
    ledger.use(spec, before);
    ledger.humble(spec, ledger.gain(spec));
    changed.delete(spec);
    source.result({ spec, candidate, verdict: 'slower' });
    onEvent({ type: 'rollback', spec, candidate, ratio: ledger.gain(spec) / ratio });
  }
}

/** Changes that restore the kernels in use before the session. @type {Tune.BacksOf} */
const backsOf = (engine, changed, specs) => Promise.all(specs.map(async (spec) => {
  const before = changed.get(spec)?.before;
  return before ? changeOf(engine, before) : { spec, module: null };
}));

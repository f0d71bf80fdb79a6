// The gain: how many times as fast whole warm runs are with the kernels in use as with the bundle's own; or why it is unknown.
// Input: a session, or an engine that uses kernels of an earlier visit.  Output: the figure, also in words, that page
// and command line show.  If no kernel was swapped there is no gain, whatever clocks say.
//
// At a session's end `confirm` checks that the model is not slower with all kernels that the session adopted, and takes back the changes that do
// not pay.  Each kernel was faster by itself, but together they share caches and cores.

import { plansInOrder } from '../loop/hot_kernels.js';
import { makePace } from '../loop/pace.js';
import { withSessionLock } from '../loop/session_lock.js';
import { changeOf, recall } from '../records/device_record.js';
import { restore } from '../records/persist.js';
import { guardOf } from './guard.js';
import { pairedRuns } from './runs.js';

/** @type {Gains.Gain} */
export const NONE = { verdict: 'none', text: 'no kernel changed, so no gain' };

/** @param {string} why @returns {Gains.Gain} */
export const unknown = (why) => ({ verdict: 'unknown', text: `gain not measured: ${why}` });

/** Kernels that the session adopted and that are still in use. @type {Gains.Exchanges} */
export const exchanges = ({ won, ledger }) => [...won].flatMap(([spec, candidate]) => (ledger.winner(spec)?.candidate === candidate ? [spec] : []));

/** At a session's end: the gain of all tuned kernels in use, if the session changed any. @type {Gains.SessionGain} */
export async function sessionGain(tools) {
  const specs = exchanges(tools);
  return specs.length ? gainOf(tools, tools.ledger.record.winners, specs) : NONE;
}

/**
 * On request: the gain of all tuned kernels that this device keeps, from any visit.  Waits for a running session to end.
 * @type {Gains.MeasureGain}
 */
export function measureGain(engine, { signal = new AbortController().signal, onEvent = () => {} } = {}) {
  const work = async (/** @type {boolean} */ waited) => {
    await restore(engine, waited);
    const { winners } = await recall(engine);
    const pace = makePace({ engine, budget: 1, signal, onEvent });
    try {
      return winners.length ? await gainOf({ engine, pace, onEvent, compared: new Map() }, winners, winners.map(({ spec }) => spec)) : NONE;
    } finally {
      pace.end();
    }
  };
  return withSessionLock(engine, signal, onEvent, work).catch((error) => {
    if (!signal.aborted) throw error;
    return unknown('it was cancelled');
  });
}

/** Measures one plan that uses any of these kernels: the page's latest if it does. @type {Gains.GainOf} */
async function gainOf(parts, winners, specs) {
  const { engine, pace } = parts;
  const { plans } = engine.parts.manifest;
  const runs = (/** @type {number} */ plan, /** @type {number} */ spec) => plans[plan].steps.some((step) => step.spec === spec);
  const plan = plansInOrder(engine, pace.latest).find((number) => specs.some((spec) => runs(number, spec)));
  if (plan === undefined) return unknown('the page holds the inputs of another plan');
  const kernels = winners.filter(({ spec }) => runs(plan, spec)).map((winner) => ({ winner, back: undefined }));
  const { dims: bucket } = plans[plan];
  const found = await guardOf(engine).undisturbed(kernels.map(({ winner: { spec } }) => spec), async (trapped) => {
    const turns = await pairedRuns(parts, { plan, bucket }, kernels);
    return trapped() ? { ...turns, why: 'a run of the page trapped during the measurement' } : turns;
  });
  const { why, ...figures } = found;
  if (why) return unknown(why);
  const verdict = figures.low > 1 ? 'faster' : figures.high < 1 ? 'slower' : 'same';
  const told = { plan, bucket, kernels: kernels.length, ...figures };
  return { verdict, ...told, text: worded(verdict, told, plans.length > 1) };
}

/** @type {Gains.Worded} */
function worded(verdict, { bucket, ratio, low, high, pairs, own, tuned }, several) {
  const sizes = Object.entries(bucket).map(([name, size]) => `${name} = ${size}`).join(', ');
  const found = verdict === 'same' ? "no measurable difference from the bundle's own kernels" : `${ratio.toFixed(2)}× as fast as with the bundle's own kernels`;
  const interval = `95 % interval ${low.toFixed(2)}–${high.toFixed(2)}, ${pairs} pairs by turns, warm`;
  const times = verdict === 'same' ? '' : `: ${own.toFixed(2)} → ${tuned.toFixed(2)} ms`;
  return `${found}${several ? ` at ${sizes}` : ''} (${interval})${times}`;
}

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

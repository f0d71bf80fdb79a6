// Handles one candidate: check, trial, adoption, bookkeeping, events.
// Input: a candidate, the tools of a session.  Output: events, and an updated ledger and engine.  An error of the host is thrown: it is not
// a verdict, so a later visit tries the candidate again.

import { asEngineError, EngineError } from '../../engine/errors.js';
import { sha256 } from '../../engine/files.js';
import { adopt, disagreement } from '../exchange/adopt.js';
import { guardOf } from '../exchange/guard.js';
import { BAD, COMPILERS, RIGHT } from '../records/ledger.js';
import { backendOf } from '../backend/backend.js';
import { barOf } from './objective.js';
import { changeOf } from '../records/device_record.js';

/** The verdict on a candidate with which the engine fails, by the error's code. @type {Record<string, Tune.Verdict>} */
const MEANING = { input: 'refused', 'kernel-trap': 'trapped' };
/** A candidate that seems faster by this factor, but whose trial is undecided, is tried once more. */
const PROMISING = 1.25;

/** Resolves with the verdict and whether the candidate was adopted; null if it need not be tried. @type {Tune.Handle} */
export async function handle(tools, sent, round) {
  const { ledger, objective, onEvent, source, targets, forecast, enter } = tools;
  const { spec, candidate, mark, schedule, needs } = sent.header;
  const judge = candidate === COMPILERS && ledger.inQuestion(spec);
  if (ledger.refuted(spec) || (ledger.tried(spec).includes(candidate) && !judge)) return null;
  const old = ledger.winner(spec);
  const before = ledger.gain(spec);
  const bar = barOf(objective, needs, (old ?? ledger.offers.get(spec))?.needs);
  if (bar.margin === Infinity && !judge) return null;
  const outcome = await tryTwice(tools, sent, judge, bar);
  // The kernel that it was compared with trapped in a run of the page and is no longer in use.
  if (ledger.winner(spec) !== old) return null;
  const { milliseconds, stages, refuted } = outcome;
  if (outcome.module) enter('adopting');
  const put = outcome.module ? await takeIn(tools, sent, outcome, old) : null;
  const { verdict, why = '' } = put ?? outcome;
  const swapped = put?.stays ?? false;
  const undone = put !== null && verdict === 'slower';
  // If the engine's own step was slower, its ratio replaces the trial's.
  const { ratio = NaN, low = NaN, high = NaN } = undone ? { ratio: put.before / put.after } : refuted ? { ratio: 1 } : outcome;
  const over = before * ratio;
  const own = ledger.unknown(spec) || refuted ? NaN : before * (outcome.times?.[0] ?? NaN);
  if (judge && RIGHT.includes(verdict)) ledger.agrees(spec);
  ledger.note(spec, candidate, verdict, over);
  if (RIGHT.includes(verdict) && !refuted && over > 0) forecast.learn(sent.header, over);
  const target = targets.get(spec);
  if (target && own > 0) target.own = own;
  if (swapped) note(tools, sent, { over, old, better: put?.better ?? false, refuted: Boolean(refuted) });
  onEvent({ type: 'trial', round, spec, candidate, mark, schedule, verdict, refuted: Boolean(refuted), ratio, low, high, own, milliseconds, stages, why });
  if (!refuted) source.result({ spec, candidate, verdict });
  if (swapped) onEvent({ type: 'swap', spec, candidate, ratio: over });
  if (undone) onEvent({ type: 'rollback', spec, candidate, ratio });
  if (put && BAD.includes(verdict)) await caught(tools, verdict);
  return { verdict, swapped };
}

/** Handles a candidate that passed its trial and failed in the model, whose memory it could write to. @type {Tune.Caught} */
async function caught({ engine, ledger: { record } }, verdict) {
  record.caught++;
  // A kernel that hung ended with the engine's old workers.
  if (verdict !== 'hung') await guardOf(engine).renewed();
}

/** Notes a winner, and the kernel in use before this session. @type {Tune.NoteWinner} */
function note({ ledger, changed, won }, { header, module }, { over, old, better, refuted }) {
  const { spec, candidate, schedule, tiles, grains, scratch, needs, digest } = header;
  ledger.use(spec, { spec, candidate, schedule, digest, module, tiles, grains, scratch, needs, ratio: over, ...(old?.moved && { moved: true }) });
  won.set(spec, candidate);
  if (refuted) {
    // It replaces a wrong kernel, so it is never rolled back for its time.
    ledger.refute(spec);
    changed.delete(spec);
    return;
  }
  const known = changed.get(spec);
  changed.set(spec, { before: known ? known.before : old, better: better && (known?.better ?? true) });
}

/** Tries a candidate; once more if a busy machine left the result undecided. @type {Tune.TryOne} */
async function tryTwice(tools, ...work) {
  const first = await tryOne(tools, ...work);
  const { verdict, module, ratio = 0 } = first;
  if (verdict !== 'same' || module || ratio <= PROMISING) return first;
  await tools.pace.turn();
  const second = await tryOne(tools, ...work);
  return { ...second, milliseconds: first.milliseconds + second.milliseconds, stages: { ...second.stages, undecided: first.milliseconds } };
}

/** @type {Tune.TryOne} */
async function tryOne({ engine, pace, signal, specs, ledger, targets, trials }, { header, module }, judge, bar) {
  const { spec, digest, tiles, scratch } = header;
  const { scratch_bytes: most } = engine.parts.program.memory;
  const refused = (/** @type {string} */ why) => ({ verdict: /** @type {const} */ ('refused'), milliseconds: 0, stages: {}, resolution: 0, why });
  if (!targets.has(spec)) return refused('this kernel is not being tuned');
  // Damage in transit is not the candidate's fault.
  if (await sha256(module) !== digest) throw new EngineError('host', 'A candidate arrived damaged: its digest is not the announced one', 'Check proxies between page and source; a later visit asks for it again', { spec, digest });
  if (!(scratch <= most)) return refused(`it needs ${scratch} bytes of scratch memory, and ${most} are reserved`);
  const { MOST_TILES } = await backendOf(engine);
  if (!(Number.isInteger(tiles) && tiles > 0 && tiles <= MOST_TILES)) return refused(`it has ${tiles} tiles`);
  const best = ledger.winner(spec);
  const incumbent = best ? { digest: best.digest, module: best.module, tiles: best.tiles } : null;
  const work = { judge, spec, facts: () => specs.facts(spec), bytes: specs.bytesOf(spec), candidate: { digest, module, tiles }, incumbent, bar };
  try {
    const outcome = await pace.trial(() => trials.attempt(work));
    return outcome.refuted ? { ...outcome, why: `the kernel in use is wrong: ${outcome.refuted}` } : outcome;
  } catch (error) {
    signal.throwIfAborted();
    throw asEngineError(error);
  }
}

/** The result for a candidate that was swapped in and removed again. @type {Tune.Gone} */
const gone = (verdict, why) => ({ verdict, stays: false, better: false, before: NaN, after: NaN, why });

/** Swaps a winner into the engine, where it may still be slower or be refused. @type {Tune.TakeIn} */
async function takeIn(tools, { header }, { verdict, module, refuted, why }, old) {
  const { engine, pace, signal, targets } = tools;
  const { spec, tiles, grains, scratch } = header;
  const change = { spec, module: /** @type {Tune.Code} */ (module), tiles, grains, scratch };
  const back = old ? await changeOf(engine, old) : { spec, module: null };
  const guard = guardOf(engine);
  const { start } = guard;
  try {
    return await guard.undisturbed([spec], async (trapped) => {
      if (refuted) {
        await pace.job(() => engine.swap([change]));
        return { verdict, stays: true, better: false, before: NaN, after: NaN, why };
      }
      const target = /** @type {Tune.Target} */ (targets.get(spec));
      const problem = await disagreement(tools, target, change, back);
      if (problem) return gone(problem.verdict, problem.why);
      const { stays, ...times } = await adopt(engine, pace, target, change, back);
      const where = trapped();
      if (!where) return { ...times, stays, verdict: stays ? verdict : 'slower', why: stays ? '' : 'the engine was slower with it' };
      if (stays) await engine.swap([back]);
      return where === 'here' ? gone('trapped', 'a run of the page trapped in this kernel while it was timed')
        : gone('refused', 'a run of the page trapped while it was in use');
    });
  } catch (error) {
    // If states could be kept, another kernel was the cause of the restart.
    const whole = guard.start !== start && await guard.start;
    if (guard.start !== start && !whole) return gone('hung', 'the engine had to start again');
    // It must not stay in use, since it is not recorded.
    await engine.swap([back]).catch(() => guard.renewed());
    signal.throwIfAborted();
    const typed = asEngineError(error);
    const found = MEANING[typed.code];
    if (!found) throw typed;
    return gone(found, String(typed));
  }
}

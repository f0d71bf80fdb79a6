// The worker in which candidates are tried, with its own memory, never the model's.
// Input: requests of trials.js.  Output: a verdict on each candidate; an error if something fails before it runs.
// If a kernel hangs, the page terminates this worker.

import { l1Bytes } from '../device/device.js';
import { contest } from './pairs.js';
import { allowed, arrayOf, difference, isFloat } from './inputs.js';
import { beating, beginWork, breathe, rest, workedUntilNow } from './breath.js';
import { accept, begin, check, compiled, doubt, inputsOf, lay, loaded, makeRunner, MOST_DOUBT, openMemory, Refused, refutation, runAll, Trapped, use } from './memory.js';
import { freezeBuiltIns } from './pristine.js';
import { finest, pairsOf, quick, readClock, warm } from './timing.js';

freezeBuiltIns();

/** Milliseconds after which no further pair is measured, for the first comparison and for both together. */
const LIMITS = [400, 650];
/** If the sets `random` and `edge` take more milliseconds, the set `special` is skipped. */
const LONG = 250;
/** A candidate slower by this factor is not compared further. */
const FAR = 1.5;

/** @type {WebAssembly.Module} */
let bundled;
let slots = 0;
/** The cache: by specification, prepared kernels. @type {Map<number, Tune.LoadedKernel>} */
const states = new Map();
/** @type {Map<number, Tune.SpecFacts>} */
const told = new Map();
/** Whether a failure now is the candidate's fault. */
let trying = false;

/** Tells the page, so that it knows whose fault a hang is. @param {boolean} on */
function blame(on) {
  if (on !== trying) self.postMessage({ trying: on });
  trying = on;
}

/** Makes the input sets and expected results of a kernel, with the bundle's own kernel or the given reference. @type {Tune.Prepare} */
async function prepare(facts, reference) {
  /** @type {Tune.LoadedKernel} */
  const next = { facts, ...lay(facts), sets: {}, known: new Map() };
  states.delete(facts.spec);
  use(next);
  const start = workedUntilNow();
  const blamed = trying;
  blame(false);
  const standard = await makeRunner(bundled, `k${facts.slot}`, slots, facts.tiles);
  blame(blamed);
  next.known.set('', standard);
  for (const set of ['random', 'edge', 'special']) {
    // Skipped for slow kernels.
    if (set === 'special' && (!facts.special || workedUntilNow() - start > LONG)) continue;
    next.sets[set] = { inputs: await inputsOf(facts, set), wanted: null, allowed: 0 };
    await begin(set);
    try {
      await runAll(reference ?? standard, false);
      await accept(next.sets[set]);
      // NaN would spoil the estimate; the tolerance is that of ordinary numbers.
      if (set === 'special') next.sets[set].allowed = next.sets.random.allowed;
      else await doubt(next.sets[set], reference ?? standard);
    } catch (error) {
      // A correct kernel may trap on unusual values; then the set is dropped.
      if (set === 'random' || !(error instanceof Trapped)) throw error;
      delete next.sets[set];
    }
  }
  if (!reference) {
    await begin('random');
    await warm(standard, NaN);
  }
  states.set(facts.spec, next);
}

/** The kernel that candidates must beat, warm: the bundle's own (null) or an earlier winner. @type {Tune.RunnerOf} */
async function runnerOf(known) {
  const { known: runners } = /** @type {Tune.LoadedKernel} */ (loaded);
  const key = known?.digest ?? '';
  const found = runners.get(key);
  if (found || !known) return /** @type {Tune.Runner} */ (found);
  const made = await makeRunner(await compiled(known.module), 'k0', 1, known.tiles);
  await begin('random');
  await warm(made, NaN);
  runners.set(key, made);
  return made;
}

/**
 * Checks the kernels in use against the compiler's own (`runner`).  Both the bundle's kernel, to which later candidates are
 * compared, and an earlier winner must agree with it.
 * @type {Tune.Question}
 */
async function question(facts, runner, incumbent) {
  await prepare(facts, runner);
  // The reference itself must work with tiles in any order, and stay within its bounds.
  const wrong = await refutation(runner);
  if (wrong) {
    states.delete(facts.spec);
    return { wrong };
  }
  blame(false);
  const { known } = /** @type {Tune.LoadedKernel} */ (loaded);
  const refuted = await refutation(/** @type {Tune.Runner} */ (known.get(''))) || (incumbent && await refutation(await runnerOf(incumbent))) || '';
  lay(facts);
  await begin('random');
  await warm(await runnerOf(incumbent), NaN);
  return { refuted };
}

/** Tries a candidate that has not run yet against the kernel in use. @type {Tune.Against} */
async function against(runner, other, bar, overs) {
  await begin('random');
  const least = await quick(other);
  const time = await warm(runner, least);
  // Far slower: no precise ratio is needed.
  if (time > FAR * least) {
    const times = [await quick(other), await quick(runner)];
    const ratio = times[0] / times[1];
    if (ratio < 1 / FAR) return { verdict: 'slower', ratio, times };
  }
  const wrong = await check(runner);
  if (wrong) return { verdict: 'wrong', why: wrong };
  await begin('random');
  const pairs = pairsOf(other, runner, [least, time]);
  const { first, second, undecided, ...found } = await contest(pairs, bar, overs);
  const why = undecided ? 'undecided: it was interrupted too often' : '';
  return { ...found, times: [first, second], parts: pairs.parts, ...(why && { why }) };
}

/** @type {Tune.Attempt} */
async function attempt({ spec, facts: given, forget, candidate, incumbent, bar, judge, confirm }) {
  const start = beginWork();
  const spent = () => workedUntilNow() - start;
  let prepared = 0;
  const outcome = (/** @type {Tune.Found} */ found) => ({ milliseconds: spent(), prepared, resolution: finest, ...found });
  // The page may have paused this worker already.
  await breathe();
  for (const old of forget) [states, told].forEach((map) => map.delete(old));
  if (given) told.set(spec, given);
  const facts = /** @type {Tune.SpecFacts} */ (told.get(spec));
  const build = async () => makeRunner(module, 'k0', 1, candidate.tiles);
  /** @type {WebAssembly.Module} */
  let module;
  try {
    blame(true);
    module = await compiled(candidate.module);
    let runner;
    if (judge) {
      runner = await build();
      const { wrong, refuted } = await question(facts, runner, incumbent);
      if (wrong) return outcome({ verdict: 'wrong', why: wrong });
      if (refuted) {
        loaded?.known.set(candidate.digest, runner);
        return outcome({ verdict: 'faster', module, refuted });
      }
    }
    blame(false);
    const known = states.get(spec);
    if (known) use(known);
    else await prepare(facts, null);
    // Restores what the previous candidate may have overwritten.
    lay(facts);
    const other = await runnerOf(incumbent);
    prepared = spent();
    blame(true);
    runner ??= await build();
    if (confirm) {
      const wrong = await check(runner);
      return outcome(wrong ? { verdict: 'wrong', why: wrong } : { verdict: 'faster', module });
    }
    const { wins, ...found } = await against(runner, other, bar, LIMITS.map((limit) => (times) => spent() - prepared > times * limit));
    if (!wins) return outcome(found);
    loaded?.known.set(candidate.digest, runner);
    return outcome({ ...found, module });
  } catch (error) {
    if (trying && error instanceof Refused) return outcome({ verdict: 'refused', why: error.message });
    if (trying && error instanceof Trapped) return outcome({ verdict: 'trapped', why: error.message });
    throw error;
  } finally {
    blame(false);
  }
}

/** @type {Record<string, (params: any) => unknown>} */
const HANDLERS = {
  async open({ code, entries, bytes, scratchBytes }) {
    openMemory(bytes, scratchBytes);
    bundled = await compiled(new Uint8Array(code), entries);
    slots = entries;
    readClock();
    return { resolution: finest };
  },
  attempt,
  async compare({ dtype, rounds, found, wanted }) {
    const [got, want] = [found, wanted].map(({ buffer }) => new (arrayOf(dtype))(buffer));
    return difference(got, want, await allowed(want, dtype, rounds) * (isFloat(dtype) ? MOST_DOUBT : 1));
  },
  async l1() {
    await breathe();
    return l1Bytes();
  },
};

self.addEventListener('message', async ({ data: { id, kind, params, pause } }) => {
  if (pause !== undefined) return rest(pause);
  const end = beating();
  try {
    self.postMessage({ id, value: await HANDLERS[kind](params) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  } finally {
    end();
  }
});

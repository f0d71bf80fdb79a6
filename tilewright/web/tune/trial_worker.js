// The worker in which candidates are tried, with a memory of its own: never the model's.
// Input: requests of trials.js.  Output: a verdict on each candidate.  A kernel that hangs is the
// page's business: it ends this worker.

import { l1Bytes } from './device.js';
import { filled } from './inputs.js';
import { beginWork, pause, workedUntilNow } from './trial_breath.js';
import { begin, check, lay, loaded, makeRunner, openMemory, output, refutation, runAll, use } from './trial_memory.js';
import { compare, finest, quick, readClock, warm } from './trial_timing.js';

/** Milliseconds of a trial after which no further pair is measured: of the first verdict, and of all. */
const VERDICT_AFTER = 400;
const TRIAL_MOST = 650;
/** Milliseconds of the first two sets without which there is a third. */
const LONG = 250;
/** So many times slower is slower without a test. */
const FAR = 1.5;

/** @type {WebAssembly.Module} */
let bundled;
let slots = 0;
/** All kernels that were tried. @type {Map<number, Tune.Loaded>} */
const states = new Map();
/** @type {Map<number, Tune.Facts>} */
const told = new Map();

/** What a kernel makes of the inputs: the bundle's own, or the one that is to judge it. @type {Tune.Prepare} */
async function prepare(facts, reference) {
  /** @type {Tune.Loaded} */
  const next = { facts, ...lay(facts), sets: {}, known: new Map() };
  use(next);
  const start = performance.now();
  try {
    const standard = await makeRunner(bundled, `k${facts.slot}`, slots, facts.tiles);
    next.known.set('', standard);
    for (const set of ['random', 'edge', 'special']) {
      // Long kernels are not run for each rare number.
      if (set === 'special' && (!facts.special || performance.now() - start > LONG)) continue;
      const inputs = facts.buffers.map((buffer, number) => (number ? filled(buffer, set, 1 + number + 31 * facts.spec) : null));
      next.sets[set] = { inputs, wanted: null };
      begin(set);
      try {
        await runAll(reference ?? standard, false);
        next.sets[set].wanted = output().slice();
      } catch (error) {
        // Numbers that the kernel refuses, as it may, compare nothing.
        if (set === 'random' || !(error instanceof WebAssembly.RuntimeError)) throw error;
        delete next.sets[set];
      }
    }
    if (!reference) {
      begin('random');
      await warm(standard, NaN);
    }
    states.set(facts.spec, next);
  } catch (error) {
    use(null);
    throw error;
  }
}

/** The kernel that candidates must beat: the bundle's own, or a winner of before. @type {Tune.RunnerOf} */
async function runnerOf(known) {
  const { known: runners } = /** @type {Tune.Loaded} */ (loaded);
  const key = known?.digest ?? '';
  const found = runners.get(key);
  if (found || !known) return /** @type {Tune.Runner} */ (found);
  const made = await makeRunner(await WebAssembly.compile(known.module), 'k0', 1, known.tiles);
  begin('random');
  await warm(made, NaN);
  runners.set(key, made);
  return made;
}

/** @type {Tune.Attempt} */
async function attempt({ spec, facts: given, forget, candidate, incumbent, margin, judge }) {
  const start = beginWork();
  const spent = () => workedUntilNow() - start;
  const over = (/** @type {number} */ limit) => (times = 1) => spent() - prepared > times * limit;
  for (const old of forget) [states, told].forEach((map) => map.delete(old));
  if (given) told.set(spec, given);
  let prepared = 0;
  const outcome = (/** @type {Tune.Verdict} */ verdict, /** @type {object} */ more = {}) => ({ verdict, milliseconds: spent(), prepared, resolution: finest, ...more });
  const before = states.get(spec);
  const facts = /** @type {Tune.Facts} */ (told.get(spec));
  let module;
  let runner;
  try {
    module = await WebAssembly.compile(candidate.module);
    runner = await makeRunner(module, 'k0', 1, candidate.tiles);
  } catch (error) {
    return outcome('refused', { why: String(error) });
  }
  try {
    if (judge) await prepare(facts, runner);
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    states.delete(spec);
    return outcome('trapped', { why: error.message });
  }
  if (!judge && !before) await prepare(facts, null);
  else if (!judge && loaded !== before) lay(/** @type {Tune.Loaded} */ (use(/** @type {Tune.Loaded} */ (before))).facts);
  const { known } = /** @type {Tune.Loaded} */ (loaded);
  if (judge) {
    // Whether its tiles can go in any order, and stay where they may write.
    const wrong = await refutation(runner);
    if (wrong) {
      states.delete(spec);
      use(null);
      return outcome('wrong', { why: wrong });
    }
    // A winner of before may be right where the bundle's own kernel, to which all later ones are compared, is not.
    const refuted = await refutation(/** @type {Tune.Runner} */ (known.get(''))) || await refutation(await runnerOf(incumbent));
    lay(facts);
    if (refuted) {
      known.set(candidate.digest, runner);
      return outcome('faster', { module, refuted });
    }
  }
  const other = await runnerOf(incumbent);
  if (judge) {
    begin('random');
    await warm(other, NaN);
  }
  prepared = spent();
  try {
    begin('random');
    const bar = await quick(other);
    const time = await warm(runner, bar);
    // Far behind: not worth to know by how much.
    if (time > FAR * bar) {
      const ratio = await quick(other) / await quick(runner);
      if (ratio < 1 / FAR) return outcome('slower', { ratio });
    }
    const wrong = await check(runner);
    if (wrong) {
      lay(facts);
      return outcome('wrong', { why: wrong });
    }
    begin('random');
    const times = [bar, time];
    const { ratio, low, high, first, second, sure, ...more } = await compare(other, runner, times, margin, over(VERDICT_AFTER));
    const found = { ratio, low, high, times: [first, second], ...more };
    if (!(sure && low > margin)) return outcome(high < 1 ? 'slower' : 'same', found);
    // The rounds of parts have confirmed each other; few pairs have luck.
    const again = more.parts > 1 ? found : await compare(other, runner, times, 1, over(TRIAL_MOST));
    if (!(again.ratio > margin && again.low > 1)) return outcome('same', found);
    known.set(candidate.digest, runner);
    return outcome('faster', { ...found, module });
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    lay(facts);
    return outcome('trapped', { why: error.message });
  }
}

/** @type {Record<string, (params: any) => unknown>} */
const HANDLERS = {
  async open({ code, entries, bytes, scratchBytes }) {
    openMemory(bytes, scratchBytes);
    bundled = await WebAssembly.compile(code);
    slots = entries;
    readClock();
    return { resolution: finest };
  },
  attempt,
  l1: () => l1Bytes(),
};

self.addEventListener('message', async ({ data: { id, kind, params, pause: on } }) => {
  if (on !== undefined) return pause(on);
  try {
    self.postMessage({ id, value: await HANDLERS[kind](params) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});

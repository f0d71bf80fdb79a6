// Judges candidates in a worker with a memory of its own, never the model's.
// Input: requests of trials.js; the memory and the clock of a device (`Tune.Bench`, `Tune.Clock`).  Output: a verdict on each
// candidate; an error if something fails before it runs.  If a kernel hangs, the page terminates the worker.

import { contest } from './pairs.js';
import { allowed, arrayOf, difference, isFloat } from './inputs.js';
import { beginWork, breathe, rest, workedUntilNow } from './breath.js';
import { inputsOf, Lost, MOST_DOUBT, Refused, Trapped } from './checks.js';
import { freezeBuiltIns } from './pristine.js';

/** Milliseconds after which no further pair is measured, for the first comparison and for both together. */
const LIMITS = [400, 650];
/** Input sets, in the order in which they are checked. */
const SETS = ['random', 'edge', 'special'];
/** If the sets `random` and `edge` take more milliseconds, the set `special` is skipped. */
const LONG = 250;
/** Milliseconds of preparation from which on the page keeps the expected results for the next worker. */
const COSTLY = 100;
/** A candidate slower by this factor is not compared further. */
const FAR = 1.5;
/** Looks, by turns, that must agree on it. */
const LOOKS = 3;
/** Cold code is about 10 times slower than optimised code: a candidate slower by this factor stays slower once optimised. */
const HOPELESS = 40;
/** Milliseconds of a look below which its time may be that of lazy compilation, and above which no other look is needed. */
const BRIEF = 3;
const ENOUGH = 400;

/** Answers the page's requests for the worker's lifetime; `more`: requests of the device alone. @type {Tune.Judge} */
export function judge(bench, clock, more = {}) {
  freezeBuiltIns();
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

  /**
   * Makes the input sets and expected results of a kernel, with the bundle's own kernel or the given reference; `expected`: results
   * of the bundle's own that an earlier worker told.
   * @type {Tune.Prepare}
   */
  async function prepare(facts, reference, expected) {
    states.delete(facts.spec);
    const start = workedUntilNow();
    const blamed = trying;
    blame(false);
    const standard = await bench.own(facts);
    blame(blamed);
    /** @type {Tune.LoadedKernel} */
    const next = { facts, ...await bench.lay(facts), sets: {}, standard, reference: reference ?? standard, known: new Map() };
    bench.use(next);
    for (const name of SETS) {
      // Skipped for slow kernels.
      if (expected ? !expected[name] : name === 'special' && (!facts.special || workedUntilNow() - start > LONG)) continue;
      const set = next.sets[name] = { inputs: await inputsOf(facts, name), wanted: null, allowed: 0, doubted: false };
      if (expected) {
        await bench.accept(set, expected[name]);
        continue;
      }
      await bench.begin(name);
      try {
        await bench.runAll(next.reference, false);
        await bench.accept(set);
      } catch (error) {
        // A correct kernel may trap on unusual values; then the set is dropped.
        if (name === 'random' || !(error instanceof Trapped)) throw error;
        delete next.sets[name];
      }
    }
    states.set(facts.spec, next);
    if (!expected && workedUntilNow() - start > COSTLY) tell(next);
  }

  /** The page keeps what a slow kernel computed, if no candidate has run in this worker. @type {Tune.Tell} */
  function tell({ facts: { spec }, sets }) {
    self.postMessage({ expected: { spec, sets: Object.fromEntries(Object.entries(sets).map(([name, { wanted }]) => [name, wanted])) } });
  }

  /** The kernel that candidates must beat, warm: the bundle's own (null) or an earlier winner; `usual`: its milliseconds in an earlier trial, or NaN. @type {Tune.RunnerOf} */
  async function runnerOf(known, usual = NaN) {
    const { known: runners, standard } = /** @type {Tune.LoadedKernel} */ (bench.loaded);
    const key = known?.digest ?? '';
    const found = runners.get(key);
    if (found) return found;
    const made = known ? await bench.runnerFor(await bench.compiled(known.module), known.tiles) : standard;
    await bench.begin('random');
    await clock.warm(made, usual);
    runners.set(key, made);
    return made;
  }

  /**
   * Checks the kernels in use against the compiler's own (`runner`).  Both the bundle's kernel, to which later candidates are
   * compared, and an earlier winner must agree with it.
   * @type {Tune.Question}
   */
  async function question(facts, runner, incumbent) {
    await prepare(facts, runner, null);
    // The reference itself must work with tiles in any order, and stay within its bounds.
    const wrong = await bench.refutation(runner);
    if (wrong) {
      states.delete(facts.spec);
      return { wrong };
    }
    blame(false);
    const { standard } = /** @type {Tune.LoadedKernel} */ (bench.loaded);
    return { refuted: await bench.refutation(standard) || (incumbent && await bench.refutation(await runnerOf(incumbent))) || '' };
  }

  /**
   * The verdict on a candidate so slow that no precise ratio is needed; null if it may not be.  One busy moment of the
   * machine must not decide it, so all of several looks by turns have to agree.
   * @type {Tune.FarSlower}
   */
  async function farSlower(runner, other) {
    const times = [Infinity, Infinity];
    for (let look = 0; look < LOOKS; look++) {
      times[0] = Math.min(times[0], await clock.quick(other));
      times[1] = Math.min(times[1], await clock.quick(runner));
      if (times[1] <= FAR * times[0]) return null;
    }
    return { verdict: 'slower', ratio: times[0] / times[1], times };
  }

  /**
   * The verdict on a candidate so slow that it must not even warm up, which takes many tiles; null if it may not be.
   * `least`: milliseconds of the kernel in use.
   * @type {Tune.Hopeless}
   */
  async function hopeless(runner, least) {
    let [best, total] = [Infinity, 0];
    for (let look = 0; look < LOOKS && total < ENOUGH; look++) {
      const { whole, spent } = await clock.glance(runner);
      best = Math.min(best, whole);
      total += spent;
      if (spent < BRIEF || best <= HOPELESS * least) return null;
    }
    return { verdict: 'slower', ratio: least / best, times: [least, best] };
  }

  /** Tries a candidate that has not run yet against the kernel in use. @type {Tune.Against} */
  async function against(runner, other, bar, overs, lap) {
    await bench.begin('random');
    const least = await clock.quick(other);
    const dropped = await hopeless(runner, least);
    lap('look');
    if (dropped) return dropped;
    const time = await clock.warm(runner, least);
    const found = time > FAR * least ? await farSlower(runner, other) : null;
    lap('warm');
    if (found) return found;
    const wrong = await bench.check(runner);
    lap('check');
    if (wrong) return { verdict: 'wrong', why: wrong };
    await bench.begin('random');
    const pairs = clock.pairsOf(other, runner, [least, time]);
    const { first, second, undecided, ...contested } = await contest(pairs, bar, overs);
    lap('pairs');
    const why = undecided ? 'undecided: it was interrupted too often' : '';
    return { ...contested, times: [first, second], parts: pairs.parts, ...(why && { why }) };
  }

  /** @type {Tune.Attempt} */
  async function attempt({ spec, facts: given, expected, forget, candidate, incumbent, usual, bar, judge, confirm }) {
    const start = beginWork();
    const spent = () => workedUntilNow() - start;
    /** Milliseconds by stage. @type {Record<string, number>} */
    const stages = {};
    let before = 0;
    /** The end of a stage. @type {Tune.Lap} */
    const lap = (stage) => {
      stages[stage] = (stages[stage] ?? 0) + spent() - before;
      before = spent();
    };
    const outcome = (/** @type {Tune.Found} */ found) => ({ milliseconds: spent(), stages, resolution: clock.finest, ...found });
    // The page may have paused this worker already.
    await breathe();
    for (const old of forget) [states, told].forEach((map) => map.delete(old));
    if (given) told.set(spec, given);
    const facts = /** @type {Tune.SpecFacts} */ (told.get(spec));
    const build = async () => bench.runnerFor(module, candidate.tiles);
    /** @type {Tune.Code} */
    let module;
    try {
      blame(true);
      module = await bench.compiled(candidate.module);
      lap('build');
      let runner;
      if (judge) {
        runner = await build();
        const { wrong, refuted } = await question(facts, runner, incumbent);
        if (wrong) return outcome({ verdict: 'wrong', why: wrong });
        if (refuted) {
          bench.loaded?.known.set(candidate.digest, runner);
          return outcome({ verdict: 'faster', module, refuted });
        }
      }
      blame(false);
      const known = states.get(spec);
      if (known) bench.use(known);
      else await prepare(facts, null, expected);
      // Restores what the previous candidate may have overwritten.
      await bench.lay(facts);
      lap('prepare');
      const other = confirm ? null : await runnerOf(incumbent, usual);
      lap('incumbent');
      blame(true);
      runner ??= await build();
      if (!other) {
        const wrong = await bench.check(runner);
        lap('check');
        return outcome(wrong ? { verdict: 'wrong', why: wrong } : { verdict: 'faster', module });
      }
      lap('build');
      const from = spent();
      const { wins, ...found } = await against(runner, other, bar, LIMITS.map((limit) => (times) => spent() - from > times * limit), lap);
      if (!wins) return outcome(found);
      bench.loaded?.known.set(candidate.digest, runner);
      return outcome({ ...found, module });
    } catch (error) {
      if (trying && error instanceof Refused) return outcome({ verdict: 'refused', why: error.message });
      if (trying && error instanceof Trapped) return outcome({ verdict: 'trapped', why: error.message });
      if (trying && error instanceof Lost) return outcome({ verdict: 'trapped', why: error.message, gone: true });
      throw error;
    } finally {
      blame(false);
    }
  }

  /** @type {Record<string, (params: any) => unknown>} */
  const handlers = {
    async open(given) {
      await bench.open(given);
      clock.readClock();
      return { resolution: clock.finest };
    },
    attempt,
    async compare({ dtype, rounds, found, wanted }) {
      const [got, want] = [found, wanted].map(({ buffer }) => new (arrayOf(dtype))(buffer));
      return difference(got, want, await allowed(want, dtype, rounds) * (isFloat(dtype) ? MOST_DOUBT : 1));
    },
    ...more,
  };

  self.addEventListener('message', async ({ data: { id, kind, params, pause, ahead } }) => {
    if (pause !== undefined) return rest(pause);
    if (ahead) return bench.ahead?.(ahead);
    const end = bench.beating();
    try {
      self.postMessage({ id, value: await handlers[kind](params) });
    } catch (error) {
      self.postMessage({ id, error: String(error) });
    } finally {
      end();
    }
  });
}

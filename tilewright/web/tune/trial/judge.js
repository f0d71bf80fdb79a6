// Judges candidates in a worker with its own memory, apart from the model's.
// Input: requests of trials.js; the memory and the clock of a device (`Tune.Bench`, `Tune.Clock`).  Output: a verdict on each candidate, or
// an error if something fails before the candidate runs.  If a kernel hangs, the page terminates the worker.

import { inputsOf, Lost, MOST_DOUBT, Refused, Trapped } from './checks.js';
import { allowed, arrayOf, difference, isFloat } from './trial_inputs.js';
import { contest } from './paired_times.js';
import { beginWork, rest, workedUntilNow, yieldNow } from './yielding.js';

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
/** The number of alternating measurements that must all show this factor. */
const LOOKS = 3;
/** Cold code is about 10 times slower than optimised code: a candidate slower by this factor stays slower once optimised. */
const HOPELESS = 40;
/** A measurement shorter than the first may be lazy compilation; one longer than the second needs no repetition.  In milliseconds. */
const BRIEF = 3;
const ENOUGH = 400;

/** Answers the page's requests for the worker's lifetime; `more`: requests that only this device has. @type {Tune.Judge} */
export function judge(bench, clock, more = {}) {
  freezeBuiltIns();
  const own = new Judge(bench, clock);
  /** @type {Record<string, (params: any) => unknown>} */
  const handlers = {
    open: (given) => own.open(given),
    attempt: (asked) => own.attempt(asked),
    compare: compared,
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

/** A sentence about how two results of a kernel differ, or ''. @type {(results: Tune.Results) => Promise<string>} */
async function compared({ dtype, rounds, found, wanted }) {
  const [got, want] = [found, wanted].map(({ buffer }) => new (arrayOf(dtype))(buffer));
  return difference(got, want, await allowed(want, dtype, rounds) * (isFloat(dtype) ? MOST_DOUBT : 1));
}

/** Milliseconds of a trial, by stage, without pauses. */
class Stages {
  #start = beginWork();
  #before = 0;
  /** @type {Record<string, number>} */
  milliseconds = {};

  spent() {
    return workedUntilNow() - this.#start;
  }

  /** Ends a stage. @param {string} stage */
  end(stage) {
    this.milliseconds[stage] = (this.milliseconds[stage] ?? 0) + this.spent() - this.#before;
    this.#before = this.spent();
  }
}

class Judge {
  #bench;
  #clock;
  /** The cache: by specification, prepared kernels. @type {Map<number, Tune.LoadedKernel>} */
  #states = new Map();
  /** @type {Map<number, Tune.SpecFacts>} */
  #told = new Map();
  /** True while a failure would be the candidate's fault. */
  #trying = false;

  /** @param {Tune.Bench} bench @param {Tune.Clock} clock */
  constructor(bench, clock) {
    this.#bench = bench;
    this.#clock = clock;
  }

  /** @param {Parameters<Tune.OpenBench>[0]} given */
  async open(given) {
    await this.#bench.open(given);
    this.#clock.readClock();
    return { resolution: this.#clock.finest };
  }

  /** @type {Tune.Attempt} */
  async attempt(asked) {
    const stages = new Stages();
    // The page may have paused this worker already.
    await yieldNow();
    const { spec, facts, forget } = asked;
    for (const old of forget) [this.#states, this.#told].forEach((map) => map.delete(old));
    if (facts) this.#told.set(spec, facts);
    const outcome = (/** @type {Tune.Found} */ found) => ({ milliseconds: stages.spent(), stages: stages.milliseconds, resolution: this.#clock.finest, ...found });
    try {
      this.#blame(true);
      return outcome(await this.#verdict(asked, /** @type {Tune.SpecFacts} */ (this.#told.get(spec)), stages));
    } catch (error) {
      if (this.#trying && error instanceof Refused) return outcome({ verdict: 'refused', why: error.message });
      if (this.#trying && error instanceof Trapped) return outcome({ verdict: 'trapped', why: error.message });
      if (this.#trying && error instanceof Lost) return outcome({ verdict: 'trapped', why: error.message, gone: true });
      throw error;
    } finally {
      this.#blame(false);
    }
  }

  /** @type {Tune.VerdictOn} */
  async #verdict({ candidate, incumbent, expected, usual, bar, judge, confirm }, facts, stages) {
    const bench = this.#bench;
    /** @type {Tune.Code} */
    const module = await bench.compiled(candidate.module);
    stages.end('build');
    let runner;
    if (judge) {
      runner = await bench.runnerFor(module, candidate.tiles);
      const { wrong, refuted } = await this.#question(facts, runner, incumbent);
      if (wrong) return { verdict: 'wrong', why: wrong };
      if (refuted) {
        bench.loaded?.known.set(candidate.digest, runner);
        return { verdict: 'faster', module, refuted };
      }
    }
    this.#blame(false);
    const known = this.#states.get(facts.spec);
    if (known) bench.use(known);
    else await this.#prepare(facts, null, expected);
    // Restores what the previous candidate may have overwritten.
    await bench.lay(facts);
    stages.end('prepare');
    const other = confirm ? null : await this.#runnerOf(incumbent, usual);
    stages.end('incumbent');
    this.#blame(true);
    runner ??= await bench.runnerFor(module, candidate.tiles);
    if (!other) {
      const wrong = await bench.check(runner);
      stages.end('check');
      return wrong ? { verdict: 'wrong', why: wrong } : { verdict: 'faster', module };
    }
    stages.end('build');
    const { wins, ...found } = await this.#against(runner, other, bar, stages);
    if (!wins) return found;
    bench.loaded?.known.set(candidate.digest, runner);
    return { ...found, module };
  }

  /** Tells the page whether a candidate is running, and so who is to blame for a hang. @param {boolean} on */
  #blame(on) {
    if (on !== this.#trying) self.postMessage({ trying: on });
    this.#trying = on;
  }

  /**
   * Compares the kernels in use with the compiler's own (`runner`).  Both the bundle's kernel, to which later candidates are compared, and
   * an earlier winner must agree with it.
   * @type {Tune.Question}
   */
  async #question(facts, runner, incumbent) {
    const bench = this.#bench;
    await this.#prepare(facts, runner, null);
    // The reference itself must work with tiles in any order, and stay within its bounds.
    const wrong = await bench.refutation(runner);
    if (wrong) {
      this.#states.delete(facts.spec);
      return { wrong };
    }
    this.#blame(false);
    const { standard } = /** @type {Tune.LoadedKernel} */ (bench.loaded);
    return { refuted: await bench.refutation(standard) || (incumbent && await bench.refutation(await this.#runnerOf(incumbent))) || '' };
  }

  /**
   * Makes the input sets and expected results of a kernel, with the bundle's own kernel or the given reference; `expected`: results of the
   * bundle's own kernel from an earlier worker.
   * @type {Tune.Prepare}
   */
  async #prepare(facts, reference, expected) {
    const bench = this.#bench;
    this.#states.delete(facts.spec);
    const start = workedUntilNow();
    const blamed = this.#trying;
    this.#blame(false);
    const standard = await bench.own(facts);
    this.#blame(blamed);
    /** @type {Tune.LoadedKernel} */
    const next = { facts, ...await bench.lay(facts), sets: {}, standard, reference: reference ?? standard, known: new Map() };
    bench.use(next);
    for (const name of SETS) {
      // Skipped for slow kernels.
      if (expected ? !expected[name] : name === 'special' && (!facts.special || workedUntilNow() - start > LONG)) continue;
      await this.#addSet(next, name, expected);
    }
    this.#states.set(facts.spec, next);
    if (!expected && workedUntilNow() - start > COSTLY) tell(next);
  }

  /** Makes an input set and its expected result. @type {Tune.AddSet} */
  async #addSet(kernel, name, expected) {
    const bench = this.#bench;
    const set = kernel.sets[name] = { inputs: await inputsOf(kernel.facts, name), wanted: null, allowed: 0, doubted: false };
    if (expected) {
      await bench.accept(set, expected[name]);
      return;
    }
    await bench.begin(name);
    try {
      await bench.runAll(kernel.reference, false);
      await bench.accept(set);
    } catch (error) {
      // A correct kernel may trap on unusual values; then the set is dropped.
      if (name === 'random' || !(error instanceof Trapped)) throw error;
      delete kernel.sets[name];
    }
  }

  /** The kernel that candidates must beat, warm: the bundle's own (null) or an earlier winner; `usual`: its milliseconds in an earlier trial, or NaN. @type {Tune.RunnerOf} */
  async #runnerOf(known, usual = NaN) {
    const bench = this.#bench;
    const { known: runners, standard } = /** @type {Tune.LoadedKernel} */ (bench.loaded);
    const key = known?.digest ?? '';
    const found = runners.get(key);
    if (found) return found;
    const made = known ? await bench.runnerFor(await bench.compiled(known.module), known.tiles) : standard;
    await bench.begin('random');
    await this.#clock.warm(made, usual);
    runners.set(key, made);
    return made;
  }

  /** Tries a candidate that has not run yet against the kernel in use. @type {Tune.Against} */
  async #against(runner, other, bar, stages) {
    const [bench, clock] = [this.#bench, this.#clock];
    const from = stages.spent();
    await bench.begin('random');
    const least = await clock.warmEstimate(other);
    const dropped = await this.#hopeless(runner, least);
    stages.end('look');
    if (dropped) return dropped;
    const time = await clock.warm(runner, least);
    const found = time > FAR * least ? await this.#farSlower(runner, other) : null;
    stages.end('warm');
    if (found) return found;
    const wrong = await bench.check(runner);
    stages.end('check');
    if (wrong) return { verdict: 'wrong', why: wrong };
    await bench.begin('random');
    const pairs = clock.pairsOf(other, runner, [least, time]);
    const overs = LIMITS.map((limit) => (/** @type {number} */ times) => stages.spent() - from > times * limit);
    const { first, second, undecided, ...contested } = await contest(pairs, bar, overs);
    stages.end('pairs');
    const why = undecided ? 'undecided: it was interrupted too often' : '';
    return { ...contested, times: [first, second], parts: pairs.parts, ...(why && { why }) };
  }

  /**
   * The verdict `slower` for a candidate that is so slow that warming it up would take too long; null if that is not certain.  `least`:
   * milliseconds of the kernel in use.
   * @type {Tune.Hopeless}
   */
  async #hopeless(runner, least) {
    let [best, total] = [Infinity, 0];
    for (let look = 0; look < LOOKS && total < ENOUGH; look++) {
      const { whole, spent } = await this.#clock.coldEstimate(runner);
      best = Math.min(best, whole);
      total += spent;
      if (spent < BRIEF || best <= HOPELESS * least) return null;
    }
    return { verdict: 'slower', ratio: least / best, times: [least, best] };
  }

  /**
   * The verdict `slower` for a candidate that is so slow that no precise ratio is needed; null if that is not certain.  Several
   * alternating measurements must agree, so that one busy moment of the machine does not decide.
   * @type {Tune.FarSlower}
   */
  async #farSlower(runner, other) {
    const times = [Infinity, Infinity];
    for (let look = 0; look < LOOKS; look++) {
      times[0] = Math.min(times[0], await this.#clock.warmEstimate(other));
      times[1] = Math.min(times[1], await this.#clock.warmEstimate(runner));
      if (times[1] <= FAR * times[0]) return null;
    }
    return { verdict: 'slower', ratio: times[0] / times[1], times };
  }
}

/** Sends a slow kernel's results to the page, if no candidate has run in this worker. @type {Tune.Tell} */
function tell({ facts: { spec }, sets }) {
  self.postMessage({ expected: { spec, sets: Object.fromEntries(Object.entries(sets).map(([name, { wanted }]) => [name, wanted])) } });
}

/** @type {any[]} */
const BUILT_IN = [
  Object, Function, Boolean, Symbol, Number, BigInt, Math, String, RegExp, Date, Array, Map, Set, WeakMap, WeakSet, Promise, Proxy, Reflect,
  JSON, Atomics, ArrayBuffer, DataView, Object.getPrototypeOf(Uint8Array), Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array,
  Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array, TextDecoder, TextEncoder,
  WebAssembly, WebAssembly.Module, WebAssembly.Instance, WebAssembly.Memory, WebAssembly.Table, WebAssembly.Global,
  Object.getPrototypeOf([][Symbol.iterator]()), Object.getPrototypeOf(new Map()[Symbol.iterator]()),
  // Without cross-origin isolation browsers may not have it.
  ...(globalThis.SharedArrayBuffer ? [SharedArrayBuffer] : []),
];

/**
 * Freezes JavaScript's built-in objects before the first candidate arrives.  Even if a defect lets a candidate run code, it cannot redefine
 * functions that compute its verdict.  Errors are not frozen: their subclasses assign `name`, which a frozen prototype would refuse.
 */
function freezeBuiltIns() {
  for (const known of BUILT_IN) {
    Object.freeze(known);
    if (known.prototype) Object.freeze(known.prototype);
  }
  Object.freeze(Object.getPrototypeOf(performance));
  for (const name of ['performance', 'WebAssembly', 'Math', 'Number', 'Object', 'Array', 'Atomics', 'postMessage']) {
    Object.defineProperty(globalThis, name, { value: globalThis[/** @type {'Math'} */ (name)], writable: false, configurable: false });
  }
}

// Replaces a tuned kernel that traps in a run of the page, or does not end, by the bundle's own, and restarts the engine.
// Input: an engine with tuned kernels.  Output: the same engine with a guarded `run`.  A run that trapped still rejects; a run that did not
// end is repeated. A kernel can write anywhere in the model's memory, so values that are read from it prove nothing.  The guard also moves
// the engine off a GPU that a trial made unresponsive (unresponsive_gpu.js).  A watchdog notices by the engine's slowest run so far that a
// job does not end; runs that the page holds back do not count.

import { PREEMPT } from '../../engine/abi.js';
import { EngineError } from '../../engine/errors.js';
import { stepOf, wordsOf } from '../../engine/plan_runner.js';
import { isLost, requireWhole, startAgain } from '../../engine/restart.js';
import { changeOf, condemn, recall } from '../records/device_record.js';
import { tunedOf } from '../records/engine_state.js';
import { answers, listening, replacedEngine } from './unresponsive_gpu.js';

/**
 * The most losses of the GPU device that are recovered from; after the second no tuned kernel is used, since one may have been the cause.
 */
const MOST_LOSSES = 3;

/** Guards the jobs of one engine of the page, across its restarts. */
export class Guard {
  /** @type {T.Engine} */
  #engine;

  /** True if the engine's present methods are guarded. */
  #installed = false;

  /** The exchange of kernels in progress. @type {Tune.OpenExchange | null} */
  #exchange = null;

  /** The latest restart, which may be in progress; resolves with whether states were kept. @type {Promise<boolean> | undefined} */
  #start;

  /** True once the page has disposed of the engine. */
  #ended = false;

  /** How often the GPU device was lost. */
  #losses = 0;

  /** True if the GPU did not answer: a new device may not come, or may be lost with the GPU. */
  #silent = false;

  /** True if the engine restarted without its states while no run of the page was open to report it. */
  #untold = false;

  /** Milliseconds of the page's slowest run. */
  #slowest = 0;

  /** @param {T.Engine} engine */
  constructor(engine) {
    this.#engine = engine;
  }

  /** Identifies the engine's latest restart: it changes when a kernel did not end. */
  get start() {
    return this.#start;
  }

  /**
   * Does work that swaps these kernels.  If one of them traps in a run of the page meanwhile, the guard only notes it; `work` can ask.
   * @type {Tune.Undisturbed}
   */
  async undisturbed(specs, work) {
    /** @type {Tune.OpenExchange} */
    const exchange = { specs, trapped: '' };
    this.#exchange = exchange;
    try {
      return await work(() => exchange.trapped);
    } finally {
      this.#exchange = null;
    }
  }

  /** The function by which a trial checks whether it made the engine's device unresponsive (`Tune.Listening`). */
  listen() {
    return listening(this.#engine.parts, () => this.#slowest);
  }

  /** After a trial that hung: restarts an engine whose own device does not answer; resolves with whether it did. */
  async outlive() {
    await this.#begun();
    const start = this.#start;
    if (await answers(this.#engine, this.#slowest) || this.#ended) return false;
    this.#silent = true;
    // Its loss may have been noticed meanwhile.
    await (this.#start === start ? this.#startAgain([], false) : this.#begun());
    return true;
  }

  /**
   * Restarts the engine from verified files after a bad kernel was found: what else it wrote is unknown.
   * @param {Tune.Winner[]} [guilty]
   */
  async renewed(guilty = []) {
    if (!this.#ended) await this.#startAgain(guilty, true);
  }

  /** Guards the engine's methods, unless they are guarded already. */
  install() {
    if (this.#installed) return;
    this.#installed = true;
    const engine = this.#engine;
    const start = this.#start;
    const { preempt, dispose } = engine;
    // With device 'auto' or `recover` the engine recovers by itself, but does not know tuned kernels.
    const { run, time, profile } = engine.parts.bare ?? engine;
    // Not read from memory later: a kernel can write there.
    let held = isHeld(engine);
    const watched = watch(engine, () => held, () => this.#slowest, (again) => this.#revived(again).catch(() => {}));
    engine.preempt = (on) => {
      preempt(on);
      held = on;
    };
    engine.dispose = () => {
      this.#ended = true;
      dispose();
    };
    engine.time = (options) => this.#recovered(start, watched(time(options), options?.runs));
    engine.profile = (options) => this.#recovered(start, watched(profile(options), options?.runs));
    engine.run = (...given) => this.#ran(start, given, () => run(...given), watched);
  }

  /** A run of the page; `start`: the restart to which its engine belongs. @type {Tune.GuardedRun} */
  async #ran(start, given, run, watched) {
    if (this.#start !== start) return this.#repeated(given);
    this.#requireTold('The engine started again');
    try {
      const found = await this.#recovered(start, watched(run()));
      this.#slowest = Math.max(found.milliseconds, this.#slowest);
      return found;
    } catch (error) {
      if (this.#start !== start) return this.#repeated(given, error);
      // The page gets the run's own error in any case.
      await this.#examine(error, run).catch(() => {});
      throw error;
    }
  }

  /**
   * The engine's latest restart; after a failure it is tried again, since a browser gives no adapter while its GPU process starts.
   * @returns {Promise<boolean | undefined>}
   */
  async #begun() {
    const latest = this.#start;
    try {
      return await latest;
    } catch (error) {
      if (this.#ended) throw error;
      // If several runs wait for it, the first one tries.
      return this.#start === latest ? this.#startAgain([], false) : this.#start;
    }
  }

  /** Repeats a run that a restart interrupted or delayed, unless it depends on the contents of the old memory. @type {Tune.Repeated} */
  async #repeated(given, error = '') {
    const whole = await this.#begun();
    if (!whole) this.#untold = true;
    this.#requireTold(`A tuned kernel did not end, so the engine started again: ${error}`);
    return this.#engine.run(...given);
  }

  /** Throws once after a restart that lost data on which a run may depend. @param {string} message */
  #requireTold(message) {
    const untold = this.#untold;
    this.#untold = false;
    if (untold) requireWhole(this.#engine, message);
  }

  /**
   * Ends a job that takes too long.  If no tuned kernel can be the cause, the job is only slow and goes on. `again`: it still goes on, and
   * memory may have named another step.
   * @param {boolean} again
   */
  async #revived(again) {
    const { winners } = await recall(this.#engine);
    const guilty = again ? winners : blamed(this.#engine, winners);
    if (!guilty.length && !this.#exchange) return;
    if (this.#engine.parts.device === 'webgpu') this.#silent = true;
    await this.#startAgain(guilty, false);
  }

  /**
   * Restarts an engine whose GPU device was lost, by a slow kernel or for another reason.  The job still rejects.
   * @type {Tune.Recovered}
   */
  async #recovered(start, job) {
    try {
      return await job;
    } catch (error) {
      // If several jobs are open, the first one that fails restarts.
      if (isLost(error) && !this.#ended && this.#start === start) {
        const count = ++this.#losses;
        if (count <= MOST_LOSSES) await this.#startAgain(count > 1 ? (await recall(this.#engine)).winners : [], false);
      }
      throw error;
    }
  }

  /** @type {Tune.StartAgain} */
  #startAgain(guilty, whole) {
    this.#start = this.#restarted(guilty, whole);
    return this.#start;
  }

  /** `whole`: no job is open, so the states can be kept. @type {Tune.StartAgain} */
  async #restarted(guilty, whole) {
    const engine = this.#engine;
    const { info: { device }, parts: { again }, states } = engine;
    const kept = whole ? await Promise.all(states.names.map(async (state) => ({ state, data: await states.read(state) }))) : [];
    const { winners } = await condemn(engine, guilty);
    if (this.#ended) return whole;
    const taken = device === 'webgpu' && this.#silent;
    await startAgain(engine, {
      end: () => {
        engine.dispose();
        this.#ended = false;
      },
      begin: () => (taken ? replacedEngine(engine) : again()),
      isOver: () => this.#ended,
      refusal: 'bundle-version',
      carry: async (fresh) => {
        for (const { state, data } of kept) await fresh.states.write(state, data);
      },
      tells: taken || undefined,
    });
    this.#installed = false;
    this.install();
    if (!whole) this.#untold = true;
    // It may be another device, with its own winners.
    const fit = engine.info.device === device ? winners : (await recall(engine, true)).winners;
    if (fit.length) await engine.swap(await Promise.all(fit.map((winner) => changeOf(engine, winner))));
    return whole;
  }

  /**
   * Repeats a run that trapped without the winner that memory names, then without all winners.  If it still traps, the inputs are the
   * cause, or a kernel that is being exchanged.
   * @type {Tune.Examine}
   */
  async #examine(error, again) {
    if (!(error instanceof EngineError && error.code === 'kernel-trap')) return;
    const engine = this.#engine;
    const record = await recall(engine);
    const underWay = (/** @type {unknown} */ spec) => this.#exchange?.specs.some((other) => other === spec) ?? false;
    /** Winners that no exchange is handling: an exchange decides itself which of its kernels is in use. @param {Tune.Winner[]} winners */
    const free = (winners) => winners.filter((winner) => record.winners.includes(winner) && !underWay(winner.spec));
    const exchange = this.#exchange;
    if (exchange && underWay(error.facts.spec)) return void (exchange.trapped = 'here');
    const named = record.winners.filter(({ spec }) => spec === error.facts.spec);
    for (const suspects of named.length && named.length < record.winners.length ? [named, record.winners] : [record.winners]) {
      const out = free(suspects);
      const backs = new Map(await Promise.all(out.map(async (winner) => /** @type {const} */ ([winner, await changeOf(engine, winner)]))));
      if (!out.length || free(out).length < out.length) break;
      await engine.swap(out.map(({ spec }) => ({ spec, module: null })));
      const guilty = await again().then(() => true, () => false);
      const left = free(out);
      if (guilty) return left.length ? this.renewed(left) : undefined;
      await engine.swap(left.flatMap((winner) => backs.get(winner) ?? []));
    }
    if (exchange) exchange.trapped ||= 'elsewhere';
  }
}

/** The guard of an engine; each engine has one. @param {T.Engine} engine */
export const guardOf = (engine) => (tunedOf(engine).guard ??= new Guard(engine));

/** True if the page holds runs back. @param {T.Engine} engine */
const isHeld = ({ parts: { memory } }) => Boolean(memory && Atomics.load(wordsOf(memory), PREEMPT));

/** The winner in which the run is, if memory shows it; otherwise all winners. @type {Tune.Blamed} */
function blamed({ parts: { memory, program: { plans } } }, winners) {
  const step = memory ? Atomics.load(wordsOf(memory), stepOf(0)) - 1 : -1;
  if (step < 0) return winners;
  return winners.filter(({ spec }) => plans.some(({ steps }) => steps[step]?.spec === spec));
}

/** Milliseconds between two checks.  Checks are counted, not time, since the device may sleep. */
const LOOK = 500;
/** The least milliseconds that a job may take. */
const TIMEOUT = 5000;
/** The multiple of the page's slowest run so far that a job may take: the tuner times many runs in one job. */
const TIMES = 50;
/** Operations per millisecond that every device can do, for models that have not run yet. */
const SLOW = 1e5;

/**
 * A function through which jobs pass.  It calls `act` when none of them has ended for too long; once more, with true, if that did not help.
 * @type {Tune.Watch}
 */
export function watch({ info: { plans } }, held, slowest, act) {
  const least = Math.max(TIMEOUT, ...plans.map(({ flops }) => flops / SLOW));
  let [acts, times, open, silent] = [0, 1, 0, 0];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  function rest() {
    clearInterval(timer);
    timer = undefined;
  }
  function look() {
    if (held()) silent = 0;
    if (++silent * LOOK < Math.max(least, TIMES * slowest()) * times) return;
    silent = 0;
    if (acts < 2) act(acts++ > 0);
  }
  return async (job, runs = 1) => {
    open++;
    times = Math.max(times, runs / TIMES);
    timer ??= setInterval(look, LOOK);
    try {
      return await job;
    } finally {
      silent = acts = 0;
      if (!--open) {
        times = 1;
        rest();
      }
    }
  };
}

// The page's side of the trial worker: starts it, pauses it, and replaces it if it hangs.
// Input: facts of a specification and a candidate. Output: a verdict on the candidate; or a `host` error if no trial was possible: no
// worker, no memory, unreadable facts.

import { EngineError } from '../../engine/errors.js';
import { launchWorker } from '../../engine/start_worker.js';
import { RIGHT } from '../records/ledger.js';

/** Maximum bytes of inputs and results that the worker caches. */
const HELD = 256 * 2 ** 20;
/** Input sets per kernel, each with a result; weights are not copied. */
const SETS = 3;
/** The most bytes of expected results that the page keeps for later workers. */
const KEPT = 64 * 2 ** 20;
/** Bytes of the worker's memory that are tolerated although recent kernels need far less. */
const SPARE = 64 * 2 ** 20;
/** Consecutive small trials that are tolerated before the worker is replaced to free its memory. */
const IDLE = 8;
/** Milliseconds without a heartbeat after which a kernel counts as hung. */
const TIMEOUT = 4000;
/** Milliseconds between two checks of the heartbeat. */
const LOOK = 250;
/** Share of TIMEOUT after which the page's own device must have answered: a candidate may block the whole GPU before its worker is missed. */
const SHARE = 0.5;
/** Multiple of TIMEOUT that a worker has until its first message. */
const OPENING = 8;
/** Multiple of TIMEOUT that one request may take. */
const MOST = 30;

/** The candidate counts as hung after this many milliseconds. */
class Hung extends Error {
  /** @param {number} milliseconds @param {string} why */
  constructor(milliseconds, why) {
    super(why);
    this.milliseconds = milliseconds;
  }
}

const startWorker = () => launchWorker(() => new Worker(new URL('./trial_worker.js', import.meta.url), { type: 'module', name: 'tilewright-trial' }));

/** @type {Tune.OpenTrials} */
export const openTrials = (given) => new Trials(given);

/** One worker, from start to end: its requests, one at a time, its watchdog, and the contents of its cache. */
class TrialWorker {
  /** True once its messages no longer count. */
  ended = false;
  /** Resolves when it has a memory and the bundle's own kernels. @type {Promise<any>} */
  opened;
  /** @type {Worker | undefined} */
  #worker;
  #patience;
  #taken;
  #remember;
  /** The request without an answer yet. @type {{id: number, resolve: (value: any) => void, reject: (error: unknown) => void} | null} */
  #open = null;
  #next = 1;
  /** Number of the pause that it is in, 0: none; and of the last pause that it acknowledged. */
  #pause = 0;
  #rests = 0;
  /** True while the candidate itself runs, as the worker reports. */
  #trying = false;
  /** Checks since its last message and since the request began; whether it ever sent a message. */
  #silent = 0;
  #looks = 0;
  #heard = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watch;
  /** Kernels whose inputs it caches, and their bytes; the least recently used first. @type {Map<number, number>} */
  #told = new Map();
  /** The most bytes of a kernel so far, and the number of consecutive kernels that needed far less. */
  #largest = 0;
  #idle = 0;
  /** The number of verdicts requested; and the first kernel, whose results it computed before any candidate ran; otherwise NaN. */
  #asked = 0;
  #trusted = NaN;

  /** Starts a worker.  Its heartbeats are checked only after `take`. @param {Tune.Launching} launching @param {object} given for its bench */
  constructor({ start, patience, silent, remember }, given) {
    this.#patience = patience;
    this.#taken = silent;
    this.#remember = remember;
    const { id, answer } = this.#expect();
    this.opened = answer;
    // `take` waits for this, too.
    answer.catch(() => {});
    try {
      this.#worker = start();
      this.#worker.addEventListener('error', (event) => {
        event.preventDefault();
        this.end(failed(event.message || 'its script could not be loaded', 'Serve the files of web/tune beside the engine'));
      });
      this.#worker.addEventListener('message', ({ data }) => this.#hear(data));
      // `code` is copied, not transferred, for the next worker.
      this.#worker.postMessage({ id, kind: 'open', params: given });
    } catch (error) {
      this.#worker?.terminate();
      throw failed(String(error), 'Let the page start workers of its own origin');
    }
  }

  /** Starts checking its heartbeats. @param {number} pause that the page is in, 0: none */
  take(pause) {
    this.#watch = setInterval(() => this.#look(), LOOK);
    this.pause(pause);
  }

  /** @param {number} number of the pause that begins; 0: it ends */
  pause(number) {
    this.#pause = number;
    this.post({ pause: number });
  }

  /** @param {object} message */
  post(message) {
    if (!this.ended) this.#worker?.postMessage(message);
  }

  /** Terminates it, and rejects its request. @param {unknown} error */
  end(error) {
    this.ended = true;
    this.#worker?.terminate();
    clearInterval(this.#watch);
    this.#open?.reject(error);
    this.#open = null;
  }

  /** @type {Tune.Request} */
  async request(kind, params) {
    if (this.ended) throw gone();
    const { id, answer } = this.#expect();
    this.#silent = this.#looks = 0;
    try {
      this.#worker?.postMessage({ id, kind, params });
    } catch (error) {
      this.end(failed(String(error), 'Tune again'));
    }
    return answer;
  }

  /** Asks for a verdict. @param {Tune.Asked} work @returns {Promise<Tune.Outcome>} */
  attempt(work) {
    this.#trusted = this.#asked++ || work.judge ? NaN : work.spec;
    return this.request('attempt', work);
  }

  /** The number of the next request, and its answer. @returns {{id: number, answer: Promise<any>}} */
  #expect() {
    const id = this.#next++;
    return { id, answer: new Promise((resolve, reject) => (this.#open = { id, resolve, reject })) };
  }

  /** @param {any} data */
  #hear(data) {
    if (this.ended) return;
    this.#silent = 0;
    this.#heard = true;
    if (data.trying !== undefined) {
      this.#trying = data.trying;
      this.#looks = 0;
    }
    if (data.expected?.spec === this.#trusted) this.#remember(data.expected);
    // Acknowledges a pause, perhaps one that is already over: #look compares the numbers.
    if (data.rests) this.#rests = data.rests;
    if (data.error !== undefined) return this.end(failed(data.error, 'This kernel stays as it is; others are tuned'));
    const open = this.#open;
    if (!open || open.id !== data.id) return;
    this.#open = null;
    open.resolve(data.value);
  }

  /** The watchdog.  It counts its own calls instead of time, since timers of hidden pages are slow and clocks may jump. */
  #look() {
    if (!this.#open || (this.#pause && this.#rests === this.#pause)) return;
    const limit = Math.ceil(this.#patience / LOOK);
    const share = SHARE * this.#patience;
    if (this.#trying && this.#taken(share, LOOK)) return this.end(new Hung(share, `the engine's GPU did not answer for ${share / 1000} s`));
    const quiet = ++this.#silent > (this.#heard ? 1 : OPENING) * limit;
    if (!quiet && ++this.#looks <= MOST * limit) return;
    const spent = LOOK * (quiet ? this.#silent : this.#looks);
    const why = `${quiet ? 'no sign of life for' : 'not done after'} ${spent / 1000} s`;
    this.end(this.#trying ? new Hung(spent, why) : failed(why, 'The device may be too busy, or lack memory: tune later'));
  }

  /** True if its memory, which cannot shrink, has long been far larger than kernels need; the next kernel needs `bytes`. @param {number} bytes */
  wastes(bytes) {
    this.#idle = this.#largest > SPARE && 4 * bytes < this.#largest ? this.#idle + 1 : 0;
    return this.#idle > IDLE;
  }

  /** The facts to send to the worker about a kernel that needs `bytes`, and the kernels that it must drop. @type {Tune.BriefOf} */
  briefOf(spec, bytes, facts) {
    this.#largest = Math.max(this.#largest, bytes);
    const known = this.#told.get(spec);
    if (known) return { given: null, forget: [], held: known };
    const given = read(facts);
    const held = given.buffers.reduce((sum, { bytes: of, real }) => sum + (real ? 0 : SETS * of), 0);
    return { given, forget: this.#forget(held), held };
  }

  /** The least recently used kernels that its cache must drop to hold another `bytes`. @param {number} bytes */
  #forget(bytes) {
    /** @type {number[]} */
    const forgotten = [];
    let sum = bytes;
    for (const [old, held] of [...this.#told].reverse()) {
      if (sum + held > HELD) forgotten.push(old);
      else sum += held;
    }
    forgotten.forEach((old) => this.#told.delete(old));
    return forgotten;
  }

  /** Notes that its cache has this kernel, as the most recently used one. @param {number} spec @param {number} bytes */
  hold(spec, bytes) {
    this.#told.delete(spec);
    this.#told.set(spec, bytes);
  }
}

/** Results of earlier workers about kernels. */
class Found {
  /** Expected results of slow kernels, by kernel; the least recently received first. @type {Map<number, Tune.Expected>} */
  #expected = new Map();
  /** Milliseconds of timed kernels, by kernel and module: a kernel that is as fast in another worker is warm. @type {Map<string, number>} */
  #usual = new Map();

  /** Keeps the expected results of a kernel, within KEPT. @type {Tune.Remember} */
  remember = ({ spec, sets }) => {
    if (bytesOf(sets) > KEPT) return;
    this.#expected.set(spec, sets);
    let sum = [...this.#expected.values()].reduce((all, one) => all + bytesOf(one), 0);
    for (const [old, one] of this.#expected) {
      if (sum <= KEPT) break;
      sum -= bytesOf(one);
      this.#expected.delete(old);
    }
  };

  /** Keeps the milliseconds of the kernel in use and of a candidate. @type {Tune.LearnTimes} */
  learn({ spec, incumbent, candidate }, [own, other] = []) {
    if (own) this.#usual.set(nameOf(spec, incumbent), own);
    if (other) this.#usual.set(nameOf(spec, candidate), other);
  }

  /** @param {number} spec */
  expectedOf(spec) {
    return this.#expected.get(spec) || null;
  }

  /** @param {number} spec @param {Tune.KernelCode | null} code */
  usualOf(spec, code) {
    return this.#usual.get(nameOf(spec, code)) ?? NaN;
  }
}

/** @implements {Tune.Trials} */
class Trials {
  #launching;
  #given;
  #early;
  #found = new Found();
  /** @type {TrialWorker | null} */
  #worker = null;
  /** A worker that was started ahead, so that the next one is there at once. @type {TrialWorker | null} */
  #reserve = null;
  #closed = false;
  /** Number of the page's present pause, 0: none; and the number of pauses so far. */
  #pause = 0;
  #pauses = 0;

  /** @param {Parameters<Tune.OpenTrials>[0]} given */
  constructor({ code, slots, bytes, scratchBytes, patience = TIMEOUT, start = startWorker, early = false, powerPreference, silent = () => false }) {
    this.#launching = { start, patience, silent, remember: this.#found.remember };
    this.#given = { code, entries: slots, bytes, scratchBytes, powerPreference };
    this.#early = early;
  }

  /** @type {Tune.Trials['compare']} */
  async compare(results) {
    return (await this.#ready()).request('compare', results);
  }

  /** @type {Tune.Trials['l1']} */
  async l1() {
    return (await this.#ready()).request('l1', {});
  }

  /** @type {Tune.Trials['attempt']} */
  async attempt({ facts, bytes, ...work }) {
    if (this.#worker?.wastes(bytes)) this.#end();
    const worker = await this.#ready();
    const { given, forget, held } = worker.briefOf(work.spec, bytes, facts);
    try {
      const first = await this.#ask(worker, work, given, { forget, facts });
      const outcome = first.module ? await this.#confirmed(first, work, facts) : first;
      // No effect of a bad candidate may reach the next one.
      if (!RIGHT.includes(outcome.verdict)) {
        this.#end();
        // A trap may have lost the device, for other workers, too.
        if (outcome.verdict === 'trapped') this.#dropReserve();
        return outcome;
      }
      this.#found.learn(work, outcome.times);
      this.#worker?.hold(work.spec, held);
      return outcome;
    } catch (error) {
      // A failure or hang may have made the whole GPU unusable.
      this.#dropReserve();
      if (!(error instanceof Hung)) throw error;
      return { verdict: 'hung', milliseconds: error.milliseconds, stages: {}, resolution: 0, why: error.message };
    }
  }

  /** @type {Tune.Trials['ahead']} */
  ahead(candidate) {
    if (this.#early) this.#worker?.post({ ahead: candidate });
  }

  /** @param {boolean} on */
  pause(on) {
    if (on === (this.#pause > 0)) return;
    this.#pause = on ? ++this.#pauses : 0;
    this.#worker?.pause(this.#pause);
  }

  close() {
    this.#closed = true;
    this.#dropReserve();
    this.#end();
  }

  /** The open worker; a new one if the last one was ended. */
  async #ready() {
    if (this.#closed) throw gone();
    if (!this.#worker || this.#worker.ended) {
      const fresh = this.#reserve && !this.#reserve.ended ? this.#reserve : this.#launch();
      this.#reserve = null;
      this.#worker = fresh;
      fresh.take(this.#pause);
    }
    const worker = this.#worker;
    await worker.opened;
    if (this.#early && !this.#closed && !this.#reserve) {
      try {
        this.#reserve = this.#launch();
      } catch {
        // The next worker then starts when it is needed, and reports the problem.
      }
    }
    return worker;
  }

  #launch() {
    return new TrialWorker(this.#launching, this.#given);
  }

  /** Ends the worker; the next attempt starts another one. */
  #end() {
    this.#worker?.end(gone());
  }

  #dropReserve() {
    this.#reserve?.end(gone());
    this.#reserve = null;
  }

  /**
   * Asks for a verdict.  If the device is lost, it asks once more in a new worker: the loss may have another cause, and the candidate is to
   * blame only if it happens again or no new device comes.
   * @type {Tune.Ask}
   */
  async #ask(worker, work, given, { forget = [], confirm = false, facts }) {
    const outcome = await worker.attempt(this.#messageOf(work, given, forget, confirm));
    if (!outcome.gone) return outcome;
    this.#end();
    this.#dropReserve();
    let fresh;
    try {
      fresh = await this.#ready();
    } catch (error) {
      if (this.#closed) throw error;
      return outcome;
    }
    return fresh.attempt(this.#messageOf(work, read(facts), [], confirm));
  }

  /** The message for a trial, with the expected results if they are known. @type {Tune.MessageOf} */
  #messageOf(work, facts, forget, confirm) {
    const { spec, incumbent, judge } = work;
    const expected = facts && !judge ? this.#found.expectedOf(spec) : null;
    return { ...work, forget, facts, confirm, expected, usual: this.#found.usualOf(spec, incumbent) };
  }

  /** A verdict that would adopt a kernel counts only if a worker in which no candidate has run confirms it. @type {Tune.Confirmed} */
  async #confirmed(outcome, work, facts) {
    this.#end();
    const worker = await this.#ready();
    const { module, verdict, why, milliseconds } = await this.#ask(worker, work, read(facts), { confirm: true, facts });
    // Keeps the first worker's module, whose code is optimised by now.
    return {
      ...outcome, ...(!module && { verdict, why, module }),
      milliseconds: outcome.milliseconds + milliseconds, stages: { ...outcome.stages, confirm: milliseconds },
    };
  }
}

const gone = () => new EngineError('disposed', 'The trials were closed', 'Begin a new tuning run');

/** @param {string} why @param {string} hint */
const failed = (why, hint) => new EngineError('host', `A kernel could not be tried: ${why}`, hint);

/** @param {() => Tune.SpecFacts} facts */
function read(facts) {
  try {
    return facts();
  } catch (error) {
    throw failed(`the bundle's description of it cannot be read: ${error}`, 'Load the bundle again');
  }
}

/** @param {Tune.Expected} expected */
const bytesOf = (expected) => Object.values(expected).reduce((sum, { byteLength }) => sum + byteLength, 0);

/** @param {number} spec @param {Tune.KernelCode | null} code */
const nameOf = (spec, code) => `${spec} ${code?.digest ?? ''}`;

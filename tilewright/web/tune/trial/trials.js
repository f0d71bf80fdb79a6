// The page's side of the trial worker: starts it, pauses it, and replaces it if it hangs.
// Input: facts of a specification and a candidate.  Output: a verdict on the candidate; or a `host` error, which is no
// verdict: no worker, no memory, unreadable facts.

import { EngineError } from '../../engine/errors.js';
import { launchWorker } from '../../engine/launch.js';
import { RIGHT } from '../records/ledger.js';

/** Maximum bytes of inputs and results that the worker caches. */
const HELD = 256 * 2 ** 20;
/** Input sets per kernel, each with a result; weights are not copied. */
const SETS = 3;
/** Maximum bytes of expected results that the page keeps for the next workers. */
const KEPT = 64 * 2 ** 20;
/** Bytes of the worker's memory that are tolerated although recent kernels need far less. */
const SPARE = 64 * 2 ** 20;
/** Consecutive small trials that are tolerated before the worker is replaced to free its memory. */
const IDLE = 8;
/** Milliseconds without a heartbeat after which a kernel counts as hung. */
const PATIENCE = 4000;
/** Milliseconds between two checks of that. */
const LOOK = 250;
/** Multiple of PATIENCE that a worker has until its first message. */
const OPENING = 8;
/** Multiple of PATIENCE that one request may take. */
const MOST = 30;

/** The candidate counts as hung after this many milliseconds. */
class Hung extends Error {
  /** @param {number} milliseconds @param {string} why */
  constructor(milliseconds, why) {
    super(why);
    this.milliseconds = milliseconds;
  }
}

const startWorker = () => launchWorker(() => new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'tilewright-trial' }));

/** @type {Tune.OpenTrials} */
export function openTrials({ code, slots, bytes, scratchBytes, patience = PATIENCE, start = startWorker, early = false, powerPreference }) {
  /** @type {Worker | null} */
  let worker = null;
  /** Started before it is needed, so that the next fresh worker is there at once. @type {Tune.Launched | null} */
  let reserve = null;
  /** @type {Promise<any>} */
  let opened = Promise.resolve();
  /** @type {{id: number, resolve: (value: any) => void, reject: (error: unknown) => void} | null} */
  let open = null;
  let next = 1;
  let closed = false;
  let paused = false;
  /** Number of the latest pause, and of the last one that the worker acknowledged. */
  let [pauses, rests] = [0, 0];
  /** Whether the candidate itself is running, as the worker reports. */
  let trying = false;
  /** Checks since the worker's last message and since the request began; whether this worker ever sent a message. */
  let [silent, looks, heard] = [0, 0, false];
  /** Kernels whose inputs the worker caches, and their bytes; the least recently used first. @type {Map<number, number>} */
  const told = new Map();
  /** Most bytes of a kernel since the worker started, and the number of consecutive kernels that needed far less. */
  let [largest, idle] = [0, 0];
  /** What slow kernels must compute, by kernel; the least recently told first. @type {Map<number, Tune.Expected>} */
  const expected = new Map();
  /** Milliseconds of kernels that were timed, by kernel and module: one that is as fast again in another worker is warm. @type {Map<string, number>} */
  const usual = new Map();
  const nameOf = (/** @type {number} */ spec, /** @type {Tune.KernelCode | null} */ code) => `${spec} ${code?.digest ?? ''}`;
  /** Requests that this worker had, and the kernel of the first one, whose results it found before any candidate ran; else NaN. */
  let [asked, trusted] = [0, NaN];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let watch;

  const gone = () => new EngineError('disposed', 'The trials were closed', 'Begin a new tuning run');

  /** @type {Tune.Request} */
  const request = (kind, params) => new Promise((resolve, reject) => {
    if (!worker) throw gone();
    const id = next++;
    open = { id, resolve, reject };
    silent = looks = 0;
    try {
      worker.postMessage({ id, kind, params });
    } catch (error) {
      end(failed(String(error), 'Tune again'));
    }
  });

  /** Asks for a verdict, with the expected results if they are known. @type {Tune.Ask} */
  function ask(work, forget, facts, confirm = false) {
    trusted = asked++ || work.judge ? NaN : work.spec;
    return request('attempt', {
      ...work, forget, facts, confirm,
      expected: (facts && !work.judge && expected.get(work.spec)) || null,
      usual: usual.get(nameOf(work.spec, work.incumbent)) ?? NaN,
    });
  }

  /** Asks once more, in a fresh worker, if the device was lost: anything may take it, and a candidate is to blame only if that happens again, or no device comes any more. @type {Tune.AskAgain} */
  async function askAgain(work, forget, given, facts, confirm) {
    const outcome = await ask(work, forget, given, confirm);
    if (!outcome.gone) return outcome;
    end(gone());
    dropReserve();
    try {
      await ready();
    } catch (error) {
      if (closed) throw error;
      return outcome;
    }
    return ask(work, [], read(facts), confirm);
  }

  /** Keeps the expected results of a kernel, within KEPT. @type {Tune.Remember} */
  function remember({ spec, sets }) {
    const bytesOf = (/** @type {Tune.Expected} */ one) => Object.values(one).reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (bytesOf(sets) > KEPT) return;
    expected.set(spec, sets);
    let sum = [...expected.values()].reduce((all, one) => all + bytesOf(one), 0);
    for (const [old, one] of expected) {
      if (sum <= KEPT) break;
      sum -= bytesOf(one);
      expected.delete(old);
    }
  }

  /** Terminates the worker and rejects its request; the next attempt starts another. @param {unknown} error */
  function end(error) {
    worker?.terminate();
    worker = null;
    clearInterval(watch);
    open?.reject(error);
    open = null;
  }

  function dropReserve() {
    reserve?.worker.terminate();
    reserve = null;
  }

  /** The watchdog.  It counts its own calls instead of time, since timers of hidden pages are slow and clocks may jump. */
  function look() {
    if (!open || (paused && rests === pauses)) return;
    const limit = Math.ceil(patience / LOOK);
    const quiet = ++silent > (heard ? 1 : OPENING) * limit;
    if (!quiet && ++looks <= MOST * limit) return;
    const spent = LOOK * (quiet ? silent : looks);
    const why = `${quiet ? 'no sign of life for' : 'not done after'} ${spent / 1000} s`;
    end(trying ? new Hung(spent, why) : failed(why, 'The device may be too busy, or lack memory: tune later'));
  }

  /** @param {any} data */
  function hear(data) {
    silent = 0;
    heard = true;
    if (data.trying !== undefined) {
      trying = data.trying;
      looks = 0;
    }
    if (data.expected?.spec === trusted) remember(data.expected);
    // Acknowledges a pause, perhaps one that is already over: look() compares the numbers.
    if (data.rests) rests = data.rests;
    if (!open || open.id !== data.id) return;
    if (data.error !== undefined) return end(failed(data.error, 'This kernel stays as it is; others are tuned'));
    const { resolve } = open;
    open = null;
    resolve(data.value);
  }

  /** Starts a worker with the bundle's own kernels; until it is taken, what it says is kept. @returns {Tune.Launched} */
  function launched() {
    /** @type {Worker | undefined} */
    let made;
    try {
      made = start();
      const id = next++;
      /** @type {Tune.Launched} */
      const own = { worker: made, id, said: [], broken: '', hear: keep, fail: (why) => (own.broken = why) };
      /** @param {any} data */
      function keep(data) {
        if (data.error !== undefined) own.broken = String(data.error);
        own.said.push(data);
      }
      made.addEventListener('error', (event) => {
        event.preventDefault();
        own.fail(event.message || 'its script could not be loaded');
      });
      made.addEventListener('message', ({ data }) => own.hear(data));
      // `code` is copied, not transferred, for the next worker.
      made.postMessage({ id, kind: 'open', params: { code, entries: slots, bytes, scratchBytes, powerPreference } });
      return own;
    } catch (error) {
      made?.terminate();
      throw failed(String(error), 'Let the page start workers of its own origin');
    }
  }

  /** Sees to it that there is a worker. */
  async function ready() {
    if (closed) throw gone();
    if (!worker) {
      if (reserve?.broken) dropReserve();
      const taken = reserve ?? launched();
      reserve = null;
      const mine = worker = taken.worker;
      watch = setInterval(look, LOOK);
      told.clear();
      [trying, heard, largest, idle, rests, silent, looks] = [false, false, 0, 0, 0, 0, 0];
      [asked, trusted] = [0, NaN];
      opened = new Promise((resolve, reject) => (open = { id: taken.id, resolve, reject }));
      taken.fail = (why) => worker === mine && end(failed(why, 'Serve the files of web/tune beside the engine'));
      taken.hear = (data) => worker === mine && hear(data);
      mine.postMessage({ pause: paused ? pauses : 0 });
      taken.said.forEach(taken.hear);
    }
    await opened;
    if (!early || closed || reserve) return;
    try {
      reserve = launched();
    } catch {
      // Then the next worker starts when it is needed, and says what is wrong.
    }
  }

  /** Wasm memory cannot shrink, so after a large kernel and many small ones the worker is replaced. @param {number} size */
  function spare(size) {
    idle = largest > SPARE && 4 * size < largest ? idle + 1 : 0;
    if (idle > IDLE) end(gone());
  }

  return {
    async compare(results) {
      await ready();
      return request('compare', results);
    },

    async l1() {
      await ready();
      return request('l1', {});
    },

    async attempt({ facts, bytes: size, ...work }) {
      spare(size);
      await ready();
      largest = Math.max(largest, size);
      const { spec } = work;
      /** @type {number[]} */
      const forget = [];
      /** @type {Tune.SpecFacts | null} */
      let given = null;
      let taken = told.get(spec) ?? 0;
      if (!taken) {
        given = read(facts);
        taken = given.buffers.reduce((sum, { bytes: of, real }) => sum + (real ? 0 : SETS * of), 0);
        let sum = taken;
        for (const [old, held] of [...told].reverse()) {
          if (sum + held > HELD) forget.push(old);
          else sum += held;
        }
        forget.forEach((old) => told.delete(old));
      }
      try {
        let outcome = await askAgain(work, forget, given, facts);
        if (outcome.module) {
          // The verdict stands if it is the same where no candidate ever ran.
          end(gone());
          await ready();
          const { module, verdict, why, milliseconds } = await askAgain(work, [], read(facts), facts, true);
          // Its own module is optimised code by now.
          outcome = {
            ...outcome, ...(!module && { verdict, why, module }),
            milliseconds: outcome.milliseconds + milliseconds, stages: { ...outcome.stages, confirm: milliseconds },
          };
        }
        // Nothing of a bad candidate may reach the next one.
        if (!RIGHT.includes(outcome.verdict)) {
          end(gone());
          // What traps may have lost the device, and others with it.
          if (outcome.verdict === 'trapped') dropReserve();
          return outcome;
        }
        const [own, other] = outcome.times ?? [];
        if (own) usual.set(nameOf(spec, work.incumbent), own);
        if (other) usual.set(nameOf(spec, work.candidate), other);
        // Moves it to the end: the least recently used are forgotten first.
        told.delete(spec);
        told.set(spec, taken);
        return outcome;
      } catch (error) {
        // What failed or hangs may have taken the whole GPU with it.
        dropReserve();
        if (!(error instanceof Hung)) throw error;
        return { verdict: 'hung', milliseconds: error.milliseconds, stages: {}, resolution: 0, why: error.message };
      }
    },

    ahead(candidate) {
      if (early) worker?.postMessage({ ahead: candidate });
    },

    pause(on) {
      if (on === paused) return;
      paused = on;
      if (on) pauses++;
      worker?.postMessage({ pause: on ? pauses : 0 });
    },

    close() {
      closed = true;
      dropReserve();
      end(gone());
    },
  };
}

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

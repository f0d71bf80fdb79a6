// The page's side of the trial worker: starts it, lets it rest, ends it if it hangs, starts another.
// Input: facts of a specification and a candidate.  Output: a verdict on the candidate; or an error of
// code `host`, which says nothing of it: no worker, no memory, facts that cannot be read.

import { EngineError } from '../../engine/errors.js';

/** Bytes of inputs and results that the worker keeps for kernels it knows. */
const HELD = 256 * 2 ** 20;
/** Sets of inputs, with a result each; weights are read where the model has them. */
const SETS = 3;
/** Bytes that a worker may have used without need, and trials after which it is exchanged for that. */
const SPARE = 64 * 2 ** 20;
const IDLE = 8;
/** Milliseconds without a sign of life after which a kernel hangs; looked at so often. */
const PATIENCE = 4000;
const LOOK = 250;
/** So many times as long may it take until a worker says its first word, and what one request asks for. */
const OPENING = 8;
const MOST = 30;

/** The candidate hangs, as it seems after so many milliseconds. */
class Hung extends Error {
  /** @param {number} milliseconds @param {string} why */
  constructor(milliseconds, why) {
    super(why);
    this.milliseconds = milliseconds;
  }
}

/** @type {Tune.OpenTrials} */
export function openTrials({ code, slots, bytes, scratchBytes, patience = PATIENCE }) {
  /** @type {Worker | null} */
  let worker = null;
  /** @type {Promise<any>} */
  let opened = Promise.resolve();
  /** @type {{id: number, resolve: (value: any) => void, reject: (error: unknown) => void} | null} */
  let open = null;
  let next = 1;
  let closed = false;
  let paused = false;
  /** Number of the latest pause, and of the one in which the worker said that it rests. */
  let [pauses, rests] = [0, 0];
  /** Whether the candidate runs, by what the worker says. */
  let trying = false;
  /** Looks since the worker last said something, and at this request. */
  let [silent, looks, heard] = [0, 0, false];
  /** Kernels whose facts the worker knows, and how many bytes those take. @type {Map<number, number>} */
  const told = new Map();
  /** Most bytes of a kernel since it started, and how many since then needed far less. */
  let [largest, idle] = [0, 0];
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

  /** The worker is of no use any more; the next request starts another. @param {unknown} error */
  function end(error) {
    worker?.terminate();
    worker = null;
    clearInterval(watch);
    open?.reject(error);
    open = null;
  }

  /** Timers of a hidden page are slow, and clocks may jump: looks are counted, not time. */
  function look() {
    if (!open || (paused && rests === pauses)) return;
    const limit = Math.ceil(patience / LOOK);
    const quiet = ++silent > (heard ? 1 : OPENING) * limit;
    if (!quiet && ++looks <= MOST * limit) return;
    const spent = LOOK * (quiet ? silent : looks);
    const why = `${quiet ? 'no sign of life for' : 'not done after'} ${spent / 1000} s`;
    end(trying ? new Hung(spent, why) : failed(why, 'The device may be too busy, or lack memory: tune later'));
  }

  /** @param {MessageEvent} event */
  function hear({ data }) {
    silent = 0;
    heard = true;
    if (data.trying !== undefined) {
      trying = data.trying;
      looks = 0;
    }
    // What it says of a pause that is over comes late.
    if (data.rests) rests = data.rests;
    if (!open || open.id !== data.id) return;
    if (data.error !== undefined) return end(failed(data.error, 'It stays as it is; the others are tuned'));
    const { resolve } = open;
    open = null;
    resolve(data.value);
  }

  /** A worker that has the bundle's own kernels. */
  async function ready() {
    if (closed) throw gone();
    if (!worker) {
      try {
        worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'tilewright-trial' });
      } catch (error) {
        throw failed(String(error), 'Let the page start workers of its own origin');
      }
      const mine = worker;
      worker.addEventListener('error', (event) => {
        event.preventDefault();
        if (worker === mine) end(failed(event.message || 'its script could not be loaded', 'Serve the files of web/tune beside the engine'));
      });
      worker.addEventListener('message', (event) => {
        if (worker === mine) hear(event);
      });
      watch = setInterval(look, LOOK);
      told.clear();
      [trying, heard, largest, idle, rests] = [false, false, 0, 0, 0];
      worker.postMessage({ pause: paused ? pauses : 0 });
      // Copied: the next worker needs it too.
      opened = request('open', { code, entries: slots, bytes, scratchBytes });
    }
    await opened;
  }

  /** What was taken for a large kernel is given back when only small ones follow. @param {number} size */
  function spare(size) {
    idle = largest > SPARE && 4 * size < largest ? idle + 1 : 0;
    if (idle > IDLE) end(gone());
  }

  return {
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
        const outcome = await request('attempt', { ...work, forget, facts: given });
        // The latest one is the last to be forgotten.
        told.delete(spec);
        told.set(spec, taken);
        return outcome;
      } catch (error) {
        if (!(error instanceof Hung)) throw error;
        return { verdict: 'hung', milliseconds: error.milliseconds, prepared: 0, resolution: 0, why: error.message };
      }
    },

    pause(on) {
      if (on === paused) return;
      paused = on;
      if (on) pauses++;
      worker?.postMessage({ pause: on ? pauses : 0 });
    },

    close() {
      closed = true;
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
    throw failed(`what the bundle says of it cannot be read: ${error}`, 'Load the bundle again');
  }
}

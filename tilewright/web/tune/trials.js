// The page's side of the trial worker: starts it, lets it rest, ends it if it hangs, starts another.
// Input: facts of a specification and a candidate.  Output: a verdict.  It decides nothing else.

import { EngineError } from '../engine/errors.js';

/** Bytes of inputs and results that the worker keeps for kernels it knows. */
const HELD = 256 * 2 ** 20;
/** Milliseconds without a sign of life after which a kernel hangs; looked at so often. */
const PATIENCE = 4000;
const LOOK = 250;

/** @type {Tune.OpenTrials} */
export function openTrials({ code, slots, bytes, scratchBytes, patience = PATIENCE }) {
  /** @type {Worker | null} */
  let worker = null;
  /** @type {Promise<any>} */
  let opened = Promise.resolve();
  /** @type {{id: number, resolve: (value: any) => void, reject: (error: unknown) => void} | null} */
  let open = null;
  let next = 1;
  let paused = false;
  let silent = 0;
  let closed = false;
  /** Kernels whose facts the worker knows, and how many bytes those take. @type {Map<number, number>} */
  const told = new Map();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let watch;

  /** @param {string} kind @param {object} params @param {Transferable[]} [moved] */
  const request = (kind, params, moved = []) => new Promise((resolve, reject) => {
    const id = next++;
    open = { id, resolve, reject };
    silent = 0;
    worker?.postMessage({ id, kind, params }, moved);
  });

  /** @param {unknown} error */
  function end(error) {
    worker?.terminate();
    worker = null;
    clearInterval(watch);
    open?.reject(error);
    open = null;
  }

  function start() {
    worker = new Worker(new URL('./trial_worker.js', import.meta.url), { type: 'module', name: 'tilewright-trial' });
    worker.addEventListener('error', (event) => {
      event.preventDefault();
      end(new EngineError('host', `The trial worker failed: ${event.message || 'its script could not be loaded'}`, 'Serve the files of web/tune beside the engine'));
    });
    worker.addEventListener('message', ({ data: { id, value, error } }) => {
      silent = 0;
      if (open?.id !== id) return;
      const { resolve, reject } = /** @type {NonNullable<typeof open>} */ (open);
      open = null;
      if (error === undefined) resolve(value);
      else reject(new EngineError('host', `A kernel could not be tried: ${error}`, 'It stays as it is; the others are tuned'));
    });
    // Timers of a hidden page are slow, and clocks may jump: looks are counted, not time.
    watch = setInterval(() => {
      if (open && !paused && ++silent * LOOK > patience) end(HUNG);
    }, LOOK);
    told.clear();
    worker.postMessage({ pause: paused });
    // Copied: the next worker needs it too.
    opened = request('open', { code, entries: slots, bytes, scratchBytes });
  }

  return {
    async l1() {
      if (!worker) start();
      await opened;
      return request('l1', {});
    },

    async attempt({ facts, bytes: size, ...work }) {
      if (closed) throw new EngineError('disposed', 'The trials were closed', 'Begin a new tuning run');
      if (!worker) start();
      await opened;
      const { spec } = work;
      const forget = [];
      const known = told.has(spec);
      if (!known) {
        let sum = size;
        for (const [old, taken] of [...told].reverse()) if ((sum += taken) > HELD) forget.push(old);
        forget.forEach((old) => told.delete(old));
      }
      try {
        // Weights are large: they go there once.
        const outcome = await request('attempt', { ...work, forget, facts: known ? null : facts() });
        told.set(spec, size);
        return outcome;
      } catch (error) {
        if (error !== HUNG) throw error;
        return { verdict: 'hung', milliseconds: patience, prepared: 0, resolution: 0, why: `no sign of life for ${patience / 1000} s` };
      }
    },

    pause(on) {
      if (on === paused) return;
      paused = on;
      silent = 0;
      worker?.postMessage({ pause: on });
    },

    close() {
      closed = true;
      end(new EngineError('disposed', 'The trials were closed', 'Begin a new tuning run'));
    },
  };
}

const HUNG = Symbol('hung');

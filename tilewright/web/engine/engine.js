// The browser engine's public API; types.d.ts documents it. Kernels run in workers.  This file queues jobs, and copies inputs and outputs
// if memory is shared.

import { EngineError, typed } from './errors.js';
import { instantiate, makePlanRunner } from './plan_runner.js';
import { folderOf } from './bundle.js';
import { HINT } from './start_worker.js';
import { openChannel } from './channel.js';
import { probeHost, threadsFor } from './features.js';
import { checkInputs, checkOutputs, copied, inputArray, makeStates, ownOf, pickPlan, readOutputs, requireKnown, requireOptions, useHalves, writeInputs } from './tensors.js';

/** Milliseconds times threads below which a plan runs in the page's thread: a message round trip would take longer. */
const SHORT = 0.5;

export { EngineError, probeHost };

/** Total bytes of bundle files that this origin keeps. */
export const cachedBytes = async () => (await onDemand(import('./inspect.js'))).cachedBytes();

/** Deletes all kept bundle files; returns their total bytes. */
export const clearCache = async () => (await onDemand(import('./inspect.js'))).clearCache();

/** A module that is imported on demand; service workers may not do so. @type {T.OnDemand} */
const onDemand = (module) => module.catch((error) => {
  throw /** @type {any} */ (globalThis).ServiceWorkerGlobalScope ? new EngineError('unsupported-host', `A service worker imports nothing on demand: ${error}`, HINT) : error;
});

/** Options of `load`. */
const LOAD = 'bucket, device, features, key, memoryLimit, name, onProgress, powerPreference, recover, signal, software, threads, variant, verify';

/** A bundle's manifest with the digest by which it was verified.  Rejects with an EngineError. @type {T.Inspect} */
export const inspect = (url, options) => typed(undefined, async () => (await onDemand(import('./inspect.js'))).readManifestOf(folderOf(url), options));

/**
 * Loads a bundle.  Rejects with an EngineError, or with the reason of `signal` when that fires.
 * @param {string | URL} url
 * @param {T.LoadOptions} [options]
 * @param {T.OpenChannel} [open] of devices.js
 * @returns {Promise<T.Engine>}
 */
export const load = (url, options = {}, open = openChannel) => typed(options.signal, () => loaded(url, options, open));

/** @type {T.Loaded} */
async function loaded(given, options, open) {
  requireOptions('load', options, LOAD);
  const { onProgress = () => {}, signal, device = 'wasm', ...limits } = options;
  const host = probeHost();
  const url = folderOf(given);
  if (limits.recover || (device !== 'wasm' && device !== 'webgpu')) return (await onDemand(import('./devices.js'))).loadOn(load, url, options, device);
  // On a GPU one worker is enough.
  const threads = device === 'wasm' ? threadsFor(host, limits.threads) : 1;
  const link = open(onProgress, threads, device);
  const loading = async () => {
    const { info, manifest, program, setup } = await link.request('load', { url, limits, threads });
    await useHalves(manifest);
    const { memory } = link;
    const near = memory && makePlanRunner(program.plans, memory, await instantiate({ ...setup, memory }, 0), 1);
    const again = (/** @type {T.LoadOptions | undefined} */ more) => load(info.url, { ...limits, device, threads, variant: info.variant.name, ...more }, open);
    return makeEngine(link, { ...info, device }, { device, manifest, program, limits, again }, near);
  };
  return orAborted(loading(), signal).catch((error) => {
    // The reason of an abort may be null.
    link.close(Object(error));
    throw error;
  });
}

/** @type {T.MakeEngine} */
function makeEngine(link, info, parts, near) {
  const { manifest, program } = parts;
  const { plans } = program;
  let runs = 0;
  let held = false;
  /** By plan: milliseconds times threads of its last run. @type {number[]} */
  const spent = [];
  let firstMilliseconds = 0;
  let disposed = false;
  /** Inputs of the last run, so that `time` and `profile` measure real data. @type {{plan: number, tensors: T.Tensor[]} | null} */
  let last = null;
  /** Number of unfinished jobs. */
  let open = 0;
  /** Resolves when all queued jobs have ended. @type {Promise<unknown>} */
  let queue = Promise.resolve();
  /** Resolves when all jobs that must run alone have ended. */
  let apart = queue;

  function requireLive() {
    if (disposed) throw new EngineError('disposed', 'The engine was disposed', 'Load the bundle again');
  }

  /** Plans whose input memory the page may write to (`Engine.input`). @type {Set<number>} */
  const lent = new Set();
  /** Tuned kernels that replace the bundle's own. @type {T.TunedKernel[]} */
  let kernels = [];

  /** @type {T.Enqueue} */
  function enqueue(job, overlaps = false) {
    const work = () => job().finally(() => engine.onjob(--open));
    const result = open++ ? (overlaps ? apart : queue).then(work) : work();
    engine.onjob(open);
    // The queue must not keep results alive.  A failing run may end before earlier ones.
    const before = queue;
    queue = result.then(() => {}, () => before);
    if (!overlaps) apart = queue;
    return result;
  }

  /** @type {T.Ask} */
  function ask(kind, work, tensors, here = null) {
    if (!link.memory) return link.request(kind, { ...work, tensors: tensors?.map(copied) });
    if (tensors) writeInputs(link.memory.buffer, plans[work.plan].inputs, tensors);
    return here ? here.run(work) : link.request(kind, work);
  }

  /** @type {T.Measure} */
  async function measure(of, { bucket = {}, ...work }) {
    requireLive();
    requireOptions(of, work, 'bucket, inOrder, only, read, repeat, runs, warmup');
    const plan = pickPlan(info.plans, bucket);
    const value = await enqueue(async () => ask('measure', { plan, sizes: bucket, ...work }, lent.has(plan) ? null : last?.plan === plan ? last.tensors : []));
    return { ...value, bucket: info.plans[plan].dims };
  }

  /** @type {T.Engine} */
  const engine = {
    onjob() {},

    get info() {
      return structuredClone(info);
    },

    get parts() {
      return { ...parts, lent, memory: link.memory, file: link.request.bind(null, 'file'), probe: link.request.bind(null, 'probe') };
    },

    run: (inputs, options = {}) => typed(options.signal, async () => {
      requireLive();
      requireOptions('run', options, 'into, signal, to');
      const { signal, into = {}, to } = options;
      const given = /** @type {any[]} */ ([...Object.values(inputs ?? {}), ...Object.values(into)]).find((one) => one?.frame || (one?.buffer ?? one)?.mapState);
      if (given) return (given.frame ? await import('./frames.js') : link.here ?? await import('./gpu_buffers.js')).runOn(run, info, inputs, options, link);
      const start = performance.now();
      const { tensors, sizes } = checkInputs(info, inputs);
      const plan = pickPlan(info.plans, sizes);
      const wanted = checkOutputs(info.outputs, plans[plan].outputs, sizes, into);
      const own = open ? tensors.map(copied) : tensors;
      const done = enqueue(async () => {
        signal?.throwIfAborted();
        const shared = link.memory?.buffer;
        const work = shared ? { plan, sizes } : { plan, sizes, to, wanted: wanted.map(({ data, ...output }) => output) };
        // Not in the page's thread: a run that is held, since the page may not wait; every 32nd run, so that the page can breathe; runs
        // with tuned kernels, since one that never ends would block the page.
        const here = shared && !held && !kernels.length && runs % 32 && spent[plan] < SHORT ? near : null;
        const { milliseconds, outputs } = await ask('run', work, own, here);
        last = disposed ? null : { plan, tensors };
        spent[plan] = milliseconds * (here ? 1 : info.features.threads);
        engine.onjob(open, plan, milliseconds);
        // An aborted caller may already reuse its `into` arrays.
        signal?.throwIfAborted();
        return { milliseconds, outputs: shared ? readOutputs(shared, plans[plan].outputs, wanted) : delivered(outputs, into) };
        // A GPU may begin a run before the previous one has returned.
      }, info.adapter);
      const { milliseconds, outputs } = await orAborted(done, signal);
      if (++runs === 1) firstMilliseconds = milliseconds;
      return {
        outputs: Object.fromEntries(outputs.map((/** @type {T.Wanted} */ { name, ...output }) => [name, output])),
        bucket: info.plans[plan].dims,
        milliseconds,
        firstMilliseconds,
        totalMilliseconds: performance.now() - start,
        run: runs,
      };
    }),

    input(name, sizes = {}) {
      requireLive();
      const plan = pickPlan(info.plans, sizes);
      lent.add(plan);
      return inputArray(link.memory?.buffer, plans[plan].inputs, name);
    },

    states: makeStates(program.states, enqueue, link, requireLive),

    time: (options) => measure('time', { runs: 20, warmup: 3, ...options }),

    profile: (options) => measure('profile', { runs: 10, only: 'all', ...options }),

    async asset(name) {
      requireLive();
      return link.request('file', requireKnown(name, manifest.assets, 'asset'));
    },

    async swap(changes) {
      requireLive();
      const { swapped } = await import('./changes.js');
      return enqueue(async () => {
        kernels = await swapped(link, program, info, kernels, changes);
      });
    },

    preempt(on) {
      requireLive();
      link.preempt(on);
      held = on;
    },

    dispose() {
      disposed = true;
      link.close(new EngineError('host', 'The engine was disposed', 'Wait for open runs before dispose()'));
    },
  };
  const { run } = engine;
  link.onend = () => {
    last = near = null;
    engine.onjob(-1);
  };
  return engine;
}

/** @type {T.Delivered} */
const delivered = (outputs, into) => outputs.map((output) => {
  const given = ownOf(into, output.name);
  given?.set(output.data);
  return { ...output, data: given ?? output.data };
});

/** @type {T.OrAborted} */
function orAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

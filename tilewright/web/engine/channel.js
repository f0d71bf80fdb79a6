// The connection from the page to the engine's workers: requests and answers.  Every request settles, even if a worker dies. engine.js and
// requests.js interpret the requests.

import { PREEMPT, STALLED } from './abi.js';
import { leaveRun, makeMemory, stepOf, wordsOf } from './plan_runner.js';
import { EngineError, within } from './errors.js';
import { HINT, launchWorker, scriptOf } from './start_worker.js';
import { START_LIMIT } from './pool.js';

// Bundlers recognise workers only in this literal form.
/** @type {T.Starters} */
const STARTERS = {
  wasm: (name) => new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }),
  webgpu: (name) => new Worker(new URL('./gpu_worker.js', import.meta.url), { type: 'module', name }),
};
const startHelper = (/** @type {string} */ name) => new Worker(new URL('./pool_worker.js', import.meta.url), { type: 'module', name });

/** @type {T.StartWorker} */
function startWorker(start, fail) {
  // The name of the worker, and of the Web Lock that it holds while it lives.
  const lock = `tilewright-${crypto.getRandomValues(new Uint32Array(4)).join('-')}`;
  const starter = () => start(lock);
  const worker = launchWorker(starter);
  worker.addEventListener('error', (event) => {
    // The rejected requests report it already.
    event.preventDefault();
    const file = event.filename || scriptOf(starter);
    fail(`The engine's worker failed: ${event.message || `its script could not be loaded from ${file}`}`,
      HINT, { file, line: event.lineno });
  });
  return { worker, lock };
}

/** @type {T.OpenChannel} */
export function openChannel(onProgress, threads, device) {
  /** @type {T.Pending} */
  const pending = new Map();
  let last = 0;
  /** Why the link is closed; null while it is open. @type {unknown} */
  let end = null;
  /** Pool workers, by number. @type {Map<number, T.Lodged>} */
  const helpers = new Map();
  /** @type {WebAssembly.Memory | null} */
  let memory = null;
  const words = () => memory && wordsOf(memory);

  /** @type {T.Channel['close']} */
  function close(reason) {
    if (end) return;
    end = reason;
    worker.terminate();
    helpers.forEach((helper) => helper.worker.terminate());
    memory = null;
    pending.forEach(({ reject }) => reject(reason));
    pending.clear();
    link.onend();
  }

  /** @type {T.Fail} */
  const fail = (...parts) => close(new EngineError('host', ...parts));

  /** @type {T.Help} */
  async function help(number, limit = START_LIMIT) {
    const helper = startWorker(startHelper, fail);
    const { port1, port2 } = new MessageChannel();
    helper.worker.postMessage({ port: port1, number }, [port1]);
    worker.postMessage({ helper: { port: port2, number } }, [port2]);
    helpers.set(number, helper);
    // Until its first message it may be dead or just slow, so its replacement gets twice the time.
    const late = await within(limit, new Promise((resolve) => (helper.worker.onmessage = () => resolve(''))));
    if (!late) await navigator.locks.request(helper.lock, () => {});
    if (end || helpers.get(number) !== helper) return;
    // It died inside a run, which cannot finish now.
    const control = words();
    if (control && Atomics.load(control, stepOf(number))) leaveRun(control, number, STALLED);
    replace(number, late ? 2 * limit : limit);
  }

  /** Terminates a helper, and starts another once it is gone: until then it may still write to memory. @type {T.Help} */
  async function replace(number, limit) {
    const helper = helpers.get(number);
    if (!helper) return;
    helpers.delete(number);
    helper.worker.terminate();
    await navigator.locks.request(helper.lock, () => {});
    const control = words();
    if (control) Atomics.store(control, stepOf(number), 0);
    if (!end) help(number, limit);
  }

  /** @param {T.Message} message */
  function receive({ progress, alive, pages, replace: number, id = 0, value, error }) {
    if (end) return;
    if (progress) onProgress(progress);
    // A killed worker fires no event, but the browser releases its locks.
    if (alive) navigator.locks.request(lock, () => fail('The worker died: the browser terminated it', 'Load the bundle again; the device may lack memory'));
    if (pages) {
      // Allocated in the page: V8 frees the memory of disposed engines only in the thread that allocated it.
      memory = makeMemory(pages);
      worker.postMessage({ memory });
    }
    if (number) replace(number);
    const waiting = pending.get(id);
    pending.delete(id);
    if (error) waiting?.reject(EngineError.from(error));
    else waiting?.resolve(value);
  }

  const { worker, lock } = startWorker(STARTERS[device], fail);
  worker.addEventListener('message', ({ data }) => receive(data));
  worker.addEventListener('messageerror', () => fail('A message could not be read', 'Load the bundle again'));
  for (let number = 1; number < threads; number++) help(number);

  /** @type {T.Channel} */
  const link = {
    onend() {},

    close,

    get memory() {
      return memory;
    },

    async request(kind, params) {
      if (end) throw end;
      const answer = Promise.withResolvers();
      worker.postMessage({ id: ++last, kind, params });
      pending.set(last, answer);
      return answer.promise;
    },

    preempt(on) {
      const control = words();
      if (!control) throw end ?? new EngineError('host', 'Only runs in shared memory can be preempted', 'Serve the page cross-origin isolated');
      Atomics.store(control, PREEMPT, Number(on));
      Atomics.notify(control, PREEMPT);
    },
  };
  return link;
}

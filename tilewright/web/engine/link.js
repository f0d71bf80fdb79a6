// The line to the engine's workers: requests, answers, and no promise that hangs for ever.
// What requests mean is known to engine.js and requests.js alone.

import { PREEMPT, STALLED } from './abi.js';
import { leaveRun, makeMemory, stepOf, wordsOf } from './driver.js';
import { EngineError } from './errors.js';
import { START_LIMIT, within } from './pool.js';

// Bundlers find workers by this very form, with the name of the file in it.
/** By the name of a device, its worker. @type {T.Starters} */
const STARTERS = {
  wasm: (name) => new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }),
  webgpu: (name) => new Worker(new URL('./gpu_worker.js', import.meta.url), { type: 'module', name }),
};
const startHelper = (/** @type {string} */ name) => new Worker(new URL('./serve.js', import.meta.url), { type: 'module', name });

/** @type {T.StartWorker} */
function startWorker(start, fail) {
  // Also the name of the lock that the worker holds while it lives.
  const lock = `tilewright-${crypto.getRandomValues(new Uint32Array(4)).join('-')}`;
  const worker = start(lock);
  worker.addEventListener('error', (event) => {
    // The rejected promise says it all.
    event.preventDefault();
    fail(`The engine's worker failed: ${event.message || 'its script could not be loaded'}`,
      "Serve the engine's files as JavaScript, and let the content security policy allow workers of this origin",
      { file: event.filename, line: event.lineno });
  });
  return { worker, lock };
}

/** @type {T.OpenLink} */
export function openLink(onProgress, threads, device) {
  if (!Object.hasOwn(STARTERS, device)) throw new EngineError('input', `There is no device '${device}'`, `It is ${Object.keys(STARTERS).join(' or ')}`, { device });
  /** @type {T.Pending} */
  const pending = new Map();
  let next = 1;
  /** Why the line is dead. @type {unknown} */
  let end = null;
  /** The further workers, by number. @type {Map<number, T.Lodged>} */
  const helpers = new Map();
  /** @type {WebAssembly.Memory | null} */
  let memory = null;
  const words = () => memory && wordsOf(memory);

  /** @type {T.Link['close']} */
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
    // Dead before its first word, or slow: the next one gets longer.
    const late = await within(limit, new Promise((resolve) => (helper.worker.onmessage = () => resolve(''))));
    if (!late) await navigator.locks.request(helper.lock, () => {});
    if (end || helpers.get(number) !== helper) return;
    // A run that it was in cannot be finished any more.
    const control = words();
    if (control && Atomics.load(control, stepOf(number))) leaveRun(control, number, STALLED);
    replace(number, late ? 2 * limit : limit);
  }

  /** Starts another when it is really gone: until then it may write. @type {T.Help} */
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
    // A killed worker sends no event, but the browser frees its locks.
    if (alive) navigator.locks.request(lock, () => fail('The worker died: the browser ended it', 'Load the bundle again; if it happens again, the device may lack memory'));
    if (pages) {
      // Made here: V8 collects memories of closed engines in the thread that asks alone.
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
  worker.addEventListener('messageerror', () => fail('A message of the worker could not be read', 'Load the bundle again'));
  for (let number = 1; number < threads; number++) help(number);

  /** @type {T.Link} */
  const link = {
    onend() {},

    close,

    get memory() {
      return memory;
    },

    async request(kind, params) {
      if (end) throw end;
      const answer = Promise.withResolvers();
      pending.set(next, answer);
      worker.postMessage({ id: next++, kind, params });
      return answer.promise;
    },

    preempt(on) {
      const control = words();
      if (!control) throw end ?? new EngineError('host', 'Runs can only be stopped from outside where memory is shared', 'Serve the page cross-origin isolated');
      Atomics.store(control, PREEMPT, Number(on));
      Atomics.notify(control, PREEMPT);
    },
  };
  return link;
}

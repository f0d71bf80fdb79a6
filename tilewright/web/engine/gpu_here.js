// WebGPU in the caller's thread, on the caller's device: what link.js is to a worker.  Loaded on demand.
// Input: a GPUDevice.  Output: T.Link.  When it closes, all that the engine made on the device is destroyed; the device is the caller's.

import { asEngineError, EngineError } from './errors.js';
import { runOn } from './gpu_buffers.js';
import { answering } from './requests.js';
import { load } from './webgpu.js';

/** @type {T.OpenHere} */
export const openHere = (device) => (onProgress) => {
  /** Why the link is closed; null while it is open. @type {unknown} */
  let end = null;
  const own = keeping(device, () => end);
  /** @type {Set<(reason: unknown) => void>} */
  const pending = new Set();
  const ask = answering(load, { gpu: own.device }, (progress) => end || onProgress(progress));

  /** @type {T.Link} */
  const link = {
    onend() {},
    memory: null,
    // Not on demand: a run with buffers must be queued, and copy its arrays, before `run` returns.
    here: { runOn },

    close(reason) {
      if (end) return;
      end = reason;
      own.destroy();
      pending.forEach((reject) => reject(reason));
      pending.clear();
      link.onend();
    },

    async request(kind, params) {
      if (end) throw end;
      const { promise, resolve, reject } = Promise.withResolvers();
      pending.add(reject);
      ask(kind, params).then(resolve, (error) => reject(asEngineError(error))).finally(() => pending.delete(reject));
      return promise;
    },

    preempt() {
      throw new EngineError('host', 'Runs on a GPU cannot be preempted', 'Load the bundle with device wasm');
    },
  };
  return link;
};

/**
 * The device as the engine gets it: `destroy` ends all that was made on it and is still there.  Once there is an `end`, it gives nothing any more,
 * so that a load that was aborted stops.
 * @type {T.Keeping}
 */
function keeping(device, end) {
  /** What was collected needs no end. @type {Set<WeakRef<{destroy(): void}>>} */
  const made = new Set();
  const collected = new FinalizationRegistry((/** @type {any} */ thing) => made.delete(thing));
  /** @type {any} */
  const all = device;
  return {
    device: new Proxy(device, {
      get(_, name) {
        if (end()) throw end();
        if (typeof all[name] !== 'function') return all[name];
        return (/** @type {any[]} */ ...given) => {
          const thing = all[name](...given);
          if (thing?.destroy) {
            const kept = new WeakRef(thing);
            made.add(kept);
            collected.register(thing, kept);
          }
          return thing;
        };
      },
    }),
    destroy: () => made.forEach((kept) => kept.deref()?.destroy()),
  };
}

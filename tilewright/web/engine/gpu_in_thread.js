// WebGPU in the caller's thread, on the caller's device; channel.js is the same for a worker.  Loaded on demand.
// Input: a GPUDevice.  Output: T.Channel.  Closing it destroys all that the engine made on the device; the device itself stays.

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

  /** @type {T.Channel} */
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
 * A wrapper of the caller's device for the engine: its `destroy` destroys all that was made through it and still exists.  After `end` it
 * makes nothing more, so that an aborted load stops.
 * @type {T.Keeping}
 */
function keeping(device, end) {
  /** Garbage-collected objects need no destroying. @type {Set<WeakRef<{destroy(): void}>>} */
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

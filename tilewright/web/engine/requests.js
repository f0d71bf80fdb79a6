// The worker's side of channel.js and gpu_in_thread.js: a message loop that carries out each request and answers it exactly once.
// Input: a backend.  Runs are not queued here: the page orders them.

import { live } from './plan_runner.js';
import { asEngineError } from './errors.js';
import { loadBundle } from './loader.js';
import { makePool } from './pool.js';

/** @type {T.LargeParts} */
const largeParts = (value) => (value instanceof ArrayBuffer ? [value] : value?.outputs?.map((/** @type {T.Output} */ { data }) => data.buffer) ?? []);

/** @type {T.Answering} */
export function answering(load, crew, report) {
  /** Set by the load, before which the page sends no other request. @type {T.LoadedBundle} */
  let bundle;
  return async (kind, params) => {
    if (kind !== 'load') return /** @type {any} */ (bundle)[kind](params);
    const { url, limits, threads } = params;
    bundle = await loadBundle(load, url, limits, { ...crew, threads }, report);
    const { info, manifest, program, setup } = bundle;
    return { info, manifest, program, setup: setup && { ...setup, memory: null } };
  };
}

/** @type {T.Answer} */
export function answer(load) {
  const pool = makePool();
  /** @type {PromiseWithResolvers<WebAssembly.Memory | null>} */
  const { promise, resolve } = Promise.withResolvers();

  /** Asks the page to allocate the memory. @param {[number, number]} pages */
  function claim(pages) {
    self.postMessage({ pages });
    return promise;
  }

  const ask = answering(load, { pool, claim }, (progress) => self.postMessage({ progress }));

  self.addEventListener('message', async ({ data: { id, kind, params, helper, memory } }) => {
    if (helper) return pool.add(helper.number, helper.port);
    if (memory !== undefined) return resolve(memory);
    try {
      const value = await ask(kind, params);
      self.postMessage({ id, value }, { transfer: largeParts(value) });
    } catch (error) {
      await pool.mend();
      self.postMessage({ id, error: asEngineError(error).toJSON() });
    }
  });

  live();
}

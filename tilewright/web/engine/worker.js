// The worker's message loop: every request of link.js gets exactly one answer.
// Runs are synchronous; their order is the page's business.

import { live } from './driver.js';
import { asEngineError } from './errors.js';
import { loadBundle } from './loader.js';
import { makePool } from './pool.js';

/** Nothing else is asked before the load has ended. @type {T.Loaded} */
let bundle;
const pool = makePool();
/** @type {PromiseWithResolvers<WebAssembly.Memory | null>} */
const { promise, resolve } = Promise.withResolvers();

/** Has the page make the memory. @param {number} pages */
function claim(pages) {
  self.postMessage({ pages });
  return promise;
}

/** @type {Record<string, (params: any) => unknown>} */
const HANDLERS = {
  async load({ url, limits, threads }) {
    bundle = await loadBundle(url, limits, { threads, pool, claim }, (progress) => self.postMessage({ progress }));
    const { info, manifest, program, setup } = bundle;
    return { info, manifest, program, setup: setup && { ...setup, memory: null } };
  },
  run: (work) => bundle.run(work),
  measure: (work) => bundle.measure(work),
  state: (work) => bundle.state(work),
  swap: (kernels) => bundle.swap(kernels),
  file: async (ref) => (await bundle.files.bytes(ref)).buffer,
};

/** @type {T.LargeParts} */
const largeParts = (value) => (value instanceof ArrayBuffer ? [value] : value?.outputs?.map((/** @type {T.Output} */ { data }) => data.buffer) ?? []);

self.addEventListener('message', async ({ data: { id, kind, params, helper, memory } }) => {
  if (helper) return pool.add(helper.number, helper.port);
  if (memory !== undefined) return resolve(memory);
  try {
    const value = await HANDLERS[kind](params);
    self.postMessage({ id, value }, { transfer: largeParts(value) });
  } catch (error) {
    await pool.mend();
    self.postMessage({ id, error: asEngineError(error).toJSON() });
  }
});

live();

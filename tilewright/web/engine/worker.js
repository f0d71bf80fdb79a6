// The worker's message loop: every request of link.js gets exactly one answer.
// Runs are synchronous here; their order is the main thread's business.

import { asEngineError } from './errors.js';
import { loadBundle, readAsset } from './loader.js';
import { makePool } from './pool.js';

/** Nothing else is asked before the load has ended. @type {Awaited<ReturnType<typeof loadBundle>>} */
let bundle;
const pool = makePool();

/** @type {Record<string, (params: any) => unknown>} */
const HANDLERS = {
  async load({ url, limits, threads }) {
    const share = (/** @type {WebAssembly.Memory} */ memory) => self.postMessage({ memory });
    bundle = await loadBundle(url, limits, { threads, pool, share }, (progress) => self.postMessage({ progress }));
    return { info: bundle.info, places: bundle.manifest.plans.map(({ inputs, outputs }) => ({ inputs, outputs })) };
  },
  run: (work) => bundle.machine.run(work),
  time: (work) => bundle.machine.time(work),
  profile: (work) => bundle.machine.profile(work),
  asset: ({ name }) => readAsset(bundle.manifest, bundle.files, name),
};

/** @type {T.LargeParts} */
const largeParts = (value) => (value instanceof ArrayBuffer ? [value] : value.outputs?.map((/** @type {T.Output} */ { data }) => data.buffer) ?? []);

self.addEventListener('message', async ({ data: { id, kind, params, helper, lost } }) => {
  if (helper) return pool.add(helper.number, helper.port);
  if (lost) return pool.replace(lost);
  try {
    const value = await HANDLERS[kind](params);
    self.postMessage({ id, value }, { transfer: largeParts(value) });
  } catch (error) {
    await pool.mend();
    self.postMessage({ id, error: asEngineError(error).toJSON() });
  }
});

// The lock is held until the worker ends, however it ends: link.js waits for it to notice.
navigator.locks?.request(self.name, () => {
  self.postMessage({ alive: true });
  return new Promise(() => {});
});

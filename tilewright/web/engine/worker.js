// The worker's message loop: every request of link.js gets exactly one answer.
// Input: {id, kind, params}.  Output: {id, value} or {id, error}, and progress while loading.
// Runs are synchronous here; their order and their cancelling are the main thread's business.

import { asEngineError, EngineError } from './errors.js';
import { loadBundle, readAsset } from './loader.js';
import { Pool } from './pool.js';

/**
 * @typedef {Awaited<ReturnType<typeof loadBundle>>} Loaded
 * @typedef {{plan: number, sizes: import('./types.js').Sizes, tensors: import('./tensors.js').Tensor[]}} RunParams
 */

/** @type {Loaded | null} */
let bundle = null;
const pool = new Pool();

/** @type {Record<string, (params: any) => unknown>} */
const HANDLERS = {
  async load({ url, limits, threads }) {
    const share = (/** @type {WebAssembly.Memory} */ memory) => self.postMessage({ memory });
    bundle = await loadBundle(url, limits, { threads, pool, share }, (progress) => self.postMessage({ progress }));
    return bundle.info;
  },
  run: (/** @type {RunParams} */ { plan, sizes, tensors }) => loaded().machine.run(plan, sizes, tensors),
  time: ({ plan, runs, warmup }) => loaded().machine.time(plan, runs, warmup),
  profile: ({ plan, runs }) => loaded().machine.profile(plan, runs),
  asset: ({ name }) => readAsset(loaded().manifest, loaded().files, name),
};

function loaded() {
  if (bundle) return bundle;
  throw new EngineError('host', 'No bundle is loaded in this worker', 'Load the bundle first');
}

/**
 * Large results move to the main thread instead of being copied.
 * @param {string} kind
 * @param {any} value
 * @returns {Transferable[]}
 */
function largeParts(kind, value) {
  if (kind === 'asset') return [value];
  if (kind !== 'run') return [];
  return value.outputs.map((/** @type {import('./tensors.js').Tensor} */ { data }) => data.buffer);
}

self.addEventListener('message', async ({ data: { id, kind, params, helper, lost } }) => {
  if (helper) return pool.add(helper.number, helper.port);
  if (lost) return pool.replace(lost);
  try {
    const value = await HANDLERS[kind](params);
    self.postMessage({ id, value }, { transfer: largeParts(kind, value) });
  } catch (error) {
    await pool.mend();
    self.postMessage({ id, error: asEngineError(error).toJSON() });
  }
});

// The lock is held until the worker ends, however it ends: link.js waits for it to notice.
const lock = self.name;
navigator.locks?.request(lock, () => {
  self.postMessage({ alive: true });
  return new Promise(() => {});
});

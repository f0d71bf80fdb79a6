// Loads a bundle inside the worker: bundle.json, the manifest, then the files that the backend requests.  A bundle that cannot run here is
// rejected before weights are downloaded.

import { readManifest, readPointer } from './bundle.js';
import { EngineError } from './errors.js';
import { probeHost, requireHost } from './features.js';
import { bundleFiles, makeMeter } from './files.js';
import { openStore } from './opfs_cache.js';
import { useHalves } from './tensors.js';

const POINTER = 'bundle.json';

/** @type {T.LoadBundle} */
export async function loadBundle(load, url, limits, crew, report) {
  const start = performance.now();
  /** @type {T.Timings} */
  const timings = { manifest: 0, code: 0, weights: 0, ready: 0 };
  const reached = (/** @type {keyof T.Timings} */ part) => (timings[part] = performance.now() - start);
  const host = probeHost();
  requireHost(host);
  const stop = new AbortController();
  const meter = makeMeter(report);
  const { manifest, digest, manifestBytes, files, store, base } = await openBundle(url, meter, stop.signal, limits);
  reached('manifest');
  meter.total = manifestBytes;
  try {
    const loaded = await load({ manifest, files, meter, host, reached }, limits, crew);
    const { program: { plans }, threads, memoryBytes, variant, adapter = null } = loaded;
    await files.settle();
    meter.enter('ready');
    reached('ready');
    const { name, tool, inputs, outputs, dims, assets } = manifest;
    /** @type {T.LoadedBundle['info']} */
    const info = {
      name, tool, inputs, outputs, dims, digest, memoryBytes, variant, adapter, timings,
      url: base.href,
      bytes: meter.total,
      plans: plans.map(({ dims, steps }) => ({ dims, steps: steps.length, flops: steps.reduce((sum, step) => sum + step.flops, 0) })),
      features: { ...host, threads },
      assets: assets.map((asset) => asset.name),
      cache: { state: store.on ? 'on' : 'off', hitBytes: meter.cached, downloadedBytes: meter.loaded - meter.cached, problem: store.problem },
      loadMilliseconds: timings.ready,
      lost: loaded.lost(store.problem),
    };
    return Object.assign(loaded, { manifest, info, file: async (/** @type {T.FileRef} */ ref) => (await files.bytes(ref)).buffer });
  } catch (error) {
    stop.abort();
    throw error;
  }
}

/** @type {T.OpenBundle} */
export async function openBundle(url, meter, signal, { verify, key, name }) {
  const base = new URL(url);
  const store = await openStore();
  const files = bundleFiles({ base, store, meter, signal, verify });
  meter.enter('manifest');
  const pointer = await files.pointer(POINTER, readPointer);
  if (key !== undefined) await (await import('./signatures.js')).requireSigned(key, pointer, name, store, EngineError);
  const { manifest: ref } = pointer;
  const manifest = readManifest(await files.bytes(ref), ref.file);
  await useHalves(manifest);
  return { manifest, digest: ref.digest, manifestBytes: ref.bytes, files, store, base };
}

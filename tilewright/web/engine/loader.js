// Loads a bundle inside the worker: pointer, manifest, then code and weights side by side.
// What cannot run here is refused before weights are downloaded.

import { neededFiles, readManifest, readPointer, wasmOf } from './bundle.js';
import { EngineError } from './errors.js';
import { pickVariant, probeHost, requireHost, whatIsLost } from './features.js';
import { SPIN } from './abi.js';
import { instantiate, makeMemory, wordsOf } from './driver.js';
import { bundleFiles, makeMeter } from './files.js';
import { makeMachine } from './machine.js';
import { openStore } from './store.js';

const PAGE = 65536;
const WASM32_PAGES = 65536;
const PARALLEL = 4;
const POINTER = 'bundle.json';

/** @param {string} url @param {T.Limits} limits @param {T.Crew} crew @param {T.Report} report */
export async function loadBundle(url, limits, { threads, pool, claim }, report) {
  const start = performance.now();
  /** @type {T.Timings} */
  const timings = { manifest: 0, code: 0, weights: 0, ready: 0 };
  const reached = (/** @type {keyof T.Timings} */ part) => (timings[part] = performance.now() - start);
  const host = probeHost();
  requireHost(host);
  const stop = new AbortController();
  const meter = makeMeter(report);
  const { manifest, digest, manifestBytes, files, store, base } = await openBundle(url, meter, stop.signal, limits.verify);
  reached('manifest');
  const program = wasmOf(manifest);
  const { plans, memory: { weights: first, scratch, scratch_bytes: scratchBytes } } = program;
  const { build, why } = pickVariant(program.builds, host, limits);
  meter.total = neededFiles(program, build, manifest.weights.shards).reduce((sum, ref) => sum + ref.bytes, manifestBytes);

  // Without isolation memory cannot leave the worker that made it.
  const memory = await allocate(program.memory, threads, limits.memoryLimit, host.isolated ? claim : makeMemory);
  // More threads than cores must not spin.
  if (threads > host.cores) wordsOf(memory)[SPIN] = 1;
  try {
    meter.enter('code');
    let end = first;
    const images = build.plans.map((ref, plan) => ({ ref, address: plans[plan].address }));
    const shards = manifest.weights.shards.map((ref) => ({ ref, address: (end += ref.bytes) - ref.bytes }));
    const compiling = Promise.all([files.module(build.code), files.bytes(program.driver).then((bytes) => WebAssembly.compile(bytes))]);
    const weights = fillMemory([...images, ...shards], memory, files).then(() => reached('weights'));
    const starting = compiling.then(async ([kernels, module]) => {
      meter.enter('weights');
      const setup = { modules: [kernels.module, module], tuned: [], memory, slots: program.slots, scratch, scratchBytes };
      const [driver, problems] = await Promise.all([instantiate(setup, 0), pool.start(setup)]);
      reached('code');
      return { driver, setup, problems, problem: kernels.problem };
    });
    const [{ driver, setup, problems, problem }] = await Promise.all([starting, weights]);
    await files.settle();
    meter.enter('ready');
    reached('ready');
    const { name, tool, inputs, outputs, dims, assets } = manifest;
    const info = {
      name, tool, inputs, outputs, dims,
      url: base.href,
      digest,
      bytes: meter.total,
      memoryBytes: memory.buffer.byteLength,
      plans: plans.map(({ dims, steps }) => ({ dims, steps: steps.length, flops: steps.reduce((sum, step) => sum + step.flops, 0) })),
      features: { ...host, threads },
      variant: { name: build.variant, features: build.features, registers: build.facts.registers, why },
      assets: assets.map((asset) => asset.name),
      cache: { state: store.on ? 'on' : 'off', hitBytes: meter.cached, downloadedBytes: meter.loaded - meter.cached, problem: store.problem },
      timings,
      loadMilliseconds: timings.ready,
      lost: whatIsLost(host, build, program.builds, { threads, asked: limits.threads, problems, cacheProblem: store.problem, codeProblem: problem }),
    };
    return { machine: makeMachine(plans, memory, driver, threads), manifest, program, files, info, setup };
  } catch (error) {
    stop.abort();
    throw error;
  }
}

/** @type {T.OpenBundle} */
async function openBundle(url, meter, signal, verify) {
  const base = new URL('.', url.endsWith(POINTER) ? url : url.replace(/\/?$/, '/'));
  const store = await openStore();
  const files = bundleFiles({ base, store, meter, signal, verify });
  meter.enter('manifest');
  const { manifest: ref } = await files.pointer(POINTER, readPointer);
  return { manifest: readManifest(await files.bytes(ref), ref.file), digest: ref.digest, manifestBytes: ref.bytes, files, store, base };
}

/** @param {string} url */
export async function readManifestOf(url) {
  requireHost(probeHost());
  return (await openBundle(url, makeMeter(() => {}), new AbortController().signal)).manifest;
}

/** @type {T.Allocate} */
async function allocate(memory, threads, limit, claim) {
  const bytes = memory.bytes + (threads - 1) * memory.scratch_bytes;
  const pages = Math.ceil(bytes / PAGE);
  const refuse = (/** @type {string} */ why, most = 0) => new EngineError('memory-limit', `The model needs ${mebibytes(bytes)} of memory, ${why}`,
    'Close other tabs, or build the bundle with smaller buckets or a smaller model', { estimate: bytes, limit: most });
  if (pages > WASM32_PAGES) throw refuse('more than 4 GiB, the most that WebAssembly can address', WASM32_PAGES * PAGE);
  if (limit !== undefined && bytes > limit) throw refuse(`more than the limit of ${mebibytes(limit)} that the page set`, limit);
  const made = await claim(pages);
  if (!made) throw refuse('more than this browser gives to the page');
  return made;
}

/** @param {number} bytes */
const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/** @type {T.FillMemory} */
async function fillMemory(parts, memory, files) {
  const queue = parts.values();
  await Promise.all(Array.from({ length: PARALLEL }, async () => {
    for (const { ref, address } of queue) await files.into(ref, new Uint8Array(memory.buffer, address, ref.bytes));
  }));
}

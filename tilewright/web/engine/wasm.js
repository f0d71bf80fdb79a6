// The WebAssembly backend: a bundle in one linear memory, run by generated code in one or more workers.
// Input: an opened bundle.  Output: T.BackendLoaded, the interface that the engine's worker uses.

import { ABORT, EPOCH, HEADER, RECORD, SPIN, STOP, TRAP } from './abi.js';
import { count, json, placed, requireCounts, sectionOf } from './bundle.js';
import { instantiate, makePlanRunner, makeMemory, wordsOf } from './plan_runner.js';
import { EngineError, LATE, requireCount, within } from './errors.js';
import { PAGE } from './memory_growth.js';
import { pickVariant, whatIsLost } from './features.js';
import { exchanged } from './tensors.js';
import { driverOf, kernelsOf } from './vet.js';

const TARGET = 'wasm';
/** Bytes in which a plan counts where states begin that grow. */
const LINE = 64;

const SECTION = {
  builds: [{ features: [Object], code: {}, plans: [{}], facts: {} }],
  programs: { driver: {} },
  plans: [{ inputs: [count], outputs: [count] }],
  facts: { memory: {}, states: [count] },
};

/** The parts of the engine that exchange.js needs. @type {T.ExchangeTools} */
const TOOLS = { ABORT, EPOCH, STOP, TRAP, LATE, EngineError, instantiate, makePlanRunner, within, wordsOf };

/** The most kernels of a bundle. */
const MOST_SLOTS = 65535;
/** The most pages of a memory. */
const MOST_PAGES = 65536;
/** Files that are read at the same time. */
const PARALLEL = 4;

/** @type {T.LoadBackend} */
export async function load({ manifest, files, meter, host, reached }, limits, { threads, pool, claim }) {
  const program = programOf(manifest);
  const { plans, memory: { weights: first, scratch, scratch_bytes: scratchBytes } } = program;
  const { build, why } = pickVariant(program.builds, host, limits);
  const { shards: refs, tensors, bytes, memory: wide } = manifest.weights;
  const needed = [program.driver, build.code, ...build.plans, ...refs, ...wide ? [tensors] : []];
  meter.total += needed.reduce((sum, ref) => sum + ref.bytes, 0);

  // Without isolation, memory cannot be sent to another thread, so the worker makes its own.
  const { growth, memory: { bytes: own } } = program, behind = own + (threads - 1) * scratchBytes;
  const [least, most] = [1, growth?.most ?? 0].map((blocks) => behind + blocks * (growth?.block ?? 0));
  const memory = await allocate(least, most, limits.memoryLimit, host.isolated ? claim : makeMemory);
  // With more threads than cores, spinning would take the core from a working thread.
  if (threads > host.cores) wordsOf(memory)[SPIN] = 1;
  meter.enter('code');
  const widening = await widener(manifest, files);
  let end = 0;
  const images = plans.map(({ address, steps }, plan) => {
    const ref = build.plans[plan] ?? {};
    requireCounts('image', address / 4, program.memory.bytes - address - ref.bytes, ref.bytes / 4 - HEADER - RECORD * (steps.length + 1));
    return { ref, address };
  });
  const shards = refs.map((ref) => ({ ref, address: first + widening.start + end, end: (end += ref.bytes) }));
  requireCounts('memory', first, bytes - end, widening.start, program.memory.bytes - first - widening.memory);
  const region = new Uint8Array(memory.buffer, first, widening.memory);
  const compiling = Promise.all([files.module(build.code, kernelsOf(program.slots)), files.module(program.driver, driverOf(manifest.extents.length + Number(!!growth)))]);
  const weights = fillMemory([...images, ...shards], memory, files, (bytes) => widening.arrived(region, bytes)).then(() => {
    // Further steps would be read from the bytes after the image.
    for (const { address, steps } of plans) requireCounts('image', new Uint32Array(memory.buffer)[address / 4] - steps.length);
    reached('weights');
  });
  const starting = compiling.then(async ([kernels, driving]) => {
    meter.enter('weights');
    const setup = { modules: [kernels.module, driving.module], tuned: [], memory, slots: program.slots, scratch, scratchBytes };
    const [driver, problems] = await Promise.all([instantiate(setup, 0), pool.start(setup)]);
    reached('code');
    return { driver, setup, problems, problem: kernels.problem };
  });
  const [{ driver, setup, problems, problem }] = await Promise.all([starting, weights]);
  if (growth) {
    growth.behind = behind;
    for (const { address } of plans) driver.resize(address, manifest.extents.length, behind / LINE);
  }
  /** @type {T.WasmLoaded} */
  const loaded = {
    program, setup, threads,
    machine: makePlanRunner(plans, memory, driver, threads),
    memoryBytes: memory.buffer.byteLength,
    variant: { name: build.variant, features: build.features, registers: build.facts.registers, why },
    lost: (cacheProblem) => whatIsLost(host, build, program.builds, { threads, asked: limits.threads, problems, cacheProblem, codeProblem: problem }),
    run: (work) => loaded.machine.run(work),
    measure: async (work) => (await import('./measure.js')).measure(loaded, work, requireCount, EngineError),
    state: (work) => exchanged(memory, work),
    swap: async (next) => (await import('./exchange.js')).exchange(TOOLS, loaded, pool, /** @type {Required<T.TunedImages>} */ (next)),
  };
  return loaded;
}

/** @type {T.ProgramOf} */
export function programOf(manifest) {
  const section = sectionOf(manifest, TARGET, SECTION);
  const { builds, slots, programs: { driver }, facts: { memory } } = section;
  requireCounts('memory', slots, MOST_SLOTS - slots, memory.scratch, memory.scratch_bytes, memory.bytes - 1);
  return { builds, driver, slots, memory, ...placed(manifest, section) };
}

/** Converts weights that are narrower in files to f32; loads weight_decoding.js only for bundles that need it. @type {T.Widener} */
export async function widener({ weights: { bytes, memory, tensors } }, files) {
  if (!memory) return { start: 0, memory: bytes, arrived() {} };
  const [{ widening }, listed] = await Promise.all([import('./weight_decoding.js'), json(files, tensors)]);
  return widening(listed, memory, memory - bytes);
}

/** @type {T.Allocate} */
async function allocate(bytes, most, limit = Infinity, claim) {
  const [pages, largest] = [bytes, Math.max(bytes, Math.min(most, limit))].map((size) => Math.ceil(size / PAGE));
  const refuse = (/** @type {string} */ why, most = 0) => new EngineError('memory-limit', `The model needs ${mebibytes(bytes)} of memory, ${why}`,
    'Close other tabs, or build smaller buckets', { estimate: bytes, limit: most });
  if (largest > MOST_PAGES) throw refuse("more than WebAssembly's 4 GiB", MOST_PAGES * PAGE);
  if (bytes > limit) throw refuse(`above the page's limit of ${mebibytes(limit)}`, limit);
  const made = await claim([pages, largest]);
  if (!made) throw refuse('more than this browser gives to the page');
  return made;
}

/** @param {number} bytes */
const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/** @type {T.FillMemory} */
async function fillMemory(parts, memory, files, arrived) {
  const queue = parts.entries(), done = new Set();
  let edge = 0;
  await Promise.all(Array.from({ length: PARALLEL }, async () => {
    for (const [at, { ref, address }] of queue) {
      await files.into(ref, new Uint8Array(memory.buffer, address, ref.bytes));
      done.add(at);
      for (; done.has(edge); edge++) arrived(parts[edge].end ?? 0);
    }
  }));
}

// The WebGPU backend: a bundle in one storage buffer of 32-bit words, one dispatch per step.
// Input: an opened bundle.  Output: T.BackendLoaded, the interface that the engine's worker uses.
// In the device's memory, elements of less than 32 bits take one word each (docs/bundle-wgsl.md).

import { count, json, placed, requireCounts, requireForm, sectionOf } from './bundle.js';
import { EngineError } from './errors.js';
import { deviceFor, furtherOf, Health, isFull, layoutOf, refusedWork, requireMade, requireRoom, scoped, SECTION, TEXTS, widen, WORD } from './gpu_device.js';
import { blockBytesOf, Kernels, planOf } from './gpu_plan.js';
import { Timing } from './gpu_measure.js';
import { copyOut, requireBuffer } from './gpu_tensors.js';
import { MOST_CARRIED, Results, Runs } from './gpu_runs.js';
import { upload } from './gpu_upload.js';
import { ownOf } from './tensors.js';

const TARGET = 'wgsl';

/** The most kernels of a bundle. */
const MOST_SLOTS = 65535;

/** @type {T.LoadBackend} */
export async function load({ manifest, files, meter, reached }, limits, { gpu }) {
  const model = modelOf(manifest);
  const { build, program, own, banks, total } = model;
  const wanted = [build.code, ...build.plans, manifest.weights.tensors, ...manifest.weights.shards];
  meter.total += wanted.reduce((sum, ref) => sum + ref.bytes, 0);
  if (limits.memoryLimit && total > limits.memoryLimit) {
    throw new EngineError('memory-limit', `The model needs ${total} bytes of GPU memory, and memoryLimit is ${limits.memoryLimit}`,
      'Raise memoryLimit, or build the bundle with smaller buckets or a smaller model', { estimate: total, limit: limits.memoryLimit });
  }
  const { device, adapter } = await deviceFor(Math.max(...own, ...banks), limits, gpu);
  const theirs = Boolean(gpu);
  const health = new Health(device, theirs);
  /** @type {T.OnGpu} */
  const on = { device, adapter, health, theirs };

  meter.enter('code');
  const layout = layoutOf(device, banks.length, own.length - 1);
  const kernels = new Kernels(on, layout);
  const texts = /** @type {string[]} */ (requireForm(await json(files, build.code), TEXTS, build.code.file));
  requireCounts(build.code.file, program.slots - texts.length);
  const listed = await Promise.all(program.plans.map(async (_, number) => json(files, build.plans[number] ?? {})));
  const calls = await kernels.choose(texts, listed, model, meter).catch(health.orGone);
  reached('code');

  meter.enter('weights');
  const memory = await memoryOf(device, model);
  await upload(device, [memory.buffers[0], ...memory.banks], manifest, model.lying, files).catch(health.orGone);
  const { plans, carrier } = await plansOf(on, layout, program, calls, kernels.pipelines, memory);
  health.requireUsable();
  reached('weights');
  const results = new Results(on, memory.buffers, carrier);
  return new WebGpu(on, model, kernels, new Runs(on, program, plans, memory.buffers, results));
}

/** The manifest's facts about the model on this target, checked. @type {T.ModelOnGpu} */
function modelOf(manifest) {
  const section = sectionOf(manifest, TARGET, SECTION);
  const { builds: [build], slots, facts: { memory: { bytes, ...rest }, tensors: addresses, halves = [], packed = [], ...further } } = section;
  const [{ sizes: banks, of: bankOf }, annexes] = [furtherOf(further.banks), furtherOf(further.annexes)];
  for (const dense of [halves, packed]) requireForm(dense, [count], TARGET);
  const own = [bytes, ...annexes.sizes];
  requireCounts('memory', section.builds.length - 1, MOST_SLOTS - slots, bytes / WORD - 1);
  const largest = { ...section, facts: { ...section.facts, memory: { ...rest, bytes: Math.max(...own) } } };
  const program = { builds: [], slots, memory: { ...rest, bytes, scratch_bytes: 0 }, ...placed(manifest, largest) };
  program.states.forEach((place, at) => (place.annex = annexes.of[at]));
  for (const place of [...program.states, ...program.plans.flatMap(({ inputs, outputs }) => [...inputs, ...outputs])]) requireRoom(place, own[place.annex ?? 0]);
  const total = [...own, ...banks].reduce((sum, size) => sum + size, 0);
  return { build, program, own, banks, total, lying: { addresses, bankOf, halves, packed } };
}

/** Makes the model's buffers: for values, and for weights alone. @type {T.MemoryOnGpu} */
async function memoryOf(device, { own, banks, total }) {
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const { value: made, problem } = scoped(device, () => [...own, ...banks].map((size) => device.createBuffer({ size, usage })));
  await requireMade(problem, 'the model', total, 'Close other tabs, or build smaller buckets');
  return { buffers: made.slice(0, own.length), banks: made.slice(own.length) };
}

/** Makes the dispatches of all plans, and the buffer in which a run leaves outputs for the next one. @type {T.PlansOnGpu} */
async function plansOf({ device }, layout, program, calls, pipelines, { buffers: [memory, ...annexes], banks }) {
  const { value, problem } = scoped(device, () => ({
    plans: program.plans.map(({ steps }, number) => planOf(device, layout, memory, pipelines, calls[number], steps, { banks, annexes })),
    carrier: device.createBuffer({ size: MOST_CARRIED, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }),
  }));
  // Unlike a buffer, a binding may be wrong for other reasons than memory.
  const wrong = await problem;
  if (wrong && !isFull(wrong)) throw refusedWork(wrong);
  await requireMade(problem, "the plans' numbers", blockBytesOf(calls) + MOST_CARRIED, 'Close other tabs, or build fewer buckets');
  return value;
}

/** A bundle on a device. @implements {T.BackendLoaded} */
class WebGpu {
  setup = null;
  threads = 1;
  program;
  memoryBytes;
  variant;
  adapter;
  #kernels;
  #runs;
  #timing;

  /** @param {T.OnGpu} on @param {ReturnType<T.ModelOnGpu>} model @param {Kernels} kernels @param {Runs} runs */
  constructor({ adapter, theirs }, { program, build, total }, kernels, runs) {
    this.program = program;
    this.memoryBytes = total;
    const why = theirs ? `the page gave a device of ${adapter.name}` : `the page asked for WebGPU, and ${adapter.name} is there`;
    this.variant = { name: build.variant, features: kernels.features, registers: 0, why };
    this.adapter = adapter;
    this.#kernels = kernels;
    this.#runs = runs;
    this.#timing = new Timing(runs);
  }

  lost() {
    const { adapter } = this;
    const { lack, refused } = this.#kernels;
    return [
      ...(adapter.software ? [`The WebGPU adapter ${adapter.name} is software: kernels run on the CPU.`] : []),
      ...refused,
      ...(lack.names.length ? [`The fastest kernels are not used: they need ${lack.names.join(', ')}, which the adapter ${adapter.name} lacks.`] : []),
    ];
  }

  /** @type {T.BackendLoaded['run']} */
  async run({ wanted = [], to = {}, ...work }) {
    const { device, health, results, buffers: [memory] } = this.#runs;
    const places = this.program.plans[work.plan].outputs;
    const away = wanted.filter(({ name }) => ownOf(to, name));
    const isBack = (/** @type {{name: string}} */ { name }) => !ownOf(to, name);
    const foreign = away.length > 0 || Boolean(work.tensors?.some(({ data }) => data.from?.buffer));
    // A run is recorded as a whole before the next one, which may begin before this one has returned.
    const { start, reading } = await this.#runs.inTurn(async () => {
      const before = device.createCommandEncoder();
      const since = health.errors();
      await this.#runs.take(work, before);
      away.forEach((output) => requireBuffer(output, to[output.name], 'COPY_DST'));
      const start = performance.now();
      const encoder = this.#runs.record(work.plan, undefined, undefined, 1, { whole: foreign, encoder: before });
      places.forEach((place, at) => ownOf(to, place.name) && copyOut(encoder, memory, place, wanted[at].shape, to[place.name]));
      return { start, reading: results.read(places.filter(isBack), { wanted: wanted.filter(isBack), carries: true, foreign, since, encoder }) };
    });
    const { trapped, outputs } = await reading;
    const milliseconds = performance.now() - start;
    this.#runs.requireWhole(work.plan, trapped);
    return { milliseconds, outputs: [...outputs, ...away.map((output) => ({ ...output, ...to[output.name] }))] };
  }

  /** @type {T.MeasureOnGpu} */
  measure(work) {
    return this.#timing.measure(work);
  }

  /** @type {T.BackendLoaded['state']} */
  async state({ place, data }) {
    const { device, health, results, buffers } = this.#runs;
    // A write to a lost device would report no error.
    health.requireUsable();
    if (!data) return (await results.read([place])).outputs[0].data;
    device.queue.writeBuffer(buffers[place.annex ?? 0], place.address, widen(place.dtype, data));
    return null;
  }

  async probe() {
    const { device, health } = this.#runs;
    // Without a buffer the device would have nothing to do.
    const buffer = device.createBuffer({ size: WORD, usage: GPUBufferUsage.COPY_DST });
    const encoder = device.createCommandEncoder();
    encoder.clearBuffer(buffer);
    device.queue.submit([encoder.finish()]);
    await this.#runs.settled();
    buffer.destroy();
    health.requireThere();
  }

  /** @type {T.BackendLoaded['swap']} */
  async swap({ kernels }) {
    const made = await Promise.all(kernels.map(async (kernel) => /** @type {const} */ ([kernel.spec, await this.#kernels.tuned(kernel)])));
    const tuned = new Map(made);
    this.#runs.plans.forEach((plan) => plan.use(tuned));
  }
}

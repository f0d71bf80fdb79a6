// The WebGPU backend: a bundle in one storage buffer of 32-bit words, one dispatch per step.
// Input: an opened bundle.  Output: T.BackendLoaded, the interface that the engine's worker uses.
// In the device's memory, elements of less than 32 bits take one word each (docs/bundle.md).

import { count, placed, requireCounts, requireForm, sectionOf } from './bundle.js';
import { EngineError, requireCount } from './errors.js';
import { deviceFor, furtherOf, layoutOf, lossOf, pipelineOf, requireRoom, SECTION, stored, TEXTS, widen, WORD } from './gpu_device.js';
import { stampsOf } from './gpu_clock.js';
import { isFull, refusedWork, requireMade, scoped, soundness } from './gpu_errors.js';
import { bytesOf, copyIn, copyOut, copyPlaces, endOf, FIRST, inRow, padded, requireBuffer } from './gpu_places.js';
import { blockBytesOf, callsOf, lacking, planOf, slotsOf } from './gpu_plan.js';
import { keptStates } from './gpu_states.js';
import { upload } from './gpu_upload.js';
import { ownOf, readOutputs, sizesOf } from './tensors.js';
import { json } from './weights.js';

export const TARGET = 'wgsl';

/** Milliseconds that a step runs to be timed: by the device's clock, which browsers round to 0.1, and by waiting; at most so often. */
const [STAMPED, WAITED, MOST_TIMES] = [2, 8, 512];
/** Factor by which that grows at most from one look to the next. */
const MOST_GROWTH = 32;
const NANO = 1e-6;
/** Dispatches in the first submission of a run, and in each further one. */
const [FIRST_PIECE, PIECE] = [16, 128];
/** Most kernels of a bundle. */
const MOST_SLOTS = 65535;
/** Bytes of a buffer for results that is kept for the next ones. */
const MOST_IDLE = 2 ** 24;
/** Bytes of all outputs of a run, after `FIRST`, that the next one may go on with. */
const MOST_CARRIED = FIRST + 64;
/** Pipelines of exchanged kernels that are kept for the next exchange. */
const MOST_KEPT = 64;

/** @type {T.LoadBackend} */
export async function load({ manifest, files, meter, reached }, limits, { gpu }) {
  const section = sectionOf(manifest, TARGET, SECTION);
  const { builds: [build], slots, facts: { memory: { bytes, ...rest }, tensors, halves = [], packed = [], ...further } } = section;
  const [{ sizes, of: bankOf }, apart] = [furtherOf(further.banks), furtherOf(further.annexes)];
  for (const dense of [halves, packed]) requireForm(dense, [count], TARGET);
  const own = [bytes, ...apart.sizes];
  const total = [...own, ...sizes].reduce((sum, size) => sum + size, 0);
  requireCounts('memory', section.builds.length - 1, MOST_SLOTS - slots, bytes / WORD - 1);
  const program = { builds: [], slots, memory: { ...rest, bytes, scratch_bytes: 0 }, ...placed(manifest, { ...section, facts: { ...section.facts, memory: { ...rest, bytes: Math.max(...own) } } }) };
  program.states.forEach((place, at) => (place.annex = apart.of[at]));
  for (const place of [...program.states, ...program.plans.flatMap(({ inputs, outputs }) => [...inputs, ...outputs])]) requireRoom(place, own[place.annex ?? 0]);
  const wanted = [build.code, ...build.plans, manifest.weights.tensors, ...manifest.weights.shards];
  meter.total += wanted.reduce((sum, ref) => sum + ref.bytes, 0);
  if (limits.memoryLimit && total > limits.memoryLimit) {
    throw new EngineError('memory-limit', `The model needs ${total} bytes of GPU memory, and memoryLimit is ${limits.memoryLimit}`,
      'Raise memoryLimit, or build the bundle with smaller buckets or a smaller model', { estimate: total, limit: limits.memoryLimit });
  }
  const { device, adapter } = await deviceFor(Math.max(...own, ...sizes), limits, gpu);
  const loss = lossOf(device);
  const gone = () => new EngineError('host', `The GPU device was lost: ${loss.why || 'it did not answer'}`, gpu ? 'Load the bundle again, on a new device' : 'Load the bundle again', { lost: true });
  const orGone = (/** @type {unknown} */ error) => { throw loss.why ? gone() : error; };
  // What goes wrong on a device of the caller may be the caller's.
  const sound = gpu ? null : soundness(device);
  function requireUsable() {
    if (loss.why) throw gone();
    sound?.require();
  }

  meter.enter('code');
  const layout = layoutOf(device, sizes.length, apart.sizes.length);
  const texts = /** @type {string[]} */ (requireForm(await json(files, build.code), TEXTS, build.code.file));
  requireCounts(build.code.file, slots - texts.length);
  const listed = await Promise.all(program.plans.map(async (_, number) => json(files, build.plans[number] ?? {})));
  /** By slot; those that no step uses on this device are not made. @type {GPUComputePipeline[]} */
  const pipelines = [];
  /** Why kernels that need features made no pipeline: what they need then counts as lacking. @type {string[]} */
  const refused = [];
  /** The steps with kernels that the device runs. @type {() => Promise<{lack: T.Lack, calls: T.GpuCall[][], used: number[]}>} */
  async function chosen() {
    const lack = lacking(build, texts.length, adapter.features);
    const calls = program.plans.map((plan, number) => callsOf(listed[number], build.plans[number]?.file, plan, lack, bytes, sizes, apart.sizes));
    const used = slotsOf(calls);
    /** @type {string[]} */
    const failed = [];
    let made = 0;
    meter.pipelines = { made, of: used.length };
    meter.enter('code');
    await Promise.all(used.map(async (slot) => {
      try {
        pipelines[slot] ??= await pipelineOf(device, layout, texts[slot]);
      } catch (error) {
        const needs = lack.needs[slot];
        if (!needs) throw error;
        failed.push(...needs);
        refused.push(`A kernel that needs ${needs.join(', ')} makes no pipeline on the adapter ${adapter.name}, another is used: ${error}`);
        return;
      }
      meter.pipelines = { made: ++made, of: used.length };
      meter.count(0, false);
    }));
    if (!failed.length) return { lack, calls, used };
    // Sizes and configurations are what drivers differ in.
    const named = failed.filter((name) => /-\d/.test(name));
    adapter.features = adapter.features.filter((name) => !(named.length ? named : failed).includes(name));
    return chosen();
  }
  const { lack, calls, used } = await chosen().catch(orGone);
  reached('code');

  meter.enter('weights');
  const { value: made, problem: full } = scoped(device, () => [...own, ...sizes].map((size) => device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST })));
  /** Where values lie, and weights alone. */
  const [buffers, banks] = [made.slice(0, own.length), made.slice(own.length)];
  const [memory, ...annexes] = buffers;
  await requireMade(full, 'the model', total, 'Close other tabs, or build smaller buckets');
  await upload(device, [memory, ...banks], manifest, { addresses: tensors, bankOf, halves, packed }, files).catch(orGone);
  const { value: { plans, carrier }, problem: crowded } = scoped(device, () => ({
    plans: program.plans.map(({ steps }, number) => planOf(device, layout, memory, pipelines, calls[number], steps, { banks, annexes })),
    carrier: device.createBuffer({ size: MOST_CARRIED, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }),
  }));
  // Unlike a buffer, a binding may be wrong for other reasons.
  const wrong = await crowded;
  if (wrong && !isFull(wrong)) throw refusedWork(wrong);
  await requireMade(crowded, "the plans' numbers", blockBytesOf(calls) + MOST_CARRIED, 'Close other tabs, or build fewer buckets');
  requireUsable();
  reached('weights');

  /** For the next results of the same size: those of a run are as long as those before. @type {GPUBuffer | null} */
  let idle = null;

  /** What a run gave, for the next one: their places in `carrier`. @type {T.Placed[]} */
  let carried = [];

  /** Reads places back after what was recorded, into fresh arrays or those of `wanted`; word 0 of the memory tells whether a kernel trapped. @type {T.ReadPlaces} */
  async function read(places, { wanted = places, from = buffers, carries = false, foreign = false, since = sound?.count(), encoder = device.createCommandEncoder() } = {}) {
    const row = inRow(places);
    const size = endOf(row);
    const known = idle?.size === size ? idle : null;
    if (known) idle = null;
    const { value: back, problem: unmade } = known ? { value: known, problem: null }
      : scoped(device, () => device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }));
    encoder.copyBufferToBuffer(memory, 0, back, 0, WORD);
    copyPlaces(encoder, from, places, [back], row);
    const own = size > MOST_CARRIED ? [] : row;
    if (carries) {
      carried = own;
      copyPlaces(encoder, from, places, [carrier], carried);
    }
    const send = () => {
      device.queue.submit([encoder.finish()]);
      return back.mapAsync(GPUMapMode.READ);
    };
    // Only the device can tell that it has no room, or that a buffer is of another one, or destroyed; what it says outside of scopes is for the page, if it is the page's.
    const { value: mapping, problem } = unmade || foreign || gpu ? scoped(device, send) : { value: send(), problem: null };
    try {
      await mapping.catch(async () => {
        await requireMade(unmade, 'the results', size, 'Close other tabs, or ask for fewer outputs at a time; what the run left in states is not known');
        throw gone();
      });
      const mapped = back.getMappedRange();
      const trapped = new Uint32Array(mapped, 0, 1)[0] > 0;
      // The only copy: from the device's memory to the array that is handed over.
      const outputs = readOutputs(mapped, row.map((place) => ({ ...place, dtype: stored(place.dtype) })), wanted);
      back.unmap();
      const [old, next] = size > MOST_IDLE ? [back, idle] : [idle, back];
      old?.destroy();
      idle = next;
      const refused = await problem;
      if (refused && (!foreign || isFull(refused))) throw refusedWork(refused);
      if (refused) throw new EngineError('input', `The device refused a buffer of the run, which did not begin: ${refused.message}`, 'Give buffers of the device that the bundle was loaded on, which nobody has destroyed');
      sound?.require(since);
      return { trapped, outputs };
    } catch (error) {
      // A later run may have left its own already.
      if (carried === own) carried = [];
      throw error;
    }
  }

  /** An input := what an output of the run before was, which need not have come back. @type {(encoder: GPUCommandEncoder, place: T.Placed, from: string) => void} */
  function follow(encoder, place, from) {
    const output = carried.find(({ name, declared }) => name === from && declared === place.declared);
    if (!output || bytesOf(output) !== bytesOf(place)) {
      throw new EngineError('input', `Input '${place.name}' cannot be what '${from}' was: the run before gave no such output`, 'Give an array', { input: place.name, from });
    }
    copyPlaces(encoder, [carrier], [output], buffers, [place]);
  }

  const stopped = (/** @type {number} */ plan) => new EngineError('kernel-trap', 'A kernel stopped: an index is out of range',
    'Check the inputs that are indices. The engine can be used again', { plan: program.plans[plan].dims });

  /** Where passes are timed, by their number; made when a step is timed, if the adapter has timestamps. @type {Map<number, T.Stamps>} */
  const stamps = new Map();

  /** Records steps, `times` over, and begins with them; what it returns has the last ones, for others to follow. @type {T.RecordSteps} */
  function record(plan, first = 0, last = program.plans[plan].steps.length, times = 1, { timed, whole = false, encoder = device.createCommandEncoder() } = {}) {
    requireUsable();
    const own = plans[plan].dispatches(first, last);
    const count = own.length * times;
    encoder.clearBuffer(memory, 0, WORD);
    const piece = timed ? count / timed.passes : whole ? count : undefined;
    // The device begins while the rest is recorded.  One submission is what is timed by its clock, and what a wrong buffer must stop as a whole.
    for (let done = 0, end = piece ?? Math.min(FIRST_PIECE, count), number = 0; ; end = Math.min(end + (piece ?? PIECE), count)) {
      const pass = encoder.beginComputePass(timed && { timestampWrites: timed.writes(number++) });
      let set;
      for (; done < end; done++) {
        const { pipeline, bindings, groups: [columns, rows] } = own[done % own.length];
        if (pipeline !== set) pass.setPipeline(set = pipeline);
        pass.setBindGroup(0, bindings);
        pass.dispatchWorkgroups(columns, rows);
      }
      pass.end();
      if (done === count) return encoder;
      if (timed) continue;
      device.queue.submit([encoder.finish()]);
      encoder = device.createCommandEncoder();
    }
  }

  /** What takes frames; made for the first of them. @type {Promise<T.TakeFrame> | undefined} */
  let framing;
  const taker = () => (framing ??= import('./gpu_frames.js').then(({ frameTaker }) => frameTaker(device, memory)));

  /** Runs are recorded one after the other. @type {Promise<unknown>} */
  let turn = Promise.resolve();
  /** @type {T.InTurn} */
  function inTurn(job) {
    const done = turn.then(job);
    turn = done.catch(() => {});
    return done;
  }

  /** Brings inputs to their places; copies on the device are recorded. @type {(work: T.RunWork, encoder: GPUCommandEncoder) => Promise<void>} */
  async function take({ plan, sizes, tensors: given }, encoder) {
    plans[plan].resize(sizesOf(program.plans[plan], sizes));
    if (!given) return;
    for (const [at, place] of program.plans[plan].inputs.entries()) {
      const { data, shape } = given[at] ?? {};
      if (typeof data?.from === 'string') follow(encoder, place, data.from);
      else if (data?.from) copyIn(encoder, memory, place, shape, data.from);
      else if (data && 'pixels' in data) await (await taker())(place, shape, data);
      else device.queue.writeBuffer(memory, place.address, widen(place.dtype, padded(place, given[at])));
    }
  }

  /** Milliseconds of a run from its submission to its end, or of a step `times` over. @type {(plan: number, first?: number, last?: number, times?: number) => Promise<number>} */
  async function timed(...what) {
    const start = performance.now();
    const encoder = record(...what);
    const since = sound?.count();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone().catch(() => { throw gone(); });
    const milliseconds = performance.now() - start;
    // After the clock: reading the trap word back is no part of the work.
    if ((await read([], { since })).trapped) throw stopped(what[0]);
    return milliseconds;
  }

  /** Milliseconds of passes with as many dispatches each, by the device's clock. @type {T.StampedSteps} */
  async function stamped(plan, first, last, times, passes = 1) {
    const own = stamps.get(passes) ?? stampsOf(device, passes);
    stamps.set(passes, own);
    const encoder = record(plan, first, last, times, { timed: own });
    own.resolve(encoder);
    const { trapped, outputs: [{ data }] } = await read([{ name: '', dtype: 'i64', declared: 'i64', shape: [2 * passes], address: 0, bytes: 16 * passes }], { from: [own.into], encoder });
    if (trapped) throw stopped(plan);
    return Array.from({ length: passes }, (_, n) => Number(data[2 * n + 1] - data[2 * n]) * NANO);
  }

  /** Milliseconds of steps: so often at a time that the clock can tell. @type {(plan: number, first: number, last: number, times: number) => Promise<number>} */
  async function timeOf(plan, first, last, times) {
    const byDevice = device.features.has('timestamp-query');
    const enough = byDevice ? STAMPED : WAITED;
    for (let [often, growth] = [times, 1]; ; often = Math.min(MOST_TIMES, growth * often)) {
      const milliseconds = byDevice ? (await stamped(plan, first, last, often))[0] : await timed(plan, first, last, often);
      if (milliseconds >= enough || often >= MOST_TIMES) return milliseconds / often;
      growth = Math.max(2, Math.min(MOST_GROWTH, Math.ceil(1.5 * enough / milliseconds)));
    }
  }

  /** Pipelines of exchanged kernels, by their text. @type {Map<string, Promise<GPUComputePipeline>>} */
  const known = new Map();

  /** @type {(kernel: T.TunedKernel) => Promise<T.GpuTuned>} */
  async function tunedOf({ spec, module, tiles, group = 0, lanes = 1 }) {
    requireUsable();
    const code = /** @type {string} */ (module);
    const making = known.get(code) ?? pipelineOf(device, layout, code);
    known.delete(code);
    known.set(code, making);
    for (const [old] of known) if (known.size > MOST_KEPT) known.delete(old);
    try {
      return { pipeline: await making, tiles, group, lanes };
    } catch (error) {
      known.delete(code);
      if (loss.why) throw gone();
      throw new EngineError('input', `The kernel for specification ${spec} makes no pipeline on this device: ${error}`, 'Its compiler must be this one', { spec });
    }
  }

  return {
    program, setup: null, threads: 1,
    memoryBytes: total,
    variant: { name: build.variant, features: [...new Set(used.flatMap((slot) => lack.needs[slot] ?? []))].sort(), registers: 0, why: gpu ? `the page gave a device of ${adapter.name}` : `the page asked for WebGPU, and ${adapter.name} is there` },
    adapter,
    lost: () => [
      ...(adapter.software ? [`The WebGPU adapter ${adapter.name} is software: kernels run on the CPU.`] : []),
      ...refused,
      ...(lack.names.length ? [`The fastest kernels are not used: they need ${lack.names.join(', ')}, which the adapter ${adapter.name} lacks.`] : []),
    ],

    async run({ wanted = [], to = {}, ...work }) {
      const places = program.plans[work.plan].outputs;
      const away = wanted.filter(({ name }) => ownOf(to, name));
      const isBack = (/** @type {{name: string}} */ { name }) => !ownOf(to, name);
      const foreign = away.length > 0 || Boolean(work.tensors?.some(({ data }) => data.from?.buffer));
      // A run is recorded as a whole before the next one, which may follow before this one came back.
      const { start, reading } = await inTurn(async () => {
        const before = device.createCommandEncoder();
        const since = sound?.count();
        await take(work, before);
        away.forEach((output) => requireBuffer(output, to[output.name], 'COPY_DST'));
        const start = performance.now();
        const encoder = record(work.plan, undefined, undefined, 1, { whole: foreign, encoder: before });
        places.forEach((place, at) => ownOf(to, place.name) && copyOut(encoder, memory, place, wanted[at].shape, to[place.name]));
        return { start, reading: read(places.filter(isBack), { wanted: wanted.filter(isBack), carries: true, foreign, since, encoder }) };
      });
      const { trapped, outputs } = await reading;
      const milliseconds = performance.now() - start;
      if (trapped) throw stopped(work.plan);
      return { milliseconds, outputs: [...outputs, ...away.map((output) => ({ ...output, ...to[output.name] }))] };
    },

    async measure({ runs, warmup = 0, only, read: place, repeat, inOrder, ...work }) {
      requireCount('runs', runs, 1);
      requireCount('warmup', warmup, 0);
      if (repeat !== undefined) requireCount('repeat', repeat, 1);
      if (inOrder && only !== 'all') throw new EngineError('input', "'inOrder' times whole plans", "Leave out 'only'");
      if ((repeat || inOrder) && !device.features.has('timestamp-query')) {
        throw new EngineError('unsupported-host', `The adapter ${adapter.name} has no clock of its own`, `Leave out '${repeat ? 'repeat' : 'inOrder'}'`);
      }
      const encoder = device.createCommandEncoder();
      await take(work, encoder);
      device.queue.submit([encoder.finish()]);
      const { steps } = program.plans[work.plan];
      // Runs that nobody asked for must not move what the page's next run goes on with.
      const back = await keptStates(device, buffers, program.states);
      try {
        if (only) {
          // What a kernel does not write must not look like the result of an earlier one.
          if (place) device.queue.writeBuffer(memory, place[0], new Uint8Array(place[1]).fill(255));
          const found = [];
          const parts = only === 'all' ? plans[work.plan].parts() : only.map((step) => ({ first: step, last: step + 1 }));
          const rounds = [];
          for (let run = 0; inOrder && parts.length && run < runs; run++) rounds.push(await stamped(work.plan, 0, steps.length, 1, parts.length));
          for (const [at, { first, last }] of parts.entries()) {
            const own = steps.slice(first, last);
            const kernel = own.map((step) => step.kernel).join(' + ');
            const [flops, moved] = [own.reduce((sum, step) => sum + step.flops, 0), own.reduce((sum, step) => sum + step.bytes, 0)];
            found.push({ step: first, ...steps[first], kernel, flops, bytes: moved, milliseconds: inOrder ? median(rounds.map((round) => round[at]))
              : await (place ? timed(work.plan, first, last, runs) : timeOf(work.plan, first, last, runs)) });
          }
          const words = place && (await read([{ name: '', dtype: 'i32', declared: 'i32', shape: [place[1] / WORD], address: place[0], bytes: place[1] }])).outputs[0].data;
          return { steps: found, read: words && new Uint8Array(words.buffer) };
        }
        const milliseconds = [];
        const whole = () => (repeat ? stamped(work.plan, 0, steps.length, repeat).then(([total]) => total / repeat) : timed(work.plan));
        for (let run = 0; run < warmup + runs; run++) milliseconds.push(await whole());
        return { first: milliseconds[0], milliseconds: milliseconds.slice(warmup) };
      } finally {
        back();
      }
    },

    async state({ place, data }) {
      // Writing to a lost device would say nothing.
      requireUsable();
      if (!data) return (await read([place])).outputs[0].data;
      device.queue.writeBuffer(buffers[place.annex ?? 0], place.address, widen(place.dtype, data));
      return null;
    },

    async swap({ kernels }) {
      const made = await Promise.all(kernels.map(async (kernel) => /** @type {const} */ ([kernel.spec, await tunedOf(kernel)])));
      const tuned = new Map(made);
      plans.forEach((plan) => plan.use(tuned));
    },
  };
}

/** @param {number[]} times */
const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

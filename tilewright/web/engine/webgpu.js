// The WebGPU backend: a bundle in one storage buffer of 32-bit words, one dispatch per step.
// Input: an opened bundle.  Output: T.BackendLoaded, the interface that the engine's worker uses.
// In the device's memory, elements of less than 32 bits take one word each (docs/bundle.md).

import { count, placed, requireCounts, requireForm, sectionOf } from './bundle.js';
import { EngineError, requireCount } from './errors.js';
import { BANKS, deviceFor, layoutOf, narrow, pipelineOf, requireRoom, SECTION, TEXTS, widen, WORD, wordsOf } from './gpu_device.js';
import { callsOf, lacking, planOf, slotsOf } from './gpu_plan.js';
import { upload } from './gpu_upload.js';
import { elementsOf, readOutputs, regionOf, sizesOf, writeInputs } from './tensors.js';
import { json } from './weights.js';

export const TARGET = 'wgsl';

/** Milliseconds that a step runs to be timed: by the device's clock, which browsers round to 0.1, and by waiting; at most so often. */
const [STAMPED, WAITED, MOST_TIMES] = [2, 8, 512];
const NANO = 1e-6;
/** Dispatches in the first submission of a run, twice as many in each further one, and at most. */
const [FIRST_PIECE, MOST_PIECE] = [8, 128];
/** Most kernels of a bundle. */
const MOST_SLOTS = 65535;
/** Bytes of a buffer for results that is kept for the next ones. */
const MOST_IDLE = 2 ** 20;
/** Bytes of all outputs of a run that the next one may go on with. */
const MOST_CARRIED = 64;
/** Pipelines of exchanged kernels that are kept for the next exchange. */
const MOST_KEPT = 64;

/** @type {T.LoadBackend} */
export async function load({ manifest, files, meter, reached }, limits) {
  const section = sectionOf(manifest, TARGET, SECTION);
  const { builds: [build], slots, facts: { memory: { bytes, ...rest }, tensors, halves = [], banks: other = { bytes: [], of: [] } } } = section;
  const { bytes: sizes, of: bankOf } = /** @type {{bytes: number[], of: number[]}} */ (requireForm(other, BANKS, TARGET));
  requireForm(halves, [count], TARGET);
  const total = sizes.reduce((sum, size) => sum + size, bytes);
  requireCounts('memory', section.builds.length - 1, MOST_SLOTS - slots, bytes / WORD - 1);
  const program = { builds: [], slots, memory: { ...rest, bytes, scratch_bytes: 0 }, ...placed(manifest, section) };
  for (const place of [...program.states, ...program.plans.flatMap(({ inputs, outputs }) => [...inputs, ...outputs])]) requireRoom(place, bytes);
  const wanted = [build.code, ...build.plans, manifest.weights.tensors, ...manifest.weights.shards];
  meter.total += wanted.reduce((sum, ref) => sum + ref.bytes, 0);
  const { device, adapter } = await deviceFor(Math.max(bytes, ...sizes), limits);
  if (limits.memoryLimit && total > limits.memoryLimit) {
    throw new EngineError('memory-limit', `The model needs ${total} bytes of GPU memory, and the limit is ${limits.memoryLimit}`,
      'Build the bundle with smaller buckets or a smaller model', { estimate: total, limit: limits.memoryLimit });
  }
  /** @type {string} */
  let lost = '';
  device.lost.then(({ message }) => (lost = message || 'the browser gave no reason'));

  meter.enter('code');
  const layout = layoutOf(device, sizes.length);
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
    const calls = program.plans.map((plan, number) => callsOf(listed[number], build.plans[number]?.file, plan, lack, bytes, sizes));
    const used = slotsOf(calls);
    /** @type {string[]} */
    const failed = [];
    await Promise.all(used.map(async (slot) => {
      try {
        pipelines[slot] ??= await pipelineOf(device, layout, texts[slot]);
      } catch (error) {
        const needs = lack.needs[slot];
        if (!needs) throw error;
        failed.push(...needs);
        refused.push(`A kernel that needs ${needs.join(', ')} makes no pipeline on the adapter ${adapter.name}, another is used: ${error}`);
      }
    }));
    if (!failed.length) return { lack, calls, used };
    // Sizes and configurations are what drivers differ in.
    const named = failed.filter((name) => /-\d/.test(name));
    adapter.features = adapter.features.filter((name) => !(named.length ? named : failed).includes(name));
    return chosen();
  }
  const { lack, calls, used } = await chosen();
  reached('code');

  meter.enter('weights');
  device.pushErrorScope('out-of-memory');
  const memory = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  const banks = sizes.map((size) => device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST }));
  if (await device.popErrorScope()) {
    throw new EngineError('memory-limit', `The GPU has no room for the model's ${total} bytes`, 'Close other tabs, or build smaller buckets', { estimate: total });
  }
  await upload(device, [memory, ...banks], manifest, { addresses: tensors, bankOf, halves }, files);
  const plans = program.plans.map(({ steps }, number) => planOf(device, layout, memory, pipelines, calls[number], steps, banks));
  reached('weights');

  /** For the next results of the same size: those of a run are as long as those before. @type {GPUBuffer | null} */
  let idle = null;

  /** What a run gave, for the next one: their places in `carrier`. @type {T.Placed[]} */
  let carried = [];
  const carrier = device.createBuffer({ size: MOST_CARRIED, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });

  /** Reads these places back into fresh arrays; word 0 of the memory tells whether a kernel trapped. @type {T.ReadPlaces} */
  async function read(places, from = memory, carries = false) {
    const sizes = places.map(({ dtype, shape }) => wordsOf(dtype, elementsOf(shape)) * WORD);
    const total = WORD + sizes.reduce((sum, size) => sum + size, 0);
    const back = idle?.size === total ? idle : device.createBuffer({ size: total, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    if (back === idle) idle = null;
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(memory, 0, back, 0, WORD);
    let end = WORD;
    places.forEach(({ address }, at) => {
      if (sizes[at]) encoder.copyBufferToBuffer(from, address, back, end, sizes[at]);
      end += sizes[at];
    });
    if (carries) carried = total - WORD > MOST_CARRIED ? [] : places.map((place, at) => carry(encoder, place, sizes, at));
    device.queue.submit([encoder.finish()]);
    await back.mapAsync(GPUMapMode.READ).catch(() => { throw gone(); });
    const words = new Uint32Array(back.getMappedRange().slice(0));
    back.unmap();
    const [old, next] = total > MOST_IDLE ? [back, idle] : [idle, back];
    old?.destroy();
    idle = next;
    let first = 1;
    const arrays = places.map(({ dtype }, at) => narrow(dtype, words.subarray(first, (first += sizes[at] / WORD))));
    return { trapped: words[0] > 0, arrays };
  }

  /** An output of a run stays on the device, too. @type {T.Carry} */
  function carry(encoder, place, sizes, at) {
    const address = sizes.slice(0, at).reduce((sum, size) => sum + size, 0);
    if (sizes[at]) encoder.copyBufferToBuffer(memory, place.address, carrier, address, sizes[at]);
    return { ...place, address, bytes: sizes[at] };
  }

  /** An input := what an output of the run before was, which need not have come back. @type {(place: T.Placed, from: string) => void} */
  function follow(place, from) {
    const output = carried.find(({ name, dtype }) => name === from && dtype === place.dtype);
    if (output?.bytes !== wordsOf(place.dtype, elementsOf(place.shape)) * WORD) {
      throw new EngineError('input', `Input '${place.name}' cannot be what '${from}' was: the run before gave no such output`, 'Give an array', { input: place.name, from });
    }
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(carrier, output.address, memory, place.address, output.bytes);
    device.queue.submit([encoder.finish()]);
  }

  const gone = () => new EngineError('host', `The GPU device was lost: ${lost || 'it did not answer'}`, 'Load the bundle again', { lost: true });

  const stopped = (/** @type {number} */ plan) => new EngineError('kernel-trap', 'A kernel stopped: an index is out of range',
    'Check the inputs that are indices. The engine can be used again', { plan: program.plans[plan].dims });

  /** Made when a step is timed, if the adapter has timestamps. @type {{set: GPUQuerySet, into: GPUBuffer} | null} */
  let stamps = null;

  /** Runs steps, `times` over; `timestampWrites`: by which the device notes when. @type {T.Submit} */
  function submit(plan, first = 0, last = program.plans[plan].steps.length, times = 1, timestampWrites = undefined) {
    if (lost) throw gone();
    device.queue.writeBuffer(memory, 0, new Uint32Array(1));
    const own = plans[plan].dispatches(first, last);
    const count = own.length * times;
    // The device begins while the rest is recorded.  What is timed by its clock is one piece.
    for (let done = 0, size = timestampWrites ? count : FIRST_PIECE; done < count; size = Math.min(2 * size, MOST_PIECE)) {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass(timestampWrites && { timestampWrites });
      let set;
      for (const end = Math.min(done + size, count); done < end; done++) {
        const { pipeline, bindings, groups } = own[done % own.length];
        if (pipeline !== set) pass.setPipeline(set = pipeline);
        pass.setBindGroup(0, bindings);
        pass.dispatchWorkgroups(groups[0], groups[1]);
      }
      pass.end();
      if (timestampWrites && stamps) encoder.resolveQuerySet(stamps.set, 0, 2, stamps.into, 0);
      device.queue.submit([encoder.finish()]);
    }
  }

  /** What takes frames; made for the first of them. @type {Promise<T.TakeFrame> | undefined} */
  let framing;

  /** Runs are recorded one after the other. @type {Promise<unknown>} */
  let turn = Promise.resolve();
  /** @type {T.InTurn} */
  function inTurn(job) {
    const done = turn.then(job);
    turn = done.catch(() => {});
    return done;
  }

  /** @type {(work: T.RunWork) => Promise<void>} */
  async function take({ plan, sizes, tensors: given }) {
    plans[plan].resize(sizesOf(program.plans[plan], sizes));
    if (!given) return;
    const all = program.plans[plan].inputs;
    const isFrame = (/** @type {unknown} */ _, /** @type {number} */ at) => 'pixels' in (given[at]?.data ?? {});
    if (given.some(isFrame)) {
      const takeFrame = await (framing ??= import('./gpu_frames.js').then(({ frameTaker }) => frameTaker(device, memory)));
      for (const [at, place] of all.entries()) if (isFrame(place, at)) await takeFrame(place, given[at].shape, given[at].data);
    }
    for (const [at, place] of all.entries()) if (given[at]?.data.from) follow(place, given[at].data.from);
    const isArray = (/** @type {unknown} */ _, /** @type {number} */ at) => !isFrame(_, at) && !given[at]?.data.from;
    const inputs = all.filter(isArray);
    const { buffer, places } = staged(inputs);
    writeInputs(buffer, places, given.filter(isArray));
    inputs.forEach(({ dtype, address }, at) => device.queue.writeBuffer(memory, address, widen(dtype, regionOf(buffer, places[at]))));
  }

  /** Milliseconds of a run from its submission to its end, or of a step `times` over. @type {(plan: number, first?: number, last?: number, times?: number) => Promise<number>} */
  async function timed(...what) {
    const start = performance.now();
    submit(...what);
    await device.queue.onSubmittedWorkDone().catch(() => { throw gone(); });
    const milliseconds = performance.now() - start;
    // After the clock: reading the trap word back is no part of the work.
    if ((await read([])).trapped) throw stopped(what[0]);
    return milliseconds;
  }

  /** The same by the device's clock. @type {(plan: number, first: number, last: number, times: number) => Promise<number>} */
  async function stamped(plan, first, last, times) {
    stamps ??= {
      set: device.createQuerySet({ type: 'timestamp', count: 2 }),
      into: device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC }),
    };
    submit(plan, first, last, times, { querySet: stamps.set, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 });
    const { trapped, arrays: [[from, to]] } = await read([{ name: '', dtype: 'i64', shape: [2], address: 0, bytes: 16 }], stamps.into);
    if (trapped) throw stopped(plan);
    return Number(to - from) * NANO;
  }

  /** Milliseconds of steps: so often at a time that the clock can tell. @type {(plan: number, first: number, last: number, times: number) => Promise<number>} */
  async function timeOf(plan, first, last, times) {
    const byDevice = device.features.has('timestamp-query');
    const enough = byDevice ? STAMPED : WAITED;
    for (let often = times; ; often = Math.min(MOST_TIMES, 4 * often)) {
      const milliseconds = byDevice ? await stamped(plan, first, last, often) : await timed(plan, first, last, often);
      if (milliseconds >= enough || often >= MOST_TIMES) return milliseconds / often;
    }
  }

  /** Copies all states on the device; returns what puts them back. */
  function kept() {
    const { states: places } = program;
    if (!places.length) return () => {};
    const sizes = places.map(({ dtype, shape }) => wordsOf(dtype, elementsOf(shape)) * WORD);
    const copy = device.createBuffer({ size: sizes.reduce((sum, size) => sum + size, 0), usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
    const move = (/** @type {boolean} */ back) => {
      const encoder = device.createCommandEncoder();
      let at = 0;
      places.forEach(({ address }, number) => {
        if (back) encoder.copyBufferToBuffer(copy, at, memory, address, sizes[number]);
        else encoder.copyBufferToBuffer(memory, address, copy, at, sizes[number]);
        at += sizes[number];
      });
      device.queue.submit([encoder.finish()]);
    };
    move(false);
    return () => {
      move(true);
      copy.destroy();
    };
  }

  /** Pipelines of exchanged kernels, by their text. @type {Map<string, Promise<GPUComputePipeline>>} */
  const known = new Map();

  /** @type {(kernel: T.TunedKernel) => Promise<T.GpuTuned>} */
  async function tunedOf({ spec, module, tiles, group = 0, lanes = 1 }) {
    if (lost) throw gone();
    const code = /** @type {string} */ (module);
    const making = known.get(code) ?? pipelineOf(device, layout, code);
    known.delete(code);
    known.set(code, making);
    for (const [old] of known) if (known.size > MOST_KEPT) known.delete(old);
    try {
      return { pipeline: await making, tiles, group, lanes };
    } catch (error) {
      known.delete(code);
      if (lost) throw gone();
      throw new EngineError('input', `The kernel for specification ${spec} makes no pipeline on this device: ${error}`, 'Its compiler must be this one', { spec });
    }
  }

  return {
    program, setup: null, threads: 1,
    memoryBytes: total,
    variant: { name: build.variant, features: [...new Set(used.flatMap((slot) => lack.needs[slot] ?? []))].sort(), registers: 0, why: `the page asked for WebGPU, and ${adapter.name} is there` },
    adapter,
    lost: () => [
      ...(adapter.software ? [`The WebGPU adapter ${adapter.name} is software: kernels run on the CPU.`] : []),
      ...refused,
      ...(lack.names.length ? [`The fastest kernels are not used: they need ${lack.names.join(', ')}, which the adapter ${adapter.name} lacks.`] : []),
    ],

    async run({ wanted: outputs = [], ...work }) {
      const places = program.plans[work.plan].outputs;
      // A run is recorded as a whole before the next one, which may follow before this one came back.
      const { start, reading } = await inTurn(async () => {
        await take(work);
        const start = performance.now();
        submit(work.plan);
        return { start, reading: read(places, memory, true) };
      });
      const { trapped, arrays } = await reading;
      const milliseconds = performance.now() - start;
      if (trapped) throw stopped(work.plan);
      const { buffer, places: local } = staged(places);
      local.forEach((place, at) => regionOf(buffer, place).set(arrays[at]));
      return { milliseconds, outputs: readOutputs(buffer, local, outputs) };
    },

    async measure({ runs, warmup = 0, only, read: place, repeat, ...work }) {
      requireCount('runs', runs, 1);
      requireCount('warmup', warmup, 0);
      if (repeat !== undefined) requireCount('repeat', repeat, 1);
      if (repeat && !device.features.has('timestamp-query')) {
        throw new EngineError('unsupported-host', `The adapter ${adapter.name} has no clock of its own`, "Leave out 'repeat'");
      }
      await take(work);
      const { steps } = program.plans[work.plan];
      // Runs that nobody asked for must not move what the page's next run goes on with.
      const back = kept();
      try {
        if (only) {
          // What a kernel does not write must not look like the result of an earlier one.
          if (place) device.queue.writeBuffer(memory, place[0], new Uint8Array(place[1]).fill(255));
          const found = [];
          const parts = only === 'all' ? plans[work.plan].parts() : only.map((step) => ({ first: step, last: step + 1 }));
          for (const { first, last } of parts) {
            const kernel = steps.slice(first, last).map((step) => step.kernel).join(' + ');
            found.push({ step: first, ...steps[first], kernel, milliseconds: await (place ? timed(work.plan, first, last, runs) : timeOf(work.plan, first, last, runs)) });
          }
          const words = place && (await read([{ name: '', dtype: 'i32', shape: [place[1] / WORD], address: place[0], bytes: place[1] }])).arrays[0];
          return { steps: found, read: words && new Uint8Array(words.buffer) };
        }
        const milliseconds = [];
        const whole = () => (repeat ? stamped(work.plan, 0, steps.length, repeat).then((total) => total / repeat) : timed(work.plan));
        for (let run = 0; run < warmup + runs; run++) milliseconds.push(await whole());
        return { first: milliseconds[0], milliseconds: milliseconds.slice(warmup) };
      } finally {
        back();
      }
    },

    async state({ place, data }) {
      if (!data) return (await read([place])).arrays[0];
      device.queue.writeBuffer(memory, place.address, widen(place.dtype, data));
      return null;
    },

    async swap({ kernels }) {
      const made = await Promise.all(kernels.map(async (kernel) => /** @type {const} */ ([kernel.spec, await tunedOf(kernel)])));
      const tuned = new Map(made);
      plans.forEach((plan) => plan.use(tuned));
    },
  };
}

/** A staging buffer in the worker, with one place after the other, aligned to 8 bytes. @type {T.Staged} */
function staged(places) {
  let end = 0;
  const own = places.map((place) => {
    const address = end;
    end += Math.ceil(place.bytes / 8) * 8;
    return { ...place, address };
  });
  return { buffer: new ArrayBuffer(end), places: own };
}


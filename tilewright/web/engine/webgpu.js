// The WebGPU backend: a bundle in one storage buffer of 32-bit words, one dispatch per step.
// Input: an opened bundle.  Output: T.BackendLoaded, the interface that the engine's worker uses.
// In the device's memory, elements of less than 32 bits take one word each (docs/bundle.md).

import { count, placed, sectionOf } from './bundle.js';
import { EngineError, requireCount } from './errors.js';
import { arrayOf, elementsOf, readOutputs, regionOf, sizesOf, writeInputs } from './tensors.js';
import { json, widener } from './weights.js';

export const TARGET = 'wgsl';

const SECTION = {
  builds: [{ features: [Object], code: {}, plans: [{}] }],
  plans: [{ inputs: [count], outputs: [count] }],
  facts: { memory: { bytes: count }, tensors: [count], states: [count] },
};
const WORD = 4;
/** WebGPU's default limit maxComputeWorkgroupsPerDimension. */
const MOST_GROUPS = 65535;
/** Bytes; WebGPU's default limit minUniformBufferOffsetAlignment. */
const ALIGNMENT = 256;

/** @type {T.LoadBackend} */
export async function load({ manifest, files, meter, reached }, limits) {
  const section = sectionOf(manifest, TARGET, SECTION);
  const { builds: [build], slots, facts: { memory: map, tensors } } = section;
  const { bytes } = map;
  const program = { builds: [], slots, memory: map, ...placed(manifest, section) };
  const wanted = [build.code, ...build.plans, manifest.weights.tensors, ...manifest.weights.shards];
  meter.total += wanted.reduce((sum, ref) => sum + ref.bytes, 0);
  const { device, adapter } = await deviceFor(bytes, limits.memoryLimit);
  /** @type {string} */
  let lost = '';
  device.lost.then(({ message }) => (lost = message || 'the browser gave no reason'));

  meter.enter('code');
  const layout = device.createBindGroupLayout({
    entries: [
      { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'storage' } },
      { binding: 1, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'uniform', hasDynamicOffset: true } },
    ],
  });
  const texts = /** @type {string[]} */ (await json(files, build.code));
  const pipelines = await Promise.all(texts.map((code) => pipelineOf(device, layout, code)));
  reached('code');

  meter.enter('weights');
  const memory = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  await upload(device, memory, manifest, tensors, files);
  const plans = await Promise.all(build.plans.map(async (/** @type {T.FileRef} */ ref) => planOf(device, layout, memory, pipelines, await json(files, ref))));
  reached('weights');

  /** Reads these places back into fresh arrays; word 0 of the memory tells whether a kernel trapped. @type {T.ReadPlaces} */
  async function read(places) {
    const sizes = places.map(({ dtype, shape }) => wordsOf(dtype, elementsOf(shape)) * WORD);
    const total = WORD + sizes.reduce((sum, size) => sum + size, 0);
    const back = device.createBuffer({ size: total, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(memory, 0, back, 0, WORD);
    let end = WORD;
    places.forEach(({ address }, at) => {
      if (sizes[at]) encoder.copyBufferToBuffer(memory, address, back, end, sizes[at]);
      end += sizes[at];
    });
    device.queue.submit([encoder.finish()]);
    await back.mapAsync(GPUMapMode.READ).catch(() => { throw gone(); });
    const words = new Uint32Array(back.getMappedRange().slice(0));
    back.destroy();
    let first = 1;
    const arrays = places.map(({ dtype }, at) => narrow(dtype, words.subarray(first, (first += sizes[at] / WORD))));
    return { trapped: words[0] > 0, arrays };
  }

  const gone = () => new EngineError('host', `The GPU device was lost: ${lost || 'it did not answer'}`, 'Load the bundle again');

  const stopped = (/** @type {number} */ plan) => new EngineError('kernel-trap', 'A kernel stopped: an index is out of range',
    'Check the inputs that are indices. The engine can be used again', { plan: program.plans[plan].dims });

  /** @type {(plan: number, first?: number, last?: number) => void} */
  function submit(plan, first = 0, last = plans[plan].dispatches.length) {
    if (lost) throw gone();
    device.queue.writeBuffer(memory, 0, new Uint32Array(1));
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, bindings, offset, groups } of plans[plan].dispatches.slice(first, last)) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindings, [offset]);
      pass.dispatchWorkgroups(groups[0], groups[1]);
    }
    pass.end();
    device.queue.submit([encoder.finish()]);
  }

  /** @type {(work: T.RunWork) => void} */
  function take({ plan, sizes, tensors: given }) {
    plans[plan].resize(sizesOf(program.plans[plan], sizes));
    if (!given) return;
    const { inputs } = program.plans[plan];
    const { buffer, places } = staged(inputs);
    writeInputs(buffer, places, given);
    inputs.forEach(({ dtype, address }, at) => device.queue.writeBuffer(memory, address, widen(dtype, regionOf(buffer, places[at]))));
  }

  return {
    program, setup: null, threads: 1,
    memoryBytes: bytes,
    variant: { name: build.variant, features: build.features, registers: 0, why: `the page asked for WebGPU, and ${adapter.name} is there` },
    adapter,
    lost: () => (adapter.software ? [`The WebGPU adapter ${adapter.name} is software: kernels run on the CPU.`] : []),

    async run({ wanted: outputs = [], ...work }) {
      take(work);
      const start = performance.now();
      submit(work.plan);
      const places = program.plans[work.plan].outputs;
      const { trapped, arrays } = await read(places);
      const milliseconds = performance.now() - start;
      if (trapped) throw stopped(work.plan);
      const { buffer, places: local } = staged(places);
      local.forEach((place, at) => regionOf(buffer, place).set(arrays[at]));
      return { milliseconds, outputs: readOutputs(buffer, local, outputs) };
    },

    async measure({ runs, warmup = 0, only, ...work }) {
      requireCount('runs', runs, 1);
      requireCount('warmup', warmup, 0);
      take(work);
      const timed = async (first = 0, last = plans[work.plan].dispatches.length) => {
        const start = performance.now();
        submit(work.plan, first, last);
        await device.queue.onSubmittedWorkDone();
        const milliseconds = performance.now() - start;
        // After the clock: reading the trap word back is no part of the work.
        if ((await read([])).trapped) throw stopped(work.plan);
        return milliseconds;
      };
      const first = await timed();
      for (let run = 0; run < warmup; run++) await timed();
      if (!only) {
        const milliseconds = [];
        for (let run = 0; run < runs; run++) milliseconds.push(await timed());
        return { first, milliseconds };
      }
      const { steps } = program.plans[work.plan];
      const found = [];
      for (const step of only === 'all' ? steps.keys() : only) {
        const times = [];
        for (let run = 0; run < runs; run++) times.push(await timed(step, step + 1));
        found.push({ step, ...steps[step], milliseconds: times.sort((a, b) => a - b)[times.length >> 1] });
      }
      return { steps: found };
    },

    async state({ place, data }) {
      if (!data) return (await read([place])).arrays[0];
      device.queue.writeBuffer(memory, place.address, widen(place.dtype, data));
      return null;
    },

    async swap() {
      throw new EngineError('input', 'WebGPU kernels cannot be swapped yet', "Tune with device 'wasm'");
    },
  };
}

/** A device with room for the model; rejects with `unsupported-host` or `memory-limit`. @type {T.DeviceFor} */
async function deviceFor(bytes, limit) {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter();
  if (!adapter) {
    throw new EngineError('unsupported-host', 'This browser gives no WebGPU adapter', "Load the bundle with device 'wasm', or use a browser with WebGPU");
  }
  const most = Math.min(adapter.limits.maxStorageBufferBindingSize, adapter.limits.maxBufferSize, limit ?? Infinity);
  if (bytes > most) {
    throw new EngineError('memory-limit', `The model needs one GPU buffer of ${bytes} bytes, and the limit is ${most}`,
      'Build the bundle with smaller buckets or a smaller model', { estimate: bytes, limit: most });
  }
  const device = await adapter.requestDevice({ requiredLimits: { maxStorageBufferBindingSize: Math.max(bytes, 2 ** 27), maxBufferSize: Math.max(bytes, 2 ** 28) } });
  const { vendor, architecture, description, isFallbackAdapter: software = false } = adapter.info;
  return { device, adapter: { name: [vendor, architecture].filter(Boolean).join(' ') || 'an adapter', description, software } };
}

/** @type {T.PipelineOf} */
async function pipelineOf(device, layout, code) {
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const wrong = messages.find(({ type }) => type === 'error');
  if (wrong) throw new EngineError('bundle-corrupt', `A kernel is not valid WGSL: ${wrong.message} (line ${wrong.lineNum})`, 'Build the bundle again');
  return device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: 'main' },
  });
}

/** Every dispatch of a plan with its bindings, made once. @type {T.DispatchesOf} */
function planOf(device, layout, memory, pipelines, calls) {
  const stride = Math.max(...calls.map(({ words, scalars }) => aligned((1 + words.length + scalars.length) * WORD)), ALIGNMENT);
  const blocks = new Uint32Array((stride / WORD) * Math.max(calls.length, 1));
  const uniform = device.createBuffer({ size: blocks.byteLength, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  const bindings = device.createBindGroup({
    layout,
    entries: [{ binding: 0, resource: { buffer: memory } }, { binding: 1, resource: { buffer: uniform, size: stride } }],
  });
  /** @type {T.Dispatch[]} */
  const dispatches = calls.map(({ slot }, at) => ({ pipeline: pipelines[slot], bindings, offset: at * stride, groups: [0, 0] }));
  let last = '';
  return {
    dispatches,
    resize(sizes) {
      if (last === (last = `of ${sizes}`)) return;
      calls.forEach(({ tiles, group, words, scalars }, at) => {
        const [count, ...numbers] = [tiles, ...scalars].map((number) => numberAt(number, sizes));
        blocks.set([count, ...words, ...numbers], (at * stride) / WORD);
        const wanted = Math.ceil(count / group);
        const rows = Math.ceil(wanted / MOST_GROUPS);
        dispatches[at].groups = [Math.ceil(wanted / rows), rows];
      });
      device.queue.writeBuffer(uniform, 0, blocks);
    },
  };
}

/** A number that is fixed, or follows an extent: min((n * times + plus) // by, most) * each. @type {T.NumberAt} */
function numberAt(number, sizes) {
  if (typeof number === 'number') return number;
  const [extent, times, plus, by, most, each] = number;
  return Math.min(Math.floor((sizes[extent] * times + plus) / by), most) * each;
}

/** @param {number} bytes */
const aligned = (bytes) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/** Uploads all weights to their addresses. @type {T.Upload} */
async function upload(device, memory, manifest, addresses, files) {
  const listed = /** @type {T.StoredTensor[]} */ (await json(files, manifest.weights.tensors));
  const widening = await widener(manifest, files);
  const whole = new Uint8Array(widening.memory);
  let end = 0, offset = 0;
  for (const ref of manifest.weights.shards) {
    await files.into(ref, whole.subarray(widening.start + end, widening.start + (end += ref.bytes)));
    widening.arrived(whole, end);
  }
  listed.forEach(({ dtype, shape }, at) => {
    const array = new (arrayOf(dtype))(whole.buffer, offset, elementsOf(shape));
    offset += Math.ceil(array.byteLength / 64) * 64;
    if (array.length) device.queue.writeBuffer(memory, addresses[at], widen(dtype, array));
  });
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

/** @type {T.WordsOf} */
const wordsOf = (dtype, elements) => elements * (dtype === 'i64' ? 2 : 1);

/** Elements as the device's 32-bit words; i64 takes two. @type {T.Widen} */
function widen(dtype, array) {
  if (dtype === 'f32' || dtype === 'i32' || dtype === 'i64') return array;
  return dtype === 'u8' || dtype === 'bool' ? Uint32Array.from(array) : Int32Array.from(array);
}

/** The device's words as elements; copied, as `words` may be misaligned for i64. @type {T.Narrow} */
function narrow(dtype, words) {
  if (dtype === 'f32' || dtype === 'i32' || dtype === 'i64') return new (arrayOf(dtype))(words.slice().buffer);
  return arrayOf(dtype).from(dtype === 'u8' || dtype === 'bool' ? words : new Int32Array(words.slice().buffer));
}

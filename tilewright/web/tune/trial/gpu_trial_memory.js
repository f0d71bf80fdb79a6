// A trial's own device and memory on WebGPU, apart from the model's: runs kernels there and reports their results.
// Input: facts of a specification, kernels.  Output: results; what was overwritten.
//
// Layout, in words: the trap word, then the kernel's buffers, with canaries before and after each region.  For each input set an image on
// the device has the memory's contents before a run: it is copied before each check, and compared afterwards, without the output.

import { deviceFor, layoutOf, lossOf, pipelineOf, requireMade, scoped, soundness, stored, widen, WORD, wordsOf } from '../../engine/gpu_device.js';
import { groupsOf } from '../../engine/gpu_plan.js';
import { factsOf, objectionTo } from '../../engine/gpu_vet.js';
import { checksOf, Lost, Refused, Trapped } from './checks.js';
import { arrayOf, isFloat, shake } from './trial_inputs.js';
import { beat, beating as steadily, yieldNow } from './yielding.js';

/** Words before everything else, and between two regions; every buffer begins at a multiple of it. */
const CANARY = 64;
const MARK = 0xa5a5a5a5;
/** Fill words that reveal unwritten elements: floats are NaN, integers an unusual number. */
const UNWRITTEN = { float: 0xffffffff, integer: 0xa6a6a6a6 };
/** Maximum bytes of images on the device. */
const MOST_IMAGES = 2 ** 28;
/** The most candidates whose pipelines are made ahead. */
const MOST_COMING = 4;
/** Milliseconds that a driver may take to compile a kernel; a candidate that is silent for longer may hang. */
const COMPILING = 12_000;
/** Bytes of a kernel's block of numbers. */
const BLOCK = 1024;
const NANO = 1e-6;
/** Finds the first word that differs outside of a range; range: words, begin and end of the excluded part, invocations. */
const COMPARE = `
@group(0) @binding(0) var<storage, read> found: array<u32>;
@group(0) @binding(1) var<storage, read> wanted: array<u32>;
@group(0) @binding(2) var<storage, read_write> first: atomic<u32>;
@group(0) @binding(3) var<uniform> range: vec4<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  for (var at = id.x; at < range.x; at += range.w) {
    if ((at < range.y || at >= range.z) && found[at] != wanted[at]) { atomicMin(&first, at); }
  }
}`;
const [INVOCATIONS, NONE] = [1 << 16, 0xffffffff];

/** @type {GPUDevice} */
let device;
/** Why the device is lost, or ''. */
let loss = { why: '' };
const gone = () => new Lost(`the GPU device was lost: ${loss.why || 'it did not answer'}`);
/** The device's errors outside of scopes, such as no memory for an image; after such an error checks compare nothing. @type {ReturnType<T.Soundness>} */
let sound;
/** Features that kernels may use on it. @type {string[]} */
let features = [];
/** @type {GPUBindGroupLayout} */
let layout;
/** The bundle's own kernels. @type {string[]} */
let texts = [];
/** The memory, its bindings, and the words that are in use. @type {{buffer: GPUBuffer, bindings: GPUBindGroup} | null} */
let memory = null;
let words = 0;
/** @type {GPUBuffer} */
let block;
/** @type {GPUComputePipeline} */
let comparing;
/** Two timestamps, if the adapter has them. @type {{set: GPUQuerySet, into: GPUBuffer} | null} */
let stamps = null;
/** Images by input set, the latest last. @type {Map<Tune.TrialSet, GPUBuffer>} */
const images = new Map();
/** The kernel whose buffers are laid out now. @type {Tune.LoadedKernel | null} */
export let loaded = null;

/** Waits for a compilation, which may take long, with heartbeats. @type {<Value>(work: Promise<Value>) => Promise<Value>} */
async function patiently(work) {
  const end = steadily();
  return work.finally(end);
}

/** Sends no heartbeats while the GPU works: if the GPU does not answer, the page ends this worker. */
export const beating = () => () => {};

/** @type {Tune.OpenBench} */
export async function open({ code, bytes, powerPreference }) {
  texts = JSON.parse(new TextDecoder().decode(code));
  ({ device, adapter: { features } } = await patiently(deviceFor(bytes, { powerPreference })));
  loss = lossOf(device);
  sound = soundness(device);
  layout = layoutOf(device);
  block = device.createBuffer({ size: BLOCK, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  comparing = await patiently(device.createComputePipelineAsync({ layout: 'auto', compute: { module: device.createShaderModule({ code: COMPARE }) } }));
  if (device.features.has('timestamp-query')) {
    stamps = {
      set: device.createQuerySet({ type: 'timestamp', count: 2 }),
      into: device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC }),
    };
  }
}

/** True if the device's timestamps measure the kernels' times. */
export const hasStamps = () => Boolean(stamps);

/** Sets the kernel whose buffers the memory holds. @param {Tune.LoadedKernel | null} next */
export const use = (next) => (loaded = next);

/** @type {Tune.Compiled} */
export const compiled = async (bytes) => new TextDecoder().decode(bytes);

/** The bundle's own kernel. @type {Tune.OwnRunner} */
export const own = async ({ slot, tiles, group = 1 }) => runnerOf({ tiles, group, pipeline: await patiently(pipelineOf(device, layout, texts[slot])) });

/** @param {Tune.GpuRunner} runner @returns {Tune.Runner} */
const runnerOf = (runner) => runner;

/** A candidate; rejects with Refused if its text contains anything but a kernel, or cannot become a pipeline. @type {Tune.RunnerFor} */
async function made(module, tiles) {
  const text = String(module);
  const objection = objectionTo(new TextEncoder().encode(text), tiles, features);
  if (objection) throw new Refused(`its text is not one of Tilewright's: ${objection}`);
  const pipeline = await pipelineOf(device, layout, text).catch((error) => {
    throw loss.why ? gone() : new Refused(String(error));
  });
  return runnerOf({ tiles, group: factsOf(text).group, pipeline });
}

/** Pipelines of the next candidates, made ahead; by text and tiles. @type {Map<string, Promise<Tune.Runner>>} */
const coming = new Map();

const keyOf = (/** @type {unknown} */ module, /** @type {number} */ tiles) => `${tiles} ${module}`;

/** Starts making a candidate's pipeline while another candidate is tried. @type {Tune.Ahead} */
export async function ahead({ module, tiles }) {
  const text = await compiled(module);
  if (!device || coming.has(keyOf(text, tiles))) return;
  const runner = made(text, tiles);
  runner.catch(() => {});
  coming.set(keyOf(text, tiles), runner);
  for (const [old] of coming) if (coming.size > MOST_COMING) coming.delete(old);
}

/** @type {Tune.RunnerFor} */
export function runnerFor(module, tiles) {
  const runner = coming.get(keyOf(module, tiles)) ?? made(module, tiles);
  coming.delete(keyOf(module, tiles));
  return patiently(runner);
}

/** How many words a buffer takes. @param {Tune.Buffer} buffer */
const lengthOf = ({ dtype, size, halves, packed }) => (halves ? Math.ceil(size / 2) : packed ? Math.ceil(size / WORD) : wordsOf(/** @type {T.DType} */ (dtype), size));

/** Makes a buffer on the device; `made` rejects if there is no room for it. @param {string} what @param {number} size @param {number} usage */
function bufferFor(what, size, usage) {
  const { value, problem } = scoped(device, () => device.createBuffer({ size, usage }));
  return { buffer: value, made: requireMade(problem, what, size, 'This kernel stays as it is') };
}

/** Lays out a specification's buffers, and returns their first words; rejects if the device has no room for them. @type {Tune.Lay} */
export async function lay(facts) {
  let at = CANARY;
  const addresses = facts.buffers.map((buffer) => {
    const address = at + CANARY;
    at = Math.ceil((address + lengthOf(buffer)) / CANARY) * CANARY;
    return address;
  });
  words = at + CANARY;
  if (!memory || memory.buffer.size < WORD * words) {
    memory?.buffer.destroy();
    memory = null;
    const { buffer, made } = bufferFor('a kernel that is tried', WORD * words, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST);
    await made;
    memory = { buffer, bindings: device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer } }, { binding: 1, resource: { buffer: block } }] }) };
  }
  return { addresses, words: [...addresses, ...facts.scalars], block: new Uint32Array(), canaries: [] };
}

const current = () => /** @type {Tune.LoadedKernel} */ (loaded);
const place = () => /** @type {NonNullable<typeof memory>} */ (memory);

/** The words of a buffer: where they begin, and how many. @param {number} number */
function regionOf(number) {
  const { addresses, facts: { buffers } } = current();
  return { from: addresses[number], length: lengthOf(buffers[number]) };
}

/** The memory's contents before a kernel runs on this set. @param {Tune.TrialSet} set */
function imageOf(set) {
  const size = WORD * words;
  const made = images.get(set) ?? device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC, mappedAtCreation: true });
  if (!images.has(set)) {
    const whole = new Uint32Array(made.getMappedRange()).fill(MARK);
    whole.fill(0, 0, CANARY);
    current().facts.buffers.forEach((buffer, number) => {
      const { from, length } = regionOf(number);
      const given = set.inputs[number];
      if (!given) whole.fill(isFloat(buffer.dtype) ? UNWRITTEN.float : UNWRITTEN.integer, from, from + length);
      else whole.set(wordsFrom(buffer, given), from);
    });
    made.unmap();
  }
  images.delete(set);
  images.set(set, made);
  let sum = [...images.values()].reduce((all, { size: of }) => all + of, 0);
  for (const [old, image] of images) {
    if (sum <= MOST_IMAGES || old === set) break;
    sum -= image.size;
    image.destroy();
    images.delete(old);
  }
  return made;
}

/** Bytes of elements as the device's words. @param {Tune.Buffer} buffer @param {Uint8Array} bytes */
function wordsFrom({ dtype, halves, packed }, bytes) {
  if (packed) {
    const whole = new Uint8Array(WORD * Math.ceil(bytes.length / WORD));
    whole.set(bytes);
    return new Uint32Array(whole.buffer);
  }
  const elements = new (arrayOf(dtype))(bytes.buffer, bytes.byteOffset, bytes.length / arrayOf(dtype).BYTES_PER_ELEMENT);
  if (halves) return halvesOf(/** @type {Float32Array} */ (elements));
  const { buffer, byteOffset, byteLength } = widen(/** @type {T.DType} */ (dtype), elements);
  return new Uint32Array(buffer, byteOffset, byteLength / WORD);
}

/** Writes the inputs of a set, and fills output and canaries. @param {string} name */
export async function begin(name) {
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(imageOf(current().sets[name]), 0, place().buffer, 0, WORD * words);
  device.queue.submit([encoder.finish()]);
}

/** Bytes of a buffer of the device, after all submitted work. @param {GPUBuffer} from @param {number} at @param {number} size */
async function bytesOf(from, at, size) {
  const { buffer: back, made } = bufferFor('results of a kernel that is tried', size, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(from, at, back, 0, size);
  device.queue.submit([encoder.finish()]);
  try {
    await Promise.all([made, back.mapAsync(GPUMapMode.READ).catch(async () => {
      await made;
      throw gone();
    })]);
    sound.require();
    beat();
    return back.getMappedRange().slice(0);
  } finally {
    back.destroy();
  }
}

async function output() {
  const { from, length } = regionOf(0);
  const found = await bytesOf(place().buffer, WORD * from, WORD * length);
  const dtype = /** @type {T.DType} */ (current().facts.buffers[0].dtype);
  const elements = new (arrayOf(stored(dtype)))(found);
  return stored(dtype) === dtype ? elements : arrayOf(dtype).from(elements);
}

/**
 * Submits a kernel, `times` over.
 * @param {Tune.GpuRunner} runner @param {number} times @param {boolean} stamped @param {[number, number]} groups
 */
function submit({ tiles, group, pipeline }, times, stamped, [columns, rows] = groupsOf(tiles, group)) {
  device.queue.writeBuffer(block, 0, Uint32Array.from([tiles, ...current().words]));
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass(stamped && stamps ? { timestampWrites: { querySet: stamps.set, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {});
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, place().bindings);
  for (let time = 0; time < times; time++) pass.dispatchWorkgroups(columns, rows);
  pass.end();
  if (stamped && stamps) encoder.resolveQuerySet(stamps.set, 0, 2, stamps.into, 0);
  device.queue.submit([encoder.finish()]);
}

/** Kernels of which a workgroup has run. @type {WeakSet<Tune.Runner>} */
const touched = new WeakSet();

/** Runs one workgroup of a kernel that has not run yet: some drivers compile it only then, which must not look like a hang. @param {Tune.Runner} runner */
export async function touch(runner) {
  if (touched.has(runner)) return;
  touched.add(runner);
  submit(/** @type {Tune.GpuRunner} */ (runner), 1, false, [1, 1]);
  const end = steadily();
  const late = setTimeout(end, COMPILING);
  try {
    await bytesOf(place().buffer, 0, WORD);
  } finally {
    clearTimeout(late);
    end();
  }
}

/** Runs all of a kernel once; the order of its workgroups is undefined. @type {Tune.RunAll} */
export async function runAll(runner) {
  await touch(runner);
  submit(/** @type {Tune.GpuRunner} */ (runner), 1, false);
  const [trapped] = new Uint32Array(await bytesOf(place().buffer, 0, WORD));
  if (trapped) throw new Trapped('an index is out of range');
  await yieldNow();
}

/** Milliseconds of `times` runs of a kernel; NaN if the clock did not advance. @param {Tune.GpuRunner} runner @param {number} times */
export async function timed(runner, times) {
  const start = performance.now();
  submit(runner, times, true);
  if (stamps) {
    const [from, to] = new BigInt64Array(await bytesOf(stamps.into, 0, 16));
    return to > from ? Number(to - from) * NANO : NaN;
  }
  await device.queue.onSubmittedWorkDone().catch(() => { throw gone(); });
  const spent = performance.now() - start;
  beat();
  return spent > 0 ? spent : NaN;
}

/** The first word outside of the output that differs from the set's image; -1: none. @param {Tune.TrialSet} set */
async function firstChange(set) {
  const { from, length } = regionOf(0);
  const first = device.createBuffer({ size: WORD, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  const range = device.createBuffer({ size: 16, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(first, 0, Uint32Array.of(NONE));
  device.queue.writeBuffer(range, 0, Uint32Array.of(words, from, from + length, INVOCATIONS));
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(comparing);
  const entries = [place().buffer, imageOf(set), first, range].map((buffer, binding) => ({ binding, resource: { buffer } }));
  pass.setBindGroup(0, device.createBindGroup({ layout: comparing.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(INVOCATIONS / 64);
  pass.end();
  device.queue.submit([encoder.finish()]);
  const [found] = new Uint32Array(await bytesOf(first, 0, WORD));
  first.destroy();
  range.destroy();
  return found === NONE ? -1 : found;
}

/** Number of the input that contains a word; 0: none. @param {number} word */
const inputAt = (word) => current().facts.buffers.findIndex((_, number) => {
  const { from, length } = regionOf(number);
  return number > 0 && word >= from && word < from + length;
});

/** Number of the first input that the kernel changed; -1: it wrote elsewhere; 0: nothing changed. @param {Tune.TrialSet} set */
async function changedInput(set) {
  const word = await firstChange(set);
  return word < 0 ? 0 : inputAt(word);
}

export const { accept, check, refutation } = checksOf({
  current, begin, output, runAll, changedInput,
  async perturb(set, buffer, number) {
    const bytes = /** @type {Uint8Array<ArrayBuffer>} */ (set.inputs[number]).slice();
    await shake(bytes, buffer, number);
    device.queue.writeBuffer(place().buffer, WORD * regionOf(number).from, wordsFrom(buffer, bytes));
  },
});

const [BIAS, FRACTION, LARGEST, SUBNORMAL] = [112 << 23, 13, 65504, 2 ** -14];

/**
 * Numbers as f16, for kernels that read such buffers: words with two finite numbers each, the first in the low bits; ties and too large
 * numbers round towards 0.
 * @type {Tune.HalvesOf}
 */
export function halvesOf(numbers) {
  const found = new Uint16Array(2 * Math.ceil(numbers.length / 2));
  const one = new Float32Array(1), bits = new Uint32Array(one.buffer);
  numbers.forEach((number, at) => {
    one[0] = Math.min(Math.abs(number), LARGEST);
    const size = one[0] < SUBNORMAL ? Math.floor(one[0] * 2 ** 24) : (bits[0] - BIAS) >> FRACTION;
    found[at] = size | (number < 0 ? 1 << 15 : 0);
  });
  return new Uint32Array(found.buffer);
}

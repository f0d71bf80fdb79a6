// A WebGPU device for the engine: requesting it, pipelines, elements as 32-bit words, and the device's errors.  No call returns such
// errors: they come from scopes around work, or later as events.
// Input: the browser's GPU, sizes, WGSL, work.  Output: a device, pipelines, words; problems or typed errors.  Bundles are not handled
// here.

import { count, requireCounts, requireForm } from './bundle.js';
import { EngineError } from './errors.js';
import { arrayOf, elementsOf, isDtype } from './tensors.js';

/** Error scopes; they end in the reverse order. @type {GPUErrorFilter[]} */
const SCOPES = ['out-of-memory', 'validation'];

/** Does work at once; `problem` resolves with the device's error for it, or null. @type {T.Scoped} */
export function scoped(device, work) {
  SCOPES.forEach((filter) => device.pushErrorScope(filter));
  // A lost device reports no errors.
  const ended = () => Promise.all(SCOPES.map(() => device.popErrorScope().catch(() => null)));
  try {
    const value = work();
    // Without memory, all uses of a buffer are invalid, too, so the outer error is the cause.
    return { value, problem: ended().then((found) => found.findLast(Boolean) ?? null) };
  } catch (error) {
    ended();
    throw error;
  }
}

/** The first line of an error's message. @param {GPUError} error */
const saying = ({ message }) => (message ? `: ${message.trim().split('\n')[0]}` : '');

/** True if the device lacked memory. @param {GPUError} error */
export const isFull = (error) => error instanceof GPUOutOfMemoryError;

/** Rejects with `memory-limit` if the device did not make buffers of this many bytes. @type {T.RequireMade} */
export async function requireMade(problem, what, bytes, hint) {
  const found = await problem;
  if (found) throw new EngineError('memory-limit', `The GPU has no room for ${what} of ${bytes} bytes${saying(found)}`, hint, { estimate: bytes });
}

/** @param {GPUError} error */
export const refusedWork = (error) => new EngineError('host', `The GPU refused a part of the work${saying(error)}`, 'Load the bundle again: the contents of its memory are unknown');

/**
 * The device's errors outside of all scopes, after which results may be wrong.  Jobs overlap, so it is not known which job an error belongs
 * to.  `require` throws for all jobs that began before the error (`since`, from `count`); for later jobs it throws only if no job has
 * reported the error yet.
 * @type {T.Soundness}
 */
export function soundness(device) {
  let [found, told] = [0, 0];
  /** The first error that no job has reported. @type {GPUError} */
  let first;
  device.addEventListener('uncapturederror', ({ error }) => {
    if (found++ === told) first = error;
  });
  return {
    count: () => found,
    require(since = told) {
      if (found <= since) return;
      told = found;
      throw refusedWork(first);
    },
  };
}

/**
 * Why a device is lost, '' while it is not.  The device may outlive the engine, so nothing of the engine is kept.
 * @param {GPUDevice} device
 */
export function lossOf(device) {
  const loss = { why: '' };
  device.lost.then(({ reason, message }) => (loss.why = message || (reason === 'destroyed' ? 'it was destroyed' : 'the browser gave no reason')));
  return loss;
}

/** Whether a model's device can still be used; `theirs`: it is the caller's. */
export class Health {
  #loss;
  #sound;
  #hint;

  /** @param {GPUDevice} device */
  constructor(device, theirs = false) {
    this.#loss = lossOf(device);
    // Errors on the caller's device may come from the caller's own work.
    this.#sound = theirs ? null : soundness(device);
    this.#hint = theirs ? 'Load the bundle again, on a new device' : 'Load the bundle again';
  }

  /** The error of a device that is lost, or that does not answer. */
  gone = () => new EngineError('host', `The GPU device was lost: ${this.#loss.why || 'it did not answer'}`, this.#hint, { lost: true });

  /** Throws the loss of the device, if it is lost, instead of an error that may only follow from it. @type {(error: unknown) => never} */
  orGone = (error) => {
    throw this.#loss.why ? this.gone() : error;
  };

  requireThere() {
    if (this.#loss.why) throw this.gone();
  }

  requireUsable() {
    this.requireThere();
    this.#sound?.require();
  }

  /** The number of errors so far; for `requireSound`. */
  errors() {
    return this.#sound?.count();
  }

  /** Throws if the device has reported an error since. @param {number} [since] */
  requireSound(since) {
    this.#sound?.require(since);
  }
}

/** The fields of the section `wgsl` that the backend uses. */
export const SECTION = {
  builds: [{ features: [Object], code: {}, plans: [{}], facts: {} }],
  plans: [{ inputs: [count], outputs: [count] }],
  facts: { memory: { bytes: count }, tensors: [count], states: [count] },
};
/** The fields of the files that it names. */
export const TEXTS = [(/** @type {unknown} */ value) => typeof value === 'string'];
/** Facts about the buffers besides the model's own: their bytes, and the number of the buffer, from 1 on, of each tensor or state. */
const FURTHER = { bytes: [count], of: [count] };
export const TENSORS = [{ dtype: isDtype, shape: [count] }];
export const WORD = 4;
/** The binding of a dispatch's first annex, and the most annexes: every device can bind eight buffers to a kernel. */
export const [ANNEX, MOST_ANNEXES] = [3, 6];

/** Features that the engine requests from an adapter, and needs of its WGSL, for kernels. @type {[GPUFeatureName[], string[]]} */
const [FEATURES, LANGUAGE] = [/** @type {any} */ (['shader-f16', 'subgroups', 'subgroup-size-control', 'chromium-experimental-subgroup-matrix']), ['packed_4x8_integer_dot_product']];

/**
 * The feature that gives a pipeline one subgroup size if the adapter has several; and the sizes that kernels require.
 * @type {[any, number[]]}
 */
const [CONTROL, SIZES] = ['subgroup-size-control', [4, 8, 16, 32, 64, 128]];
/** Sizes of a workgroup's shared memory that some kernels require, in bytes, beyond the guaranteed one. */
const SHARED = [32768, 49152];
const sharing = (/** @type {number} */ bytes) => `shared-memory-${bytes}`;
/** The line of a text that requires one subgroup size. */
const SIZED = /^\/\/ subgroups of (\d{1,3})$/m;

/**
 * Features for kernels (targets/gpu/workgroup_limits.py): WebGPU's own names, then those of sizes and configurations.
 * @type {T.FeaturesOf}
 */
function featuresOf({ features, limits }, info) {
  const { subgroupMinSize: least, subgroupMaxSize: most, subgroupMatrixConfigs: configs = [] } = /** @type {any} */ (info);
  const language = navigator.gpu.wgslLanguageFeatures;
  return [
    ...FEATURES.filter((name) => features.has(name)),
    ...LANGUAGE.filter((name) => language?.has(name)),
    ...SIZES.filter((size) => size >= least && size <= most && (least === most || features.has(CONTROL))).map((size) => `subgroups-${size}`),
    ...SHARED.filter((bytes) => limits.maxComputeWorkgroupStorageSize >= bytes).map(sharing),
    ...[...configs].map(({ componentType, resultComponentType, M, N, K }) => `subgroup-matrix-${componentType}-${resultComponentType}-${M}x${N}x${K}`),
  ];
}

/** The engine's description of an adapter, or of a device with the features that were requested. @type {T.AboutGpu} */
function aboutOf(source, info) {
  const { vendor = '', architecture = '', description = '', isFallbackAdapter: software = false } = info;
  return { name: [vendor, architecture].filter(Boolean).join(' ') || 'an adapter', vendor, architecture, description, software, features: featuresOf(source, info) };
}

/** The faster adapter, unless the caller prefers another, and its description; rejects with `unsupported-host`. @type {T.FindAdapter} */
export async function findAdapter(powerPreference = 'high-performance') {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference });
  if (!adapter) {
    throw new EngineError('unsupported-host', 'This browser gives no WebGPU adapter', "Load the bundle with device 'wasm', or use a browser with WebGPU");
  }
  return { adapter, about: aboutOf(adapter, adapter.info) };
}

/**
 * A device with limits for the model, and all features that kernels may use: the caller's `own`, or a new one.  Rejects with
 * `unsupported-host` or `memory-limit`.
 * @type {T.DeviceFor}
 */
export async function deviceFor(bytes, { features, powerPreference } = {}, own = null) {
  // Older browsers have devices without `adapterInfo`.
  const { adapter, about } = own ? { adapter: own, about: aboutOf(own, own.adapterInfo ?? {}) } : await findAdapter(powerPreference);
  if (features) about.features = about.features.filter((name) => features.includes(name));
  const most = Math.min(adapter.limits.maxStorageBufferBindingSize, adapter.limits.maxBufferSize);
  if (bytes > most) {
    const [whose, hint] = own ? ['device', `Request the device with requiredLimits: { maxStorageBufferBindingSize: ${bytes}, maxBufferSize: ${bytes} }, or build`] : ['adapter', 'Build'];
    throw new EngineError('memory-limit', `The model needs one GPU buffer of ${bytes} bytes, and the limit of the ${whose} is ${most}`,
      `${hint} the bundle with buffers of at most that (tilewright build --bank ${most}), with smaller buckets or from a smaller model`, { estimate: bytes, limit: most });
  }
  if (own) return { device: own, adapter: about };
  /** @type {GPUFeatureName[]} */
  const wanted = ['timestamp-query', ...FEATURES.filter((name) => about.features.includes(name))];
  const requiredFeatures = wanted.filter((name) => adapter.features.has(name));
  const mostShared = SHARED.findLast((bytes) => about.features.includes(sharing(bytes)));
  const shared = mostShared && { maxComputeWorkgroupStorageSize: mostShared };
  const device = await /** @type {GPUAdapter} */ (adapter).requestDevice({ requiredFeatures, requiredLimits: { maxStorageBufferBindingSize: Math.max(bytes, 2 ** 27), maxBufferSize: Math.max(bytes, 2 ** 28), ...shared } });
  return { device, adapter: about };
}

/** A section's facts about banks, or annexes; empty lists if there are none. @type {T.FurtherOf} */
export function furtherOf(given = { bytes: [], of: [] }) {
  const { bytes: sizes, of } = /** @type {{bytes: number[], of: number[]}} */ (requireForm(given, FURTHER, 'buffers'));
  requireCounts('buffers', ...sizes.map((size) => size / WORD), sizes.length - Math.max(0, ...of));
  return { sizes, of };
}

/** The bindings of every kernel: the memory, the step's block, a bank of weights if there are any, and annexes. @type {T.LayoutOf} */
export const layoutOf = (device, banks = 0, annexes = 0) => device.createBindGroupLayout({
  entries: [
    { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'storage' } },
    { binding: 1, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'uniform' } },
    ...(banks ? [/** @type {const} */ ({ binding: 2, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'read-only-storage' } })] : []),
    ...Array.from({ length: Math.min(annexes, MOST_ANNEXES) }, (_, n) => /** @type {const} */ ({ binding: ANNEX + n, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'storage' } })),
  ],
});

/** @type {T.PipelineOf} */
export async function pipelineOf(device, layout, text) {
  const size = device.features.has(CONTROL) && SIZED.exec(text)?.[1];
  const code = size ? `enable subgroup_size_control;\n${text.replace('@compute ', `@compute @subgroup_size(${size}) `)}` : text;
  // The compilation messages say the same as an error scope.
  const { value: module } = scoped(device, () => device.createShaderModule({ code }));
  const { messages } = await module.getCompilationInfo();
  const wrong = messages.find(({ type }) => type === 'error');
  if (wrong) throw new EngineError('bundle-corrupt', `A kernel is not valid WGSL: ${wrong.message} (line ${wrong.lineNum})`, 'Build the bundle again');
  return device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: 'main' },
  });
}

/** @type {T.WordsOf} */
export const wordsOf = (dtype, elements) => elements * (dtype === 'i64' ? 2 : 1);

/** Throws `bundle-corrupt` unless the tensor fits, in words, a memory of this many bytes. @type {T.RequireRoom} */
export const requireRoom = ({ name, dtype, shape, address }, bytes) => (
  requireCounts(name, address / WORD, bytes - address - WORD * wordsOf(dtype, elementsOf(shape))));

/** The type in which the device keeps elements: their own, or 32-bit integers. @param {T.DType} dtype @returns {T.DType} */
export const stored = (dtype) => (dtype === 'f32' || dtype === 'i64' ? dtype : 'i32');

/** Elements as the device's 32-bit words; i64 takes two. @type {T.Widen} */
export function widen(dtype, array) {
  const words = arrayOf(stored(dtype));
  return array instanceof words ? array : words.from(array);
}

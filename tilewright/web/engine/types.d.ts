// Types of the engine and its parts; no browser fetches this file.

// The engine's files refer to these types, and to those of manifest.d.ts, storage.d.ts, values.d.ts and functions.d.ts, as T.Name.

import type { Call, RunOn } from './functions.js';
import type { DType, FileRef, Manifest, Placed, Program, Sizes, Step, TensorInfo } from './manifest.js';
import type { Files, Meter } from './storage.js';
import type { BufferPlace, Bytes, Input, InputData, Output, Targets, Tensor, TensorData, Wanted } from './values.js';

export as namespace T;

export type * from './functions.js';
export type * from './manifest.js';
export type * from './storage.js';
export type * from './values.js';

export type HostFeatures = {
  simd: boolean;
  relaxed_simd: boolean;
  /** True if the relaxed dot product of bytes reads its second operand as unsigned, as on x86. */
  dot_u8: boolean;
  /** Vector registers that code can use: 15 on x86, 32 elsewhere. */
  registers: number;
  /** True if cross-origin isolated: then there are shared memory, threads and a fine clock. */
  isolated: boolean;
  /** True in a secure context. */
  secure: boolean;
  /** Logical cores. */
  cores: number;
  /** Workers for a run: the default of this host, or the number in use where an engine reports it. */
  threads: number;
};

/** Limits that a caller of `load` sets. */
export type Limits = {
  /** The features of Wasm or of the GPU that the engine may use, if it finds them; [] for the baseline. */
  features?: string[];
  /** Workers for a run, the engine's own included, from 1 to 32; default: `HostFeatures.threads`. */
  threads?: number;
  /** Name of the code variant to use; default: the best for the host's features and registers. */
  variant?: string;
  /** Maximum bytes of memory; a larger model is refused before its download. */
  memoryLimit?: number;
  /** With several GPUs: the faster one, which is the default, or the one that takes less power. */
  powerPreference?: 'high-performance' | 'low-power';
  /** Verify the digests of stored weights too, not only of downloaded ones. */
  verify?: boolean;
  /** Public key that must have signed the bundle (docs/security.md). */
  key?: string;
  /** With `key`: the name that the bundle must be signed as; by default any that the key signed. */
  name?: string;
};

/** Milliseconds from the start of the load until each part was complete. */
export type Timings = { manifest: number; code: number; weights: number; ready: number };

/** `measure`: with device `auto`, after `ready` of both devices. */
export type Phase = 'manifest' | 'code' | 'weights' | 'ready' | 'measure';
/** `pipelines`: on WebGPU, once the phase `code` has loaded its files: the number of finished pipelines, and of all. */
export type Progress = { phase: Phase; loadedBytes: number; totalBytes: number; cachedBytes: number; pipelines?: { made: number; of: number } };

export type ErrorCode =
  | 'bundle-corrupt' | 'bundle-version' | 'memory-limit' | 'input' | 'kernel-trap' | 'host'
  | 'disposed' | 'network' | 'signature' | 'unsupported-host' | 'context-full' | 'invalid-model';
export type ErrorFacts = Record<string, unknown>;
/** An EngineError in a message between workers. */
export type PlainError = { code: ErrorCode; message: string; hint: string; facts: ErrorFacts };

/** Exports of the plan driver (docs/bundle-wasm.md); `run` and `abort` return 0, or TRAP or STALLED. */
export type Driver = {
  run: (plan: number, first: number, last: number, workers: number) => number;
  abort: (workers: number) => number;
  serve: (worker: number) => void;
  /** Only in bundles with extents. */
  resize: (plan: number, extent: number, size: number) => void;
};
/** The parts that each worker instantiates. */
export type Setup = {
  /** The bundle's kernels, then the driver. */
  modules: WebAssembly.Module[];
  /** Kernels that replace the bundle's, with their own table entries from `slots` on. */
  tuned: TunedKernel[];
  /** Set by the pool; helpers name it in their answers. */
  version?: number;
  memory: WebAssembly.Memory;
  /** Table entries of the bundle's own kernels. */
  slots: number;
  /** Address of worker 0's scratch memory, and bytes of scratch per worker. */
  scratch: number;
  scratchBytes: number;
};

export type LoadOptions = Limits & {
  /**
   * `wasm` (default) or `webgpu`; `auto`: the one that runs the model faster here, see `Info.choice`.  A GPUDevice: WebGPU on that device, in
   * the caller's thread, where inputs and outputs can be GPUBuffers.  The device stays the caller's.
   */
  device?: Device | 'auto' | GPUDevice;
  /** For `webgpu`: after a loss of its GPU device the engine continues with a new one, up to three times; see `Engine.onlost`. */
  recover?: boolean;
  /** For `auto`: the sizes to measure with; default: the smallest bucket. */
  bucket?: Sizes;
  /** For `auto`: whether to measure an adapter that computes on the CPU, too, which may take minutes to start; default: false. */
  software?: boolean;
  /** Called a few times per second. */
  onProgress?: (progress: Progress) => void;
  /** Aborts the load, which rejects with the signal's reason, and ends its workers. */
  signal?: AbortSignal;
};
/** A WebGPU adapter; `software`: it computes on the CPU; `features`: what kernels may use there. */
export type Adapter = { name: string; vendor: string; architecture: string; description: string; software: boolean; features: string[] };
/** Which device was chosen for `auto`, and why. */
export type Choice = {
  chosen: Device;
  /** Median time of a run from call to answer; empty if nothing was measured. */
  milliseconds: Partial<Record<Device, number>>;
  /** A sentence: how clear the verdict is, or why nothing was measured, or that a device was lost. */
  why: string;
  /** The sizes with which `load` was asked to measure. */
  bucket: Sizes;
  /** True if it was measured at an earlier visit. */
  remembered: boolean;
};
/** Options of `generate` (engine/generate.js). */
export type GenerateOptions = {
  /** Tokens in the caches from earlier calls: prompt and generated tokens, except the last one, which no run has taken in. */
  past?: number;
  /** The most tokens. */
  most?: number;
  /** Ids that end the text. */
  end?: number[];
  /** Chooses an id from the logits, if the model does not; by default the likeliest one. */
  choose?: (logits: ArrayLike<number>) => number;
  /** Further inputs of each run, such as temperature and a random number. */
  inputs?: () => Record<string, Input>;
  signal?: AbortSignal;
};

export type Info = {
  name: string;
  device: Device;
  /** Only with device `auto`. */
  choice?: Choice;
  tool: string;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  /** Buckets of each named dimension. */
  dims: Record<string, number[]>;
  /** SHA-256 of the manifest, in hex. */
  digest: string;
  /** The bundle's folder. */
  url: string;
  /** Bytes of all files that were needed. */
  bytes: number;
  memoryBytes: number;
  plans: { dims: Sizes; steps: number; flops: number }[];
  features: HostFeatures;
  /** The code variant in use, and why it was chosen. */
  variant: { name: string; features: string[]; registers: number; why: string };
  /** The WebGPU adapter; null if kernels are WebAssembly. */
  adapter: Adapter | null;
  assets: string[];
  cache: { state: 'on' | 'off'; hitBytes: number; downloadedBytes: number; problem: string };
  timings: Timings;
  loadMilliseconds: number;
  /** Sentences about what slows the model down on this host (threads, features, cache), and what happened to its device. */
  lost: string[];
};

export type RunOptions = {
  signal?: AbortSignal;
  /**
   * Arrays that receive outputs, by name; dtype and length must match.  Other outputs get new arrays.  On a device of the caller these may also be buffers with
   * the usage COPY_DST (f32, i32, i64); such an output is not returned as an array.
   */
  into?: Record<string, TensorData | GPUBuffer | BufferPlace>;
  /** The checked buffers of `into` (gpu_buffers.js). */
  to?: Targets;
};
export type RunResult = {
  outputs: Record<string, Output>;
  /** Dimensions of the plan that ran. */
  bucket: Sizes;
  /** Time of the driver call alone. */
  milliseconds: number;
  /** `milliseconds` of this engine's first run, when code may still be unoptimised. */
  firstMilliseconds: number;
  /** Includes copies, messages and waiting for earlier runs. */
  totalMilliseconds: number;
  /** Number of this run, from 1. */
  run: number;
};

/** Replaces the kernel of all steps of a specification. */
export type Change = {
  /** Index in the manifest's list of kernels. */
  spec: number;
  /** A module that exports `k0`, or on WebGPU a text; null restores the bundle's own kernel.  `tiles`: on WebGPU invocations. */
  module: WebAssembly.Module | string | null;
  tiles?: number;
  /** Tiles per ticket, by plan index; 0: all in one ticket. */
  grains?: Record<number, number>;
  /** Bytes of scratch memory that each worker needs. */
  scratch?: number;
};
/** `group`, `lanes`: on WebGPU the threads of a workgroup, and the elements that it loads at once. */
export type TunedKernel = Required<Change> & { module: WebAssembly.Module | string; group?: number; lanes?: number };
/** A bundle on a device: the interface of a backend for the engine's worker. */
export interface BackendLoaded {
  /** Plans and states with their addresses in this backend's memory. */
  program: Program;
  /** The parts for other workers and the page; null if only this worker can run the bundle. */
  setup: Setup | null;
  threads: number;
  memoryBytes: number;
  variant: Info['variant'];
  adapter?: Adapter;
  /** For `Info.lost`. */
  lost(cacheProblem: string): string[];
  run(work: RunWork & { wanted?: Wanted[]; to?: Targets }): MaybePromise<{ milliseconds: number; outputs?: Wanted[] }>;
  /** Times whole runs, or the steps named by `only`. */
  measure(work: MeasureWork): MaybePromise<Times | { steps: StepTime[]; read?: Bytes }>;
  /** Reads a state, or writes `data` to it. */
  state(work: { place: Placed; data?: any }): any;
  /** Resolves once the device has done a small piece of work; only WebGPU has it. */
  probe?(): Promise<void>;
  /** Exchanges kernels between two runs. */
  swap(next: TunedImages): Promise<void>;
}
export type MaybePromise<Value> = Value | Promise<Value>;
/** `read`: address and length of bytes of memory that the steps overwrite and that are read afterwards; `repeat`, `inOrder`: see `Engine`. */
export type MeasureWork = RunWork & { runs: number; warmup?: number; only?: number[] | 'all'; read?: [number, number]; repeat?: number; inOrder?: boolean };
export type WasmLoaded = BackendLoaded & { setup: Setup; machine: PlanRunner };
/** Tuned kernels; `images`: except on WebGPU, for each plan the start of an image that uses them. */
export type TunedImages = { kernels: TunedKernel[]; images?: Uint32Array[] };
export type LoadedBundle = BackendLoaded & { manifest: Manifest; info: Omit<Info, 'device'>; file(ref: FileRef): Promise<ArrayBufferLike> };
/** The parameters of a backend: the opened bundle, and the host's properties. */
export type Opened = { manifest: Manifest; files: Files; meter: Meter; host: HostFeatures; reached: (part: keyof Timings) => number };
/** A backend's entry point.  Rejects before weights are downloaded if the bundle cannot run on the device. */
export type LoadBackend = (opened: Opened, limits: Limits, crew: Crew) => Promise<BackendLoaded>;
export type Device = 'wasm' | 'webgpu';
/** Loads a bundle again, with further options. */
export type Again = (more?: LoadOptions) => Promise<Engine>;
export type Elsewhere = (message: string) => Promise<Engine>;
/** Answers the page's requests with a backend, for the worker's lifetime. */
export type Answer = (load: LoadBackend) => void;
/** Starts the engine's worker for a device, under this name. */
export type Starters = Record<Device, (name: string) => Worker>;
export type LoadBundle = (load: LoadBackend, url: string, limits: Limits, crew: Crew, report: OnProgress) => Promise<LoadedBundle>;

/** A loaded bundle, as `load` of engine.js returns it. */
export interface Engine {
  /** What was loaded, where it runs, and what slows it down there. */
  readonly info: Info;
  /**
   * Runs the model once.  Runs are queued in the order of the calls; on WebGPU a run may begin before the previous one has returned. Inputs are copied before
   * this returns, except frames (`FrameInput`), whose run is queued a little later. Rejects with `input` for bad arguments, `kernel-trap`, `host`, `disposed`,
   * or the reason of `signal`.  An aborted run rejects at once; if it has already started, it finishes in the worker and its result is dropped.
   *
   * If memory is shared, short plans (last run below 0.5 ms times threads) run in the page's thread, because a message round trip would take longer.  Every
   * 32nd run still goes to the worker, so that the page stays responsive.
   */
  run(inputs: Record<string, Input>, options?: RunOptions): Promise<RunResult>;
  /**
   * An array over the input's memory in the engine, in the shape of the bucket; if it is passed to `run`, it is not copied.  Its contents stay until a run of
   * this bucket gets another array for the input, or a run uses another bucket.  Do not write to it while a run is open.  If memory is not shared it is an
   * ordinary array, which `run` copies.
   */
  input(name: string, bucket?: Sizes): TensorData;
  /**
   * Times driver calls in the worker, back to back, in milliseconds.  Inputs are the memory of `input` if the page asked for that in this bucket, else the
   * arrays of the last run if it used this bucket, else zeros.  `first` is the very first call, whether or not it counts as warm-up.  `repeat`: on WebGPU, the
   * time of one of this many consecutive runs by the GPU's own clock.
   */
  time(options?: { bucket?: Sizes; runs?: number; warmup?: number; repeat?: number }): Promise<Times & { bucket: Sizes }>;
  /**
   * Milliseconds of each step alone (of those in `only`): the median of runs, or their mean if the clock is coarse (page not isolated). On WebGPU, without
   * `only`, of each dispatch of a run: a dispatch of several steps has the number of the first and the kernels of all. Steps are repeated until the clock can
   * measure them, so their inputs may be in a cache.  `inOrder`: on WebGPU without `only`, measures whole runs by the GPU's own clock instead.
   */
  profile(options?: { bucket?: Sizes; runs?: number; only?: number[]; read?: [number, number]; inOrder?: boolean }): Promise<{ steps: StepTime[]; bucket: Sizes; read?: Bytes }>;
  /** Values that the model keeps between runs, such as a KV cache; reads and writes are queued like runs. */
  readonly states: States;
  /** A file that came with the bundle, verified and kept for the next visit. */
  asset(name: string): Promise<ArrayBuffer>;
  /** Swaps kernels in all workers, also in those that start later; queued like a run.  After an error (`input`, `host`) nothing has changed. */
  swap(changes: Change[]): Promise<void>;
  /**
   * A callback that a page may set.  Called when the number of open jobs changes; after a run also with its plan and
   * milliseconds; once with -1 at `dispose` or when the worker died.
   */
  onjob(open: number, plan?: number, milliseconds?: number): void;
  /**
   * A callback that a page may set, with device `auto` or `recover`, and while any engine tunes.  Called after the GPU device was lost or did not answer, and
   * the engine continues elsewhere, as `info.choice` or `info.lost` tells.
   */
  onlost?(info: Info): void;
  /**
   * For tuners.  `device`: the one that runs it; `again`: loads the same bundle with the same options, and more; `lent`: plans whose input memory the page may
   * write to; `memory`: null if not shared; `file`: reads a verified file; `probe`: on WebGPU, resolves once the device has done a small piece of work;
   * `elsewhere`: with device `auto`, makes an engine on WebAssembly, given the reason; `bare`: if the engine recovers, jobs that reject when the device is
   * lost; `losses`: the number of lost devices.
   */
  readonly parts: { device: Device; manifest: Manifest; program: Program; limits: Limits; again: Again; lent: Set<number>; memory: WebAssembly.Memory | null; file: (ref: FileRef) => Promise<ArrayBuffer>; probe: (of: object) => Promise<void>; elsewhere?: Elsewhere; bare?: Jobs; losses?: number };
  /** Pauses runs before their next tile, or resumes them.  Throws `host` on pages that are not cross-origin isolated. */
  preempt(on: boolean): void;
  /** Ends the workers and frees their memory.  Open runs reject with `host`, later calls with `disposed`. */
  dispose(): void;
}
export type Jobs = Pick<Engine, 'run' | 'time' | 'profile'>;
export interface States {
  readonly names: string[];
  /** A copy of a state. */
  read(name: string): Promise<TensorData>;
  /** Overwrites a state with data that an input of its dtype accepts; rejects with `input` unless `data` has exactly as many elements. */
  write(name: string, data: InputData): Promise<void>;
  /** Sets all states to zero, as after a load. */
  reset(): Promise<void>;
}
/** Milliseconds of the first call, and of each measured one. */
export type Times = { first: number; milliseconds: number[] };
/** A step, its index in the plan, and its time. */
export type StepTime = Step & { step: number; milliseconds: number };

/** The connection from the page to the engine's worker. */
export interface Channel {
  /** The bundle's memory if it is shared; null before it is allocated. */
  readonly memory: WebAssembly.Memory | null;
  /** Set if the engine runs in the caller's thread, on the caller's GPU device. */
  readonly here?: { runOn: RunOn };
  /** For changes.js: headers and records of the compiled plan images, once a kernel was swapped. */
  images?: Promise<Uint32Array[]>;
  request(kind: string, params: object): Promise<any>;
  preempt(on: boolean): void;
  /** Ends the workers; open requests reject with the reason. */
  close(reason: unknown): void;
  /** Called once, when the link was closed or its worker died. */
  onend(): void;
}
/** A message from the engine's worker: an answer to the request `id`, or a notification. */
export type Message = {
  id?: number;
  value?: unknown;
  error?: PlainError;
  progress?: Progress;
  /** Asks for shared memory of this many 64 KiB pages, and the most to which it may grow; the answer is `{ memory }`. */
  pages?: [number, number];
  /** Number of a helper that must be replaced. */
  replace?: number;
  /** The worker holds its lock. */
  alive?: boolean;
};

/** A pool worker, as the engine's worker sees it. */
export type Helper = {
  port: MessagePort;
  /** True once it listens to its port. */
  there: boolean;
  /** True if it has instantiated the current setup. */
  able: boolean;
  /** True if it was told to serve and has instantiated no setup since: it may be inside `serve` with an older one. */
  told: boolean;
  /** Its answer to the current setup: '', or why it cannot serve. */
  answer: PromiseWithResolvers<string>;
  /** Resolves when a replacement has started, so this one is certainly gone. */
  gone: PromiseWithResolvers<string>;
};
/** The engine worker's side of its helpers. */
export interface Pool {
  helpers: Map<number, Helper>;
  /** While true, no helper is told to serve. */
  stopped: boolean;
  /** Registers a started helper; a previous one of this number is gone. */
  add(number: number, port: MessagePort): void;
  /** Tells a helper to serve, if the pool is running and the helper is able. */
  tell(helper: Helper): void;
  /** Sends a setup to all helpers, present and future.  No helper may still serve with another setup when it is used. */
  give(setup: Setup): void;
  /** Sends the first setup; resolves with sentences about problems. */
  start(setup: Setup): Promise<string[]>;
  /** Replaces a helper; resolves with '' once the old one is gone, or with LATE. */
  replace(number: number): Promise<string>;
  /** After an aborted run: replaces the helpers that are still inside it. */
  mend(): Promise<void>;
}

/** The work of one run.  `tensors`: inputs that are not in memory yet; `sizes`: of named dimensions; missing extents are at their largest. */
export type RunWork = { plan: number; sizes?: Sizes; tensors?: Tensor[] };
export interface PlanRunner {
  /** `wanted` asks for outputs in the answer. */
  run(work: RunWork & { wanted?: Wanted[] }): { milliseconds: number; outputs?: Wanted[] };
  /** Writes the inputs to memory, if there are any. */
  take(work: RunWork): void;
  call: Call;
}
export type OnProgress = (progress: Progress) => void;
export type Crew = { threads: number; pool: Pool; claim: (pages: [number, number]) => Promise<WebAssembly.Memory | null> | WebAssembly.Memory | null; gpu?: GPUDevice };

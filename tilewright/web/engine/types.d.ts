// The engine and its parts, one interface for each; no browser fetches this file.

// In the engine's files these and those of manifest.d.ts and functions.d.ts are called T.Name.

import type { Call } from './functions.js';
import type { DType, FileRef, Manifest, Placed, Program, Sizes, Step, TensorInfo } from './manifest.js';

export as namespace T;

export type * from './functions.js';
export type * from './manifest.js';

export type HostFeatures = {
  simd: boolean;
  relaxed_simd: boolean;
  /** The relaxed dot product of bytes reads its second operand as unsigned, as on x86. */
  dot_u8: boolean;
  /** Vector registers that code can use: 15 on x86, 32 elsewhere. */
  registers: number;
  isolated: boolean;
  secure: boolean;
  cores: number;
  threads: number;
};

/** What a caller of `load` allows. */
export type Limits = {
  /** Wasm features the engine may use, of those it finds; [] for the baseline. */
  features?: string[];
  /** Workers for a run, the engine's own included; by default one per core. */
  threads?: number;
  /** Code variant to take, whatever the host's registers. */
  variant?: string;
  /** Bytes of Wasm memory; a larger model is refused before its download. */
  memoryLimit?: number;
  /** Check the digests of kept weights too, not only of what is downloaded. */
  verify?: boolean;
};

/** Milliseconds since the load began at which each part was there. */
export type Timings = { manifest: number; code: number; weights: number; ready: number };

export type Phase = 'manifest' | 'code' | 'weights' | 'ready';
export type Progress = { phase: Phase; loadedBytes: number; totalBytes: number; cachedBytes: number };

export type ErrorCode =
  | 'bundle-corrupt' | 'bundle-version' | 'memory-limit' | 'input' | 'kernel-trap' | 'host'
  | 'disposed' | 'network' | 'unsupported-host';
export type Facts = Record<string, unknown>;
/** An EngineError on its way between workers. */
export type PlainError = { code: ErrorCode; message: string; hint: string; facts: Facts };

export type Bytes = Uint8Array<ArrayBuffer>;
export type TensorData =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Uint8ClampedArray | Int32Array | BigInt64Array;
export type InputData = ArrayLike<number> | ArrayLike<bigint> | ArrayLike<boolean>;
/** What a caller gives for an input: an array, with its shape where that is open. */
export type Input = InputData | { data: InputData; shape: number[] };
/** An input of the right size, as `TypedArray.set` can write it: perhaps the caller's own array. */
export type Tensor = { data: any; shape: number[] };
/** An output that a run shall give; without `data` into a fresh array. */
export type Wanted = { name: string; dtype: DType; shape: number[]; data?: any };
export type Output = { data: any; shape: number[]; dtype: DType };
export type Driver = {
  run: (plan: number, first: number, last: number, workers: number) => number;
  abort: (workers: number) => number;
  serve: (worker: number) => void;
  /** Of bundles with extents. */
  resize: (plan: number, extent: number, size: number) => void;
};
/** What each worker instantiates; kernels first, then the driver. */
export type Setup = {
  modules: WebAssembly.Module[];
  /** Kernels with table entries of their own, from `slots` on. */
  tuned: Kernel[];
  /** Of the pool: helpers say to which one they answer. */
  version?: number;
  memory: WebAssembly.Memory;
  slots: number;
  scratch: number;
  scratchBytes: number;
};

export type LoadOptions = Limits & {
  /** Where to run: WebAssembly, the default, or a GPU. */
  device?: Device;
  /** Called a few times per second. */
  onProgress?: (progress: Progress) => void;
  /** Ends the load and its worker. */
  signal?: AbortSignal;
};
export type Info = {
  name: string;
  tool: string;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  dims: Record<string, number[]>;
  digest: string;
  url: string;
  /** Of all files that were needed. */
  bytes: number;
  memoryBytes: number;
  plans: { dims: Sizes; steps: number; flops: number }[];
  features: HostFeatures;
  /** The code that was taken, and why. */
  variant: { name: string; features: string[]; registers: number; why: string };
  assets: string[];
  cache: { state: 'on' | 'off'; hitBytes: number; downloadedBytes: number; problem: string };
  timings: Timings;
  loadMilliseconds: number;
  /** What the host lacks, in sentences. */
  lost: string[];
};

export type RunOptions = {
  signal?: AbortSignal;
  /** Arrays that receive outputs, by name: of the output's own type and length.  Others are fresh. */
  into?: Record<string, TensorData>;
};
export type RunResult = {
  outputs: Record<string, Output>;
  /** The plan that ran. */
  bucket: Sizes;
  /** The driver call alone. */
  milliseconds: number;
  /** The same of this engine's first run, when code may still be unoptimised. */
  firstMilliseconds: number;
  /** With copying, messages and waiting for earlier runs. */
  totalMilliseconds: number;
  /** Number of this run, from 1. */
  run: number;
};

/** Another kernel for all steps of a specification (number in the list of kernels); null: the bundle's own again. */
export type Change = {
  spec: number;
  module: WebAssembly.Module | null;
  tiles?: number;
  /** By number of the plan, tiles per ticket; 0: one ticket. */
  grains?: Record<number, number>;
  /** Bytes of staging memory that a worker needs. */
  scratch?: number;
};
export type Kernel = Required<Change> & { module: WebAssembly.Module };
/** A bundle on a device: what the engine's worker asks of a backend. */
export interface BackendLoaded {
  /** Plans and states as they lie in this backend's memory. */
  program: Program;
  /** What further workers and the page instantiate; null where only this worker can run the bundle. */
  setup: Setup | null;
  threads: number;
  memoryBytes: number;
  variant: Info['variant'];
  /** What the host lacks, in sentences. */
  lost(cacheProblem: string): string[];
  run(work: Work & { wanted?: Wanted[] }): MaybePromise<{ milliseconds: number; outputs?: Wanted[] }>;
  /** Times whole runs, or the steps named by `only`. */
  measure(work: MeasureWork): MaybePromise<Times | { steps: StepTime[] }>;
  /** Reads a state, or writes `data` to it. */
  state(work: { place: Placed; data?: any }): any;
  /** Exchanges kernels between two runs. */
  swap(kernels: Kernel[]): Promise<void>;
}
export type MaybePromise<Value> = Value | Promise<Value>;
export type MeasureWork = Work & { runs: number; warmup?: number; only?: number[] | 'all' };
/** `images`: its plans as the compiler made them, once kernels were exchanged. */
export type WasmLoaded = BackendLoaded & { setup: Setup; machine: Machine; images?: Uint32Array[] };
export type Loaded = BackendLoaded & { manifest: Manifest; files: Files; info: Info };
/** What a backend gets: the bundle, opened, and what the host is. */
export type Opened = { manifest: Manifest; files: Files; meter: Meter; host: HostFeatures; reached: (part: keyof Timings) => number };
/** A backend: how bundles run on a kind of device.  Rejects before weights are downloaded if the device cannot. */
export type LoadBackend = (opened: Opened, limits: Limits, crew: Crew) => Promise<BackendLoaded>;
export type Device = 'wasm' | 'webgpu';
/** Answers the page's requests by a backend, for as long as the worker lives. */
export type Answer = (load: LoadBackend) => void;
export type Starters = Record<Device, (name: string) => Worker>;
export type LoadBundle = (load: LoadBackend, url: string, limits: Limits, crew: Crew, report: Report) => Promise<Loaded>;

/** A loaded bundle, as `load` of engine.js gives it. */
export interface Engine {
  /** What was loaded, where it runs, and what is lost here. */
  readonly info: Info;
  /**
   * Runs the model once.  Runs queue: a run starts when all earlier ones have ended, in the order of
   * the calls.  Inputs are copied before this returns: straight to their place if nothing is queued
   * and memory is shared.  An aborted run rejects at once; one that has already started still
   * finishes in the worker, and its result is dropped.  Where memory is shared, a plan whose last run
   * took less than half a millisecond (times threads) runs in the page's own thread, which messages would
   * keep longer; every 32nd run goes to the worker, so that the page can do something else in between.
   */
  run(inputs: Record<string, Input>, options?: RunOptions): Promise<RunResult>;
  /**
   * The input's own place in the engine's memory, in the shape of the bucket: what a page writes
   * there and gives to `run` is not copied.  Runs leave it as it is, but for those that are given another
   * array for this input, and those of other buckets.  Do not write while a run is open.  An ordinary array,
   * which `run` copies, where memory is not shared.
   */
  input(name: string, bucket?: Sizes): TensorData;
  /**
   * Times driver calls in the worker, back to back, with what the arrays of the last run now hold if
   * it was in that bucket, or else with zeros; with what lies there if the page asked for `input` of that
   * bucket.  `first` is the very first call, warm-up or not.
   */
  time(options?: { bucket?: Sizes; runs?: number; warmup?: number }): Promise<Times & { bucket: Sizes }>;
  /**
   * Times each step of a plan by itself: the median over the runs, or the mean where the page's clock
   * is too coarse for single steps (not cross-origin isolated).  `only` names the steps to run.
   */
  profile(options?: { bucket?: Sizes; runs?: number; only?: number[] }): Promise<{ steps: StepTime[]; bucket: Sizes }>;
  /** What the model keeps from run to run, such as a cache of keys and values; reads and writes queue like runs. */
  readonly states: States;
  /** A file that came with the bundle, verified and kept for the next visit. */
  asset(name: string): Promise<ArrayBuffer>;
  /**
   * Exchanges kernels between two runs, in all workers; those that start later get them too.  All of
   * them or none: after an error the engine is as before.  Runs that were asked for earlier come first.
   */
  swap(changes: Change[]): Promise<void>;
  /** Called when the number of open jobs changes, after a run with its plan and milliseconds, and once with -1: at `dispose`, or when its worker died. */
  onjob(open: number, plan?: number, milliseconds?: number): void;
  /** For tuners: the manifest, the memory if it is shared, and the bundle's files, verified. */
  readonly parts: { manifest: Manifest; program: Program; lent: Set<number>; memory: WebAssembly.Memory | null; file: (ref: FileRef) => Promise<ArrayBuffer> };
  /** Lets runs stop before their next tile, or go on.  Only on cross-origin isolated pages. */
  preempt(on: boolean): void;
  /** Ends the workers and frees their memory.  Open runs in the worker reject with `host`, later ones with `disposed`. */
  dispose(): void;
}
export interface States {
  readonly names: string[];
  /** A copy of what a state holds. */
  read(name: string): Promise<TensorData>;
  /** Gives a state new contents, as many elements of its type as it has. */
  write(name: string, data: InputData): Promise<void>;
  /** All states become zeros, as they are after a load. */
  reset(): Promise<void>;
}
export type Times = { first: number; milliseconds: number[] };
export type StepTime = Step & { step: number; milliseconds: number };

/** The line from the page to the engine's worker. */
export interface Link {
  /** The bundle's memory, once there is one and if it is shared. */
  readonly memory: WebAssembly.Memory | null;
  request(kind: string, params: object): Promise<any>;
  preempt(on: boolean): void;
  /** Ends the workers; whatever is still open is rejected. */
  close(reason: unknown): void;
  /** Called once, when it was closed or its worker died. */
  onend(): void;
}
/** What the engine's worker says: an answer to a request, or news. */
export type Message = {
  id?: number;
  value?: unknown;
  error?: PlainError;
  progress?: Progress;
  /** Asks for shared memory of this size; the answer is `{ memory }`. */
  pages?: number;
  /** Number of a helper that must be replaced. */
  replace?: number;
  /** The worker holds its lock. */
  alive?: boolean;
};

/** A further worker of the pool. */
export type Helper = {
  port: MessagePort;
  /** It listens to its port. */
  there: boolean;
  /** It has taken on the setup of now. */
  able: boolean;
  /** It was told to serve, and has taken on no setup since: it may be inside of `serve`, with an older one. */
  told: boolean;
  /** To the setup of now: what keeps it from serving, or ''. */
  answer: PromiseWithResolvers<string>;
  /** Its successor is there. */
  gone: PromiseWithResolvers<string>;
};
/** The engine worker's side of its helpers. */
export interface Pool {
  helpers: Map<number, Helper>;
  /** Nobody is told to serve. */
  stopped: boolean;
  /** A helper was started, for the first time or anew: then the one before is gone. */
  add(number: number, port: MessagePort): void;
  /** Lets a helper serve, if it may. */
  tell(helper: Helper): void;
  /** Sends a setup to all helpers, now and later ones; nobody may be inside of `serve` with another when it is used. */
  give(setup: Setup): void;
  /** Has all helpers take on the first setup; gives what went wrong. */
  start(setup: Setup): Promise<string[]>;
  /** Replaces a helper; resolves when it is gone, or with why it is not. */
  replace(number: number): Promise<string>;
  /** Replaces the helpers that are still inside a run although it has ended. */
  mend(): Promise<void>;
}

/** What is asked of a machine; `tensors` are the inputs, if they are not in memory yet. */
/** `sizes`: of named dimensions; extents that are not there are as long as can be. */
export type Work = { plan: number; sizes?: Sizes; tensors?: Tensor[] };
export interface Machine {
  /** `wanted` asks for outputs in the answer. */
  run(work: Work & { wanted?: Wanted[] }): { milliseconds: number; outputs?: Wanted[] };
  /** Puts the inputs into memory, if there are any. */
  take(work: Work): void;
  call: Call;
}
export type Report = (progress: Progress) => void;
export type Crew = { threads: number; pool: Pool; claim: (pages: number) => Promise<WebAssembly.Memory | null> };

/** The files of one bundle, verified. */
export interface Files {
  /**
   * bundle.json: newest first, the kept copy when the server cannot be reached.  A copy is kept
   * only if it can be read, so that some gateway's own page never replaces a good one.
   */
  pointer<T>(name: string, read: (bytes: Bytes, name: string) => T): Promise<T>;
  /**
   * All of the bundle is here.  Only now its pointer is kept: a download that ends half-way leaves the
   * bundle of before as the one that works offline.  What no pointer leads to any more is deleted.
   */
  settle(): Promise<void>;
  bytes(ref: FileRef): Promise<Bytes>;
  /**
   * Reads a file to its final place: no second copy of it exists in the page.  A kept file had its
   * digest checked before it got its name; it is checked again if it is small (what decides about
   * addresses and code is), or if the page wants it.
   */
  into(ref: FileRef, region: Uint8Array): Promise<void>;
  /**
   * A compiled module, handed out only after its digest was checked.  The network's own response goes
   * to compileStreaming, even if the store has the file: only then does the browser keep (and next
   * time find) the optimised machine code.
   */
  module(ref: FileRef): Promise<{ module: WebAssembly.Module; problem: string }>;
}
export type FilesParts = {
  base: URL;
  store: Store;
  meter: Meter;
  signal: AbortSignal;
  /** Whether kept weights are checked too. */
  verify?: boolean;
};

/** What this origin keeps.  Names stand for whole content whatever happened: page closed, power lost. */
export interface Store {
  readonly on: boolean;
  /** Why nothing is kept, in words; empty while all is well. */
  readonly problem: string;
  has(name: string): Promise<boolean>;
  drop(name: string): Promise<void>;
  /** Fills the region with the kept file; false if there is none of exactly this length. */
  read(name: string, region: Uint8Array): Promise<boolean>;
  /** Keeps verified bytes.  Tabs take turns; a worker that is ended in between leaves no file of this name. */
  keep(name: string, bytes: Uint8Array): Promise<void>;
  /** A small file whose length is known to nobody. */
  find(name: string): Promise<Bytes | null>;
  /** Adds the names of all kept files that a kept pointer leads to, its own included. */
  reach(name: string, found: Set<string>, depth?: number): Promise<Set<string>>;
  /**
   * Deletes files that are old: in this set, or not written for thirty days.  What a pointer of the
   * last thirty days leads to stays.  Whatever goes too much is downloaded again if the server still has it; it never fails.
   */
  tidy(old: Set<string>): Promise<void>;
}

/** Counts the bytes of a load. */
export interface Meter {
  loaded: number;
  cached: number;
  total: number;
  enter(phase: Phase): void;
  /** Negative numbers take back. */
  count(bytes: number, fromCache: boolean): void;
}

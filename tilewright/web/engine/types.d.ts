// The shapes of what passes between the engine's files: the manifest of docs/bundle.md and the facts of a load.
// Here the engine's parts are described, one interface for each; no browser fetches this file.

// In the engine's files they are called T.Name.

export as namespace T;

export type DType = 'f32' | 'f64' | 'i8' | 'u8' | 'i16' | 'i32' | 'i64' | 'bool';
export type FileRef = { file: string; digest: string; bytes: number };
export type Asset = FileRef & { name: string; type: string };
/** Sizes of named dimensions. */
export type Sizes = Record<string, number>;
export type TensorInfo = { name: string; dtype: DType; shape: (number | string)[] };
export type Placed = { name: string; dtype: DType; shape: number[]; address: number; bytes: number };
export type Step = { spec: number; kernel: string; node: string; flops: number; bytes: number };
export type Pointer = { format: number; tool: string; manifest: FileRef };

/** A variant: its code, every plan as this target's hosts read it, and what a host is asked to choose it. */
export type Build = {
  variant: string;
  features: string[];
  code: FileRef;
  plans: FileRef[];
  facts: { registers: number };
};

/** The steps for one combination of buckets, whatever the target; shapes of inputs and outputs in the model's order. */
export type Plan = { dims: Sizes; inputs: number[][]; outputs: number[][]; steps: Step[]; file: FileRef };
/** The same in the memory of this target; `address`: where the image goes. */
export type PlacedPlan = { dims: Sizes; steps: Step[]; address: number; inputs: Placed[]; outputs: Placed[] };
/** With the plan driver, which WebAssembly has. */
export type WasmProgram = Program & { driver: FileRef };
export type State = { name: string; dtype: DType; shape: number[] };

/** A target's part of the manifest. */
export type Section = {
  builds: Build[];
  slots: number;
  memory: number;
  programs: Record<string, FileRef>;
  plans: { address: number; arena_bytes: number; inputs: number[]; outputs: number[] }[];
  kernels: FileRef;
  facts: { memory: MemoryMap; states: number[] };
};

/** A target's part of a bundle as the engine uses it. */
export type Program = {
  builds: Build[];
  driver?: FileRef;
  slots: number;
  memory: MemoryMap;
  plans: PlacedPlan[];
  states: Placed[];
};

export type MemoryMap = {
  bytes: number;
  control: number;
  weights: number;
  arena: number;
  arena_bytes: number;
  scratch: number;
  scratch_bytes: number;
};

export type Manifest = {
  format: number;
  tool: string;
  name: string;
  dims: Record<string, number[]>;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  states: State[];
  weights: { bytes: number; memory: number; shards: FileRef[]; tensors: FileRef };
  kernels: FileRef;
  plans: Plan[];
  targets: Record<string, Section>;
  assets: Asset[];
};

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
export type Work = { plan: number; tensors?: Tensor[] };
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

// Functions of tensors.js.

/** Checks all inputs of a run.  Arrays of the right type are not copied. */
export type CheckInputs = (infos: TensorInfo[], inputs: Record<string, Input>) => { tensors: Tensor[]; sizes: Sizes };
/** What a run shall give, in the shapes of these sizes, and the caller's arrays for it. */
export type CheckOutputs = (infos: TensorInfo[], places: Placed[], sizes: Sizes, into: Record<string, TensorData>) => Wanted[];
/** The index of the smallest plan that holds these sizes; plans are ordered, smallest first. */
export type PickPlan = (plans: { dims: Sizes }[], sizes: Sizes) => number;
/** Per dtype: its array, other array types that are taken, and the range of numbers a conversion may meet. */
export type Kinds = Record<DType, { array: any; also?: string[]; range?: [number, number] }>;
/** What is missing, or was transferred away since it was checked, becomes zeros. */
export type WriteInputs = (buffer: ArrayBufferLike, places: Placed[], tensors: Tensor[]) => void;
export type ReadOutputs = (buffer: ArrayBufferLike, places: Placed[], wanted: Wanted[]) => Required<Wanted>[];
/** The array behind `Engine.input`. */
export type InputArray = (buffer: ArrayBufferLike | undefined, places: Placed[], name: string) => any;
/** Copies the box [0, box) from one row-major array to another. */
export type CopyBox = (to: any, toShape: number[], from: any, fromShape: number[], box: number[]) => void;

// Functions of webgpu.js; its types are those of the browser's API.

export type StoredTensor = { dtype: DType; shape: number[]; stored: string; layout: string; shard: number; offset: number; bytes: number; digest: string };
/** A step as the plan's file has it: the first word of each buffer, the output first. */
export type Dispatched = { slot: number; tiles: number; words: number[] };
export type Dispatch = { pipeline: GPUComputePipeline; bindings: GPUBindGroup; offset: number; groups: [number, number] };
export type ReadPlaces = (places: Placed[]) => Promise<{ trapped: boolean; arrays: any[] }>;
export type DeviceFor = (bytes: number, limit?: number) => Promise<{ device: GPUDevice; adapter: string }>;
export type PipelineOf = (device: GPUDevice, layout: GPUBindGroupLayout, code: string) => Promise<GPUComputePipeline>;
export type PlanOf = (device: GPUDevice, layout: GPUBindGroupLayout, memory: GPUBuffer, pipelines: GPUComputePipeline[], group: number, calls: Dispatched[]) => Dispatch[];
export type Upload = (device: GPUDevice, memory: GPUBuffer, manifest: Manifest, addresses: number[], files: Files) => Promise<void>;
export type Staged = (places: Placed[]) => { buffer: ArrayBuffer; places: Placed[] };
export type WordsOf = (dtype: DType, elements: number) => number;
export type Widen = (dtype: DType, array: any) => any;
export type Narrow = (dtype: DType, words: Uint32Array) => any;
export type Json = (files: Files, ref: FileRef) => Promise<any>;

// Functions inside single files.

/** A module whose only function, `f`, is this expression. */
export type ModuleOf = (result: number, expression: number[]) => Bytes;
/** What the only function of a module says about `x`. */
export type ResultOf = (bytes: Bytes, x?: number) => number;
export type ThreadsFor = (host: HostFeatures, asked?: number) => number;
/** Of the variants whose features the host has and the caller allows, best first: the one that was named, or the first one made for the host's registers, or else the first. */
export type PickVariant = (builds: Build[], host: HostFeatures, limits: Limits) => { build: Build; why: string };
export type WhatIsLost = (host: HostFeatures, build: Build, builds: Build[], of: Losses) => string[];
export type Losses = { threads: number; asked?: number; problems: string[]; cacheProblem: string; codeProblem: string };
/** The entry of this name. */
export type RequireKnown = <Info extends { name: string }>(name: string, infos: Info[], kind: 'input' | 'output' | 'asset' | 'state') => Info;
/** Perhaps the caller's own array. */
export type Convert = (info: TensorInfo, given: any) => TensorData;
/** Whether a plain array's element can be converted. */
export type Fits = (value: unknown, dtype: DType, range?: [number, number]) => boolean;
/** Without a given shape, one unknown dimension can be worked out. */
export type InferShape = (info: TensorInfo, elements: number) => number[];
/** Completes the sizes of named dimensions. */
export type CheckShape = (info: TensorInfo, shape: number[], elements: number, sizes: Sizes) => void;
export type InputError = (info: TensorInfo, problem: string, hint: string, facts: Facts) => Error;
/** Pointer and manifest: enough to say what a bundle is. */
export type OpenBundle = (url: string, meter: Meter, signal: AbortSignal, verify?: boolean) => Promise<{ manifest: Manifest; digest: string; manifestBytes: number; files: Files; store: Store; base: URL }>;
/** The map's memory, and scratch for each further thread. */
export type Allocate = (memory: MemoryMap, threads: number, limit: number | undefined, claim: (pages: number) => any) => Promise<WebAssembly.Memory>;
/** Each file straight to its address, a few at a time. */
/** `end`: of a shard, the bytes of all until there; `arrived` is told when these are in memory. */
export type FillMemory = (parts: { ref: FileRef; address: number; end?: number }[], memory: WebAssembly.Memory, files: Files, arrived: (bytes: number) => void) => Promise<void>;
/** Shards go to `start` and after in a region of `memory` bytes; `arrived` then widens the tensors that end before `end`. */
export type Widener = (manifest: Manifest, files: Files) => Promise<{ start: number; memory: number; arrived(region: Uint8Array, end: number): void }>;
export type Get = (file: string, cache: RequestCache) => Promise<Response>;
/** Chunk by chunk, then checked; `kept` is how its bytes are counted. */
export type Receive = (ref: FileRef, response: Response, region: Uint8Array, kept?: boolean) => Promise<void>;
/** A reader for any body: one that takes the buffer to fill, or else one that brings its own. */
export type ReaderOf = (response: any) => { read(chunk: Bytes): Promise<{ done: boolean; value: Bytes }> };
export type Digest = (bytes: any) => Promise<string>;
export type Corrupt = (message: string, hint: string, facts: Facts) => Error;
export type NetworkError = (file: string, cause: unknown) => Error;
/** `start` gets the worker's name. */
export type StartWorker = (start: (name: string) => Worker, fail: Fail) => Lodged;
export type Fail = (message: string, hint: string, facts?: Facts) => void;
/** A worker, and the lock that it holds while it lives. */
export type Lodged = { worker: Worker; lock: string };
/** Starts the job at once if no other is open. */
export type Enqueue = (job: () => Promise<any>) => Promise<any>;
/** A request whose inputs come first: into memory, or with the message.  Runs may take place `here`. */
/** Requests without an answer, by number. */
export type Pending = Map<number, { resolve: (value: any) => void; reject: (error: unknown) => void }>;
export type Ask = (kind: string, work: any, tensors: Tensor[] | null, here?: Machine | null) => any;
export type Measure = (work: { bucket?: Sizes; runs: number; warmup?: number; only?: number[] | 'all' }) => Promise<any>;
/** Outputs that came with a message, in the arrays that were given for them. */
export type Delivered = (outputs: Wanted[], into: Record<string, any>) => Wanted[];
export type RequireCount = (name: string, value: number, least: number, most?: number) => void;
export type Within = (limit: number, ...promises: (Promise<string> | undefined)[]) => Promise<any>;
/** `limit`: milliseconds until its first word. */
export type Help = (number: number, limit?: number) => Promise<void>;
export type OrAborted = (promise: Promise<any>, signal?: AbortSignal) => Promise<any>;
export type MakeMachine = (plans: PlacedPlan[], memory: WebAssembly.Memory, driver: Driver, threads: number, tuned?: Kernel[]) => Machine;
/** Milliseconds of steps of a plan, by default of all. */
export type Call = (plan: number, first?: number, last?: number) => number;
export type Stopped = (plan: number, code: number, trap: string) => Error;
export type Parse = (bytes: Uint8Array, place: string, kinds: Record<string, string>) => any;
export type RequireKeys = (value: any, kinds: Record<string, string>, place: string) => void;
export type ReadPointer = (bytes: Uint8Array, place: string) => Pointer;
export type ReadManifest = (bytes: Uint8Array, place: string) => Manifest;
/** The files that a load needs, each content once. */
export type NeededFiles = (program: WasmProgram, build: Build, shards: FileRef[]) => FileRef[];
export type SectionOf = (manifest: Manifest, target: string) => any;
export type ProgramOf = (manifest: Manifest) => WasmProgram;
export type PlaceAll = (manifest: Manifest, places: Section['plans'], states: number[]) => { plans: PlacedPlan[]; states: Placed[] };
/** Tensors with their shapes and addresses, which lists give in the same order. */
export type PlaceEach = (infos: { name: string; dtype: DType }[], shapes: number[][], addresses: number[]) => Placed[];
export type MakeStates = (places: Placed[], enqueue: Enqueue, link: Link, live: () => void) => States;
/** In the engine's memory; without `data` it reads. */
export type Exchanged = (buffer: ArrayBufferLike, place: Placed, data?: any) => any;
/** The exports of a module; modules fill the table that they are given. */
export type Made = (module: WebAssembly.Module, table: WebAssembly.Table) => Promise<any>;
export type Instantiate = (setup: Setup, worker: number) => Promise<Driver>;
/** Ends the run that is under way because this worker will not go on with it. */
export type LeaveRun = (words: Int32Array, worker: number, code: number) => void;
export type Nearby = (tuned: Kernel[]) => Promise<Machine | null>;
/** `near` runs short plans in the page, if memory is shared; `nearby` makes another one. */
export type MakeEngine = (link: Link, info: Info, parts: { manifest: Manifest; program: Program }, nearby: Nearby, near: Machine | null) => Engine;
export type OpenLink = (onProgress: (progress: Progress) => void, threads: number, device: Device) => Link;
export type BundleFiles = (parts: FilesParts) => Files;
export type MakeMeter = (report: (progress: Progress) => void) => Meter;
export type RegionOf = (buffer: ArrayBufferLike, place: Placed) => any;
export type Take = (setup: Setup | null) => Promise<void>;
/** Null if somebody else has it open, or outside of a worker. */
export type OpenAccess = (file: any, options?: object) => Promise<any>;
/** Steps of a plan, or whole runs of it, in the engine's worker. */
export type MeasureLoaded = (bundle: WasmLoaded, work: MeasureWork) => Times | { steps: StepTime[] };
export type IsCount = (value: any, least?: number) => boolean;
/** The kernels in use after these changes; throws a typed error if one of them cannot be. */
export type Merged = (program: Program, kernels: Kernel[], changes: Change[]) => Kernel[];
export type Drawn = (original: Uint32Array, plan: PlacedPlan, number: number, slots: number, kernels: Kernel[]) => Uint32Array;
/** What is in use after the changes: kernels, and the machine for the page's own runs. */
export type Swapped = (link: Link, program: Program, nearby: Nearby, kernels: Kernel[], changes: Change[]) => Promise<[Kernel[], Machine | null]>;
export type HandOver = (pool: Pool, setup: Setup, back: Setup) => Promise<string[]>;
export type Resume = (pool: Pool, words: Int32Array) => void;
export type Exchange = (bundle: WasmLoaded, pool: Pool, kernels: Kernel[]) => Promise<void>;
/** Large results move to the main thread instead of being copied. */
export type LargeParts = (value: any) => Transferable[];

// The shapes of what passes between the engine's files: the manifest of docs/bundle.md and the facts of a load.
// Types only: no browser fetches this file.

export type DType = 'f32' | 'f64' | 'i8' | 'u8' | 'i32' | 'i64' | 'bool';
export type FileRef = { file: string; digest: string; bytes: number };
export type Asset = FileRef & { name: string; type: string };
/** Sizes of named dimensions. */
export type Sizes = Record<string, number>;
export type TensorInfo = { name: string; dtype: DType; shape: (number | string)[] };
export type Placed = { name: string; dtype: DType; shape: number[]; address: number; bytes: number };
export type Step = { slot: number; kernel: string; node: string; flops: number; bytes: number };
export type Pointer = { format: number; tool: string; manifest: FileRef };

/** A variant: its module, an image per plan, and what a host is asked to choose it. */
export type Code = FileRef & {
  variant: string;
  features: string[];
  registers: number;
  images: FileRef[];
};

export type Plan = {
  dims: Sizes;
  /** Where the images of this plan go. */
  address: number;
  inputs: Placed[];
  outputs: Placed[];
  arena_bytes: number;
  steps: Step[];
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
  memory: MemoryMap;
  weights: { bytes: number; shards: FileRef[] };
  driver: FileRef;
  code: Code[];
  slots: number;
  kernels: FileRef;
  plans: Plan[];
  assets: Asset[];
};

export type HostFeatures = {
  simd: boolean;
  relaxed_simd: boolean;
  /** Vector registers that code can use: 15 on x86, 32 elsewhere. */
  registers: number;
  isolated: boolean;
  secure: boolean;
  sharedMemory: boolean;
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

/** Milliseconds since the load began at which each part was there; `warmup` is time spent in kernels. */
export type Timings = { manifest: number; code: number; weights: number; warmup: number; ready: number };

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
/** Where a plan's inputs and outputs lie. */
export type Places = { inputs: Placed[]; outputs: Placed[] };

export type Driver = {
  run: (plan: number, first: number, last: number, workers: number) => number;
  abort: (workers: number) => number;
  serve: (worker: number) => void;
};
/** What each worker instantiates; kernels first, then the driver. */
export type Setup = {
  modules: WebAssembly.Module[];
  memory: WebAssembly.Memory;
  slots: number;
  scratch: number;
  scratchBytes: number;
};
export type Kernel = (args: number, first: number, last: number) => void;

export type LoadOptions = Limits & {
  /** Called a few times per second. */
  onProgress?: (progress: Progress) => void;
  /** Ends the load and its worker. */
  signal?: AbortSignal;
};
export type Info = Awaited<ReturnType<typeof import('./loader.js').loadBundle>>['info'];

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

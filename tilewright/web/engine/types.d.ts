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
  /** The relaxed dot product of bytes reads its second operand as unsigned, as on x86. */
  dot_u8: boolean;
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

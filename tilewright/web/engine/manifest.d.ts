// Types of a bundle's files (docs/bundle.md); no browser fetches this file.

export type DType = 'f32' | 'f64' | 'i8' | 'u8' | 'i16' | 'i32' | 'i64' | 'bool';
export type Half = 'f16' | 'bf16';
/** Declared types of inputs, outputs and states; in memory f16 and bf16 are f32. */
export type Declared = DType | Half;
export type FileRef = { file: string; digest: string; bytes: number };
export type Asset = FileRef & { name: string; type: string };
/** Sizes of named dimensions, such as `{ n: 32 }`. */
export type Sizes = Record<string, number>;
/** Open dimensions of the shape have a name instead of a size. */
export type TensorInfo = { name: string; dtype: Declared; shape: (number | string)[] };
/** A tensor at a byte address of the bundle's memory.  `annex`: on a GPU the number of its further buffer, from 1 on; otherwise the model's own buffer. */
export type Placed = { name: string; dtype: DType; declared: Declared; shape: number[]; address: number; bytes: number; annex?: number; compact?: boolean; growth?: Growth };
/** Where states lie that grow by blocks of `rows` rows: at most `most` blocks of `block` bytes, from the address `behind` on, which depends on the number of threads. */
export type Growth = { rows: number; block: number; most: number; behind: number };
/** An index that a kernel checks: the ONNX node and operator that use it, and the axis; `least`: the smallest valid index, if that is not 0. */
export type StepCheck = { node: string; op: string; axis: number; length: number; least?: number };
/** A step of a plan: `spec` is its kernel specification's index in the manifest's list, `node` the ONNX node. */
export type Step = { spec: number; kernel: string; node: string; flops: number; bytes: number; checks?: StepCheck[] };
export type Pointer = { format: number; tool: string; manifest: FileRef; name?: string; serial?: number; signature?: string };

/** A code variant: the features it needs, its code, and an image of every plan.  `facts` rank the variants that a host can run. */
export type Build = {
  variant: string;
  features: string[];
  code: FileRef;
  plans: FileRef[];
  /** `needs`: on WebGPU, by slot, the features that its kernel needs. */
  facts: { registers: number; needs?: Record<string, string[]> };
};

/** The steps for one combination of buckets, for all targets; shapes of inputs and outputs in the model's order. */
export type Plan = { dims: Sizes; inputs: number[][]; outputs: number[][]; steps: Step[]; file: FileRef };
/** The same in the memory of this target; `address`: of the image. */
export type PlacedPlan = { dims: Sizes; extents: string[]; steps: Step[]; address: number; inputs: Placed[]; outputs: Placed[]; growth?: PlanGrowth };
/** The rows that a run of this plan needs: at least `least`, and one more than the word at the address `last` says. */
export type PlanGrowth = { last: number; least: number; of: Growth };
/** For WebAssembly, with the plan driver. */
export type WasmProgram = Program & { driver: FileRef };
export type State = { name: string; dtype: Declared; shape: number[] };

/** A target's section of the manifest; lists are in the order of the manifest's own. */
export type Section = {
  builds: Build[];
  slots: number;
  memory: number;
  programs: Record<string, FileRef>;
  plans: { address: number; arena_bytes: number; inputs: number[]; outputs: number[] }[];
  kernels: FileRef;
  facts: { memory: MemoryMap; states: number[]; compact?: boolean; block?: number };
};

/** A target's section joined with the plans, as the engine uses it. */
export type Program = {
  builds: Build[];
  driver?: FileRef;
  slots: number;
  memory: MemoryMap;
  plans: PlacedPlan[];
  states: Placed[];
  growth?: Growth;
};

/** Byte addresses and sizes of the regions of a target's memory. */
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
  /** Dimensions whose size each run sets, up to their only bucket. */
  extents: string[];
  inputs: TensorInfo[];
  outputs: TensorInfo[];
  states: State[];
  /** How all states grow: a run with `last` in `input` and n new rows, the size of `dim`, needs max(last + 1, n) rows. */
  growth?: { input: string; dim: string; rows: number };
  weights: { bytes: number; memory: number; shards: FileRef[]; tensors: FileRef };
  kernels: FileRef;
  plans: Plan[];
  targets: Record<string, Section>;
  assets: Asset[];
};

// Types of functions that belong to one file of the engine each; no browser fetches this file.

import type { EngineError } from './errors.js';
import type { Health } from './gpu_device.js';
import type {
  Build, Declared, DType, FileRef, Growth, Half, Manifest, Placed, PlacedPlan, PlanGrowth, Pointer, Program, Section, Sizes,
  StepCheck, TensorInfo, WasmProgram,
} from './manifest.js';
import type {
  Adapter, Again, BufferPlace, Bytes, Change, Choice, Crew, Device, Driver, Engine, ErrorCode, ErrorFacts, Files, FilesParts, Fit, FrameInput, GenerateOptions, HostFeatures, Info, Input, Jobs, TunedKernel,
  Limits, Channel, LoadBackend, LoadOptions, PlanRunner, MeasureWork, Meter, Pool, Progress, RunOptions, RunResult, Setup, States, StepTime, Store, Tensor, TensorData, TunedImages,
  Times, Wanted, WasmLoaded,
} from './types.js';

// Functions of tensors.js.

/** Checks all inputs of a run; throws `input`.  Arrays of the right type are not copied.  `sizes`: those of the named dimensions. */
export type CheckInputs = (info: Pick<Info, 'inputs' | 'dims'>, inputs: Record<string, Input>) => { tensors: Tensor[]; sizes: Sizes };
/** The outputs of a run, with shapes for these sizes and the caller's `into` arrays; throws `input` if an array does not fit. */
export type CheckOutputs = (infos: TensorInfo[], places: Placed[], sizes: Sizes, into: Record<string, any>) => Wanted[];
/** The index of the smallest plan that fits these sizes (plans are sorted, smallest first); throws `input` if none does. */
export type PickPlan = (plans: { dims: Sizes }[], sizes: Sizes) => number;
/** Per dtype: its typed array, other array types that are accepted, and the range of its integers. */
export type Kinds = Record<Declared, { array: any; also?: string[]; range?: [number, number] }>;
/** Copies inputs to their places.  Missing tensors and padding become zeros, and so do arrays detached since the check. */
export type WriteInputs = (buffer: ArrayBufferLike, places: Placed[], tensors: Tensor[]) => void;
/** Copies outputs from their places, without padding, into the wanted arrays or fresh ones. */
export type ReadOutputs = (buffer: ArrayBufferLike, places: Placed[], wanted: Wanted[]) => Required<Wanted>[];
/** Numbers in the declared type.  `array`: the array to fill, otherwise a new one; only f16 and bf16 are converted. */
export type AsDeclared = (dtype: Declared, whole: any, array?: any) => any;
/** Loads the conversions for f16 and bf16, if an input, output or state has such a type. */
export type UseHalves = (manifest: Pick<Manifest, 'inputs' | 'outputs' | 'states'>) => Promise<void>;
/** Extents by number: those of the run's `sizes`; others are at their largest. */
export type SizesOf = (plan: PlacedPlan, sizes?: Sizes) => number[];
/** The array of a tensor, with zeros. */
export type ZerosOf = (tensor: { dtype: Declared; shape: number[] }) => any;
/** The array behind `Engine.input`. */
export type InputArray = (buffer: ArrayBufferLike | undefined, places: Placed[], name: string) => any;
/** Copies the box [0, box) from one row-major array to another. */
export type CopyBox = (to: any, toShape: number[], from: any, fromShape: number[], box: number[]) => void;

// Functions of frames.js, gpu_frames.js and gpu_buffers.js.

/** Runs the engine's own `run` with frames, or buffers, replaced by inputs that the device accepts. */
export type RunOn = (run: (inputs: Record<string, any>, options: RunOptions) => Promise<RunResult>, info: Info, inputs: Record<string, Input>, options: RunOptions, link: Channel) => Promise<RunResult>;
/** Left, top, width and height. */
export type Box = [number, number, number, number];
/** The position of a picture of this size (width, height) in an input of that size. */
export type PlaceOf = (fit: Fit, size: [number, number], input: [number, number]) => Box;
/** `last`: channels are the last axis; `box`: the whole picture's position in the input. */
export type Picture = { name: string; frame: FrameInput['frame']; shape: number[]; width: number; height: number; channels: number; last: boolean; scale: number[]; bias: number[]; box: Box };
export type PictureOf = (info: TensorInfo, input: FrameInput) => Picture;
/** Writes a frame into an input's memory and closes it; null: a repeated run, whose frame was written before. */
export type TakeFrame = (place: Placed, shape: number[], picture: Omit<Picture, 'frame'> & { pixels: VideoFrame | null }) => Promise<void>;
/** A buffer, and the other fields that a caller may give with it; null if it is not a buffer. */
export type BufferIn = (given: any) => (Required<BufferPlace> & { shape?: number[]; dtype?: Declared }) | null;
export type BufferInputOf = (info: TensorInfo, given: Required<BufferPlace> & { shape?: (number | string)[]; dtype?: Declared }) => Tensor;
export type FrameTaker = (device: GPUDevice, memory: GPUBuffer) => Promise<TakeFrame>;

// Functions of webgpu.js and of what it needs, with the browser's own WebGPU types.

/** `theirs`: the device is the caller's. */
export type OnGpu = { device: GPUDevice; adapter: Adapter; health: Health; theirs: boolean };
/** Bytes of the model's own buffer and its annexes (`own`), of its banks, and of all; `lying`: the places of tensors. */
export type ModelOnGpu = (manifest: Manifest) => { build: Build; program: Program; own: number[]; banks: number[]; total: number; lying: Parameters<Upload>[3] };
/** `buffers`: the model's own, then its annexes. */
export type MemoryOnGpu = (device: GPUDevice, model: ReturnType<ModelOnGpu>) => Promise<{ buffers: GPUBuffer[]; banks: GPUBuffer[] }>;
export type PlansOnGpu = (on: OnGpu, layout: GPUBindGroupLayout, program: Program, calls: GpuCall[][], pipelines: GPUComputePipeline[], memory: Awaited<ReturnType<MemoryOnGpu>>) => Promise<{ plans: ReturnType<DispatchesOf>[]; carrier: GPUBuffer }>;
/** `listed`: the contents of each plan's file. */
export type ChooseKernels = (texts: string[], listed: any[], model: ReturnType<ModelOnGpu>, meter: Meter) => Promise<GpuCall[][]>;
export type MakePipelines = (slots: number[], texts: string[], lack: Lack, meter: Meter) => Promise<string[]>;
export type MeasureOnGpu = (work: MeasureWork) => Promise<Times | { steps: StepTime[]; read?: Bytes }>;
export type RequireMeasurable = (work: Pick<MeasureWork, 'runs' | 'only' | 'repeat' | 'inOrder'> & { warmup: number }) => void;
export type RunTimes = (plan: number, runs: number, warmup: number, repeat?: number) => Promise<Times>;
export type StepTimes = (plan: number, only: NonNullable<MeasureWork['only']>, work: Pick<MeasureWork, 'runs' | 'read' | 'inOrder'>) => Promise<{ steps: StepTime[]; read?: Bytes }>;
/** An entry of the manifest's tensor file; `offset`: bytes from the start of all shards together. */
export type StoredTensor = { dtype: DType; shape: number[]; stored: string; compact?: boolean; scale: number | null; zero: number | null; layout: string; shard: number; offset: number; bytes: number; digest: string };
/**
 * A step as in the plan's file.  `tiles`: invocations, in workgroups of `group`; `words`: the first word of each buffer, the output first. In `tiles` and
 * `scalars`, numbers that depend on an extent are given as the fields of `Count` (kernel/extents.py).
 */
export type Dispatched = { slot: number; tiles: number | number[]; group: number; words: number[]; scalars: (number | number[])[]; bank?: number; annexes?: number[] };
/** A kernel that can run a step; lists of them are sorted best first, and the device runs the first that it can. */
export type Way = Omit<Dispatched, 'words' | 'bank' | 'annexes'>;
/** The same with kernels that need features.  `joined`: kernels that run `steps` steps together, this one and the next ones. */
export type Listed = Dispatched & { better?: Way[]; joined?: Pick<Dispatched, 'words' | 'bank' | 'annexes'> & { steps: number; ways: Way[] } };
/** A step with the kernel that the device runs, and with the kernel that joins it to others, if any. */
export type GpuCall = Dispatched & { joined?: Dispatched & { steps: number } };
/** A dispatch that runs the steps [first, last). */
export type GpuPart = { first: number; last: number; dispatch: Dispatch };
export type Dispatch = { pipeline: GPUComputePipeline; bindings: GPUBindGroup; groups: [number, number] };
/**
 * `from`: a buffer other than the model's; `carries`: the next run may use the values read; `foreign`: with the caller's buffers; `since`: the device's errors
 * when the work began; `encoder`: earlier recorded work.
 */
export type ReadPlaces = (places: Placed[], options?: { wanted?: Wanted[]; from?: GPUBuffer[]; carries?: boolean; foreign?: boolean; since?: number; encoder?: GPUCommandEncoder }) => Promise<{ trapped: number[]; outputs: Required<Wanted>[] }>;
/** `problem`: the device's error for the work, or null. */
export type Scoped = <Value>(device: GPUDevice, work: () => Value) => { value: Value; problem: Promise<GPUError | null> };
export type RequireMade = (problem: Promise<GPUError | null> | null, what: string, bytes: number, hint: string) => Promise<void>;
export type Soundness = (device: GPUDevice) => { count(): number; require(since?: number): void };
export type KeptStates = (device: GPUDevice, memory: GPUBuffer[], places: Placed[]) => Promise<() => void>;
export type Padded = (place: Placed, tensor?: Tensor) => any;
export type InRow = (places: Placed[]) => Placed[];
/** `from` and `to`: one buffer, or the model's own and its annexes. */
export type CopyPlaces = (encoder: GPUCommandEncoder, from: GPUBuffer[], places: Placed[], to: GPUBuffer[], others: Placed[]) => void;
export type RequireBuffer = (tensor: Pick<Wanted, 'name' | 'dtype' | 'shape'>, given: Required<BufferPlace>, usage: 'COPY_SRC' | 'COPY_DST') => void;
/** The part of a typed array's interface that `copyBox` uses. */
export type Elements = { buffer: GPUBuffer; start: number; count: number; subarray(first: number, last?: number): Elements; set(from: Elements): void };
export type ElementsIn = (encoder: GPUCommandEncoder, buffer: GPUBuffer, each: number, start: number, count?: number) => Elements;
/** Records a copy; then drops the reference to the buffer of `given`, which is the caller's again. */
export type CopyIn = (encoder: GPUCommandEncoder, memory: GPUBuffer, place: Placed, shape: number[], given: { buffer: GPUBuffer | null; offset: number }) => void;
export type CopyOut = (encoder: GPUCommandEncoder, memory: GPUBuffer, place: Placed, shape: number[], to: Required<BufferPlace>) => void;
export type InTurn = <Value>(job: () => Promise<Value>) => Promise<Value>;
/** `whole`: in one submission; `encoder`: earlier recorded work. */
export type RecordSteps = (plan: number, first?: number, last?: number, times?: number, options?: { timed?: Stamps; whole?: boolean; encoder?: GPUCommandEncoder }) => GPUCommandEncoder;
/** Time stamps before and after each of `passes` passes; `resolve` writes them to `into`. */
export type Stamps = { passes: number; into: GPUBuffer; writes: (number: number) => GPUComputePassTimestampWrites; resolve: (encoder: GPUCommandEncoder) => void };
export type StampsOf = (device: GPUDevice, passes: number) => Stamps;
export type StampedSteps = (plan: number, first: number, last: number, times: number, passes?: number) => Promise<number[]>;
/** A kernel that replaces the bundle's own; `tiles`: its invocations, `lanes`: elements that it loads at once. */
export type GpuTuned = { pipeline: GPUComputePipeline; tiles: number; group: number; lanes: number };
export type FindAdapter = (powerPreference?: GPUPowerPreference) => Promise<{ adapter: GPUAdapter; about: Adapter }>;
export type DeviceFor = (bytes: number, limits?: Limits, own?: GPUDevice | null) => Promise<{ device: GPUDevice; adapter: Adapter }>;
export type AboutGpu = (source: GPUAdapter | GPUDevice, info: Partial<GPUAdapterInfo>) => Adapter;
export type FeaturesOf = (source: GPUAdapter | GPUDevice, info: Partial<GPUAdapterInfo>) => string[];
/** Bytes of the buffers besides the model's own; `of`: for each tensor or state the number of its buffer, from 1 on. */
export type Further = { sizes: number[]; of: number[] };
export type FurtherOf = (given: any) => Further;
/** `banks` and `annexes`: their numbers besides the model's own buffer. */
export type LayoutOf = (device: GPUDevice, banks?: number, annexes?: number) => GPUBindGroupLayout;
export type PipelineOf = (device: GPUDevice, layout: GPUBindGroupLayout, code: string) => Promise<GPUComputePipeline>;
/** By slot, the features that its kernel needs, and those of them that the device lacks; `names`: all lacking ones. */
export type Lack = { needs: Record<string, string[]>; bySlot: string[][]; names: string[] };
export type Lacking = (build: Build, slots: number, features: string[]) => Lack;
export type Resolved = (calls: Listed[], lack: Lack) => GpuCall[];
export type SlotsOf = (plans: GpuCall[][]) => number[];
/** `path`: the plan's file; `memory`: its bytes. */
export type CallsOf = (calls: any, path: string, plan: Pick<PlacedPlan, 'steps' | 'extents' | 'dims'>, lack: Lack, memory: number, banks?: number[], annexes?: number[]) => GpuCall[];
export type DispatchesOf = (device: GPUDevice, layout: GPUBindGroupLayout, memory: GPUBuffer, pipelines: GPUComputePipeline[], calls: GpuCall[], steps: { spec: number }[], further?: { banks: GPUBuffer[]; annexes: GPUBuffer[] }) => {
  /** The dispatches of a whole run. */
  parts: () => GpuPart[];
  /** The dispatches of the steps [first, last); joined steps share one only if all of them are among these. */
  dispatches: (first: number, last: number) => Dispatch[];
  /** Exchanges kernels, by number; `resize` must follow. */
  use: (kernels: Map<number, GpuTuned>) => void;
  resize: (sizes: number[]) => void;
};
export type NumberAt = (number: number | number[], sizes: number[]) => number;
/** `buffers`: the model's own, then its banks; `bankOf`: the bank of each tensor; empty without banks. */
export type Upload = (device: GPUDevice, buffers: GPUBuffer[], manifest: Manifest, places: { addresses: number[]; bankOf: number[]; halves: number[]; packed: number[] }, files: Files) => Promise<void>;
export type RequireRoom = (place: Pick<Placed, 'name' | 'dtype' | 'shape' | 'address'>, bytes: number) => void;
export type WordsOf = (dtype: Declared, elements: number) => number;
export type Widen = (dtype: DType, array: any) => any;
export type Json = (files: Files, ref: FileRef) => Promise<any>;

/** A WGSL function: its letters, those that it executes, and how often it calls others. */
export type Letters = { length: number; own: number; calls: [string, number][] };
export type Summed = (functions: Map<string, Letters>, ownOf: (letters: Letters) => number, timesOf: (often: number) => number) => number;
/** The objection to a kernel's text, or ''; `tiles`: its invocations; `features`: of the device. */
export type GpuObjectionTo = (bytes: Bytes, tiles: number, features?: string[]) => string;

// Functions of generate.js.

export type GenerateSizes = (engine: Engine) => { rows: number[]; room: number };
export type GenerateRun = (data: number[], count: number) => Promise<RunResult>;
export type GenerateParts = (ids: number[], past: number, rows: number[], room: number) => number[][];
export type Generate = (engine: Engine, prompt: number[], options?: GenerateOptions) => AsyncGenerator<number, void, void>;

// Functions of devices.js, auto.js, restart.js and zero_inputs.js.

/** The engine's own `load`. */
export type LoadHere = (url: string, options?: LoadOptions, open?: OpenChannel) => Promise<Engine>;
export type LoadOn = (load: LoadHere, url: string, options: LoadOptions, device: any) => Promise<Engine>;
export type LoadFastest = (load: LoadHere, url: string, options: LoadOptions) => Promise<Engine>;
/** `heard` is called on each progress. */
export type StartOn = (device: Device, stop?: AbortController, heard?: () => void) => Promise<Engine>;
export type StartedAgain = (start: StartOn, device: Device) => Promise<Engine | null>;
export type Chosen = (url: string, limits: Limits & { bucket: Sizes; software: boolean }, start: StartOn, onProgress: (progress: Progress) => void) => Promise<Choice & { engine: Engine }>;
/** `failure`: the error of a run; then nothing was measured. */
export type Compared = (engines: Record<Device, Engine>, bucket: Sizes) => Promise<Pick<Choice, 'chosen' | 'why'> & { milliseconds?: Choice['milliseconds']; failure?: Error }>;
/** A way to start a new engine, and what to do with it; `start` may resolve with null instead of rejecting. */
export type Place = { start: () => Promise<Engine | null>; then: (fresh: Engine) => Engine };
export type PlaceAfter = (message: string) => Place;
/** `failure`: the error if there are no places. */
export type FirstStarted = (places: Place[], failure?: unknown) => Promise<Engine>;
/**
 * How an engine continues after its device was lost.  `losses`: earlier losses, which `tell` adds to its `info`; `places`: where it may continue after another
 * loss, best first, with `same` for a new device; `elsewhere`: the place where no device can be lost.
 */
export type Recovery = { losses: number; tell: (info: Info) => Info; places: (error: Error, same: () => Promise<Engine>) => Place[]; elsewhere?: PlaceAfter };
export type Prepared = (engine: Engine, recovery: Recovery) => Engine;
/** `loadWasm`: loads the bundle on WebAssembly; `losses`: devices lost so far. */
export type FromDeviceToWasm = (choice: Choice, loadWasm: () => Promise<Engine>, losses?: number) => Recovery;
/** `states`: a sentence about states. */
export type OnNewDevices = (states: string, losses: string[]) => Recovery;
/**
 * A new start.  `end`: ends the old engine; `begin`: loads the new one; `isOver`: whether the page has disposed of its engine meanwhile, which rejects with the
 * code `refusal`; `carry`: gives the new one what must outlive the old one; `tells`: call `onlost`; default: after a loss.
 */
export type NewStart = { end: () => void; begin: () => Promise<Engine>; isOver: () => boolean; refusal: ErrorCode; carry?: (fresh: Engine) => Promise<void>; tells?: boolean };
export type StartAgain = (engine: Engine, how: NewStart) => Promise<void>;
export type BareOf = (engine: Jobs) => { bare: Jobs; lost: () => Error | null };
export type NotingLoss = <Given extends any[], Result>(job: (...given: Given) => Promise<Result>) => (...given: Given) => Promise<Result>;
/** `clear`: there were enough warm runs of both, and every run of the chosen device was faster than every run of the other. */
export type Judged = { chosen: Device; milliseconds: Record<Device, number>; clear: boolean };
export type JudgeTimes = (times: Record<Device, number[]>) => Judged;
/** `late`: the device whose last run was not waited for; its time is a lower bound. */
export type Race = (runs: Record<Device, () => Promise<unknown>>, now?: () => number) => Promise<Judged & { late?: Device }>;
/** `tells`: call the page's `onlost`. */
export type Renew = (engine: Engine, fresh: Engine, tells?: boolean) => void;
export type UnlessSilent = (timeout: number, start: (stop: AbortController, heard: () => void) => Promise<Engine>) => Promise<Engine | null>;
export type RequireWhole = (engine: Engine, message: string) => void;
/** The engine method of this name, which starts over on a new engine if needed. */
export type Repeating = (name: keyof Jobs) => (...given: any[]) => Promise<any>;
export type IsLost = (error: any) => boolean;
export type Recovering = (engine: Engine) => Engine;
export type Recalled = (url: string, basis: string) => Promise<Choice | null>;
export type Remembered = (url: string, basis: string, choice: Choice) => Promise<void>;
export type ZeroInputs = (info: Info, bucket?: Sizes) => Record<string, { data: any; shape: number[] }>;

// Functions of the other files.

/** A Wasm module that exports `f`, a function of an f32 with this body. */
export type ModuleOf = (result: number, expression: number[]) => Bytes;
/** Calls a module's `f`. */
export type ResultOf = (bytes: Bytes, x?: number) => number;
/** Number of workers for runs: 1 without isolation; throws `input` if the number asked for is out of range. */
export type ThreadsFor = (host: HostFeatures, asked?: number) => number;
/**
 * Chooses among the variants whose features the host has and the caller allows: the named one, else the first made for
 * the host's registers, else the first (builds are sorted, best first).  Throws `unsupported-host` if there is none.
 */
export type PickVariant = (builds: Build[], host: HostFeatures, limits: Limits) => { build: Build; why: string };
export type WhatIsLost = (host: HostFeatures, build: Build, builds: Build[], of: Losses) => string[];
export type Losses = { threads: number; asked?: number; problems: string[]; cacheProblem: string; codeProblem: string };
/** The entry of this name; throws `input` if there is none. */
export type RequireKnown = <Info extends { name: string }>(name: string, infos: Info[], kind: 'input' | 'output' | 'asset' | 'state' | 'option', of?: string) => Info;
/** A typed array of the tensor's dtype: the caller's own if it already is one. */
export type Convert = (info: TensorInfo, given: any, kind?: 'Input' | 'State') => any;
/** Whether an element of a plain array can be converted without loss. */
export type Fits = (value: unknown, dtype: Declared, range?: [number, number]) => boolean;
/** The shape of an array without one: at most one dimension may be open. */
export type InferShape = (info: TensorInfo, elements: number) => number[];
/** Checks a shape against the manifest, and adds the sizes of its named dimensions to `sizes`. */
export type CheckShape = (info: TensorInfo, shape: number[], elements: number, sizes: Sizes, dims: Record<string, number[]>) => void;
export type InputError = (info: { name: string }, problem: string, hint: string, facts: ErrorFacts, kind?: 'Input' | 'Output' | 'State') => Error;
/** Reads bundle.json and the manifest. */
export type Inspect = (url: string | URL, options?: Pick<Limits, 'key' | 'name' | 'verify'>) => Promise<Manifest & { digest: string }>;
export type ReadManifestOf = (...parts: Parameters<Inspect>) => ReturnType<Inspect>;
export type RequireSigned = (key: string, pointer: Pointer, expected: string | undefined, store: Pick<Store, 'find' | 'keep'> | null, EngineError: typeof import('./errors.js').EngineError) => Promise<void>;
export type RequireSignature = (key: string, statement: string, signature: unknown, EngineError: typeof import('./errors.js').EngineError, what: string, hint: string, facts: ErrorFacts) => Promise<void>;
export type OpenBundle = (url: string, meter: Meter, signal: AbortSignal, limits: Pick<Limits, 'verify' | 'key' | 'name'>) => Promise<{ manifest: Manifest; digest: string; manifestBytes: number; files: Files; store: Store; base: URL }>;
/** Memory of `bytes` bytes, which may grow to `most`.  `limit` in bytes; rejects with `memory-limit`. */
export type Allocate = (bytes: number, most: number, limit: number | undefined, claim: Crew['claim']) => Promise<WebAssembly.Memory>;
/** Grows memory to `bytes` bytes; throws `memory-limit`. */
export type Reach = (memory: WebAssembly.Memory, bytes: number) => void;
/** Grows memory to what a run needs. */
export type ReachFor = (memory: WebAssembly.Memory, growth: PlanGrowth) => void;
/** The rows of each matrix that a block has: the first element in the block and in the whole state, and how many elements. */
export type PartsOfBlock = (place: Placed, block: number) => number[][];
/**
 * Reads each file directly to its address, several in parallel.  `end`: of a shard, the bytes of all shards up to its end; `arrived` is called when these are
 * in memory.
 */
export type FillMemory = (parts: { ref: FileRef; address: number; end?: number }[], memory: WebAssembly.Memory, files: Files, arrived: (bytes: number) => void) => Promise<void>;
/** Shards are loaded at `start` and after in a region of `memory` bytes; `arrived` then converts the tensors that end before `end`. */
export type Arrivals = { start: number; memory: number; arrived(region: Uint8Array, end: number): void };
export type Widener = (manifest: Manifest, files: Files) => Promise<Arrivals>;
/** Converts a tensor's bytes in files to f32, returned as bytes. */
export type Widened = (at: number, given: Uint8Array) => Uint8Array;
export type Widening = (listed: StoredTensor[], memory: number, start: number) => Arrivals;
/** Scales or zero points; `steps`: the distance in `numbers` between neighbours along each axis of a tensor. */
export type Part = { numbers: any; steps: number[] };
export type PartOf = (number: number | null, shape: number[]) => Part;
/** Reads an element of a tensor in a file, by its place. */
export type ReadAt = (place: number) => number;
export type WidenIntegers = (array: any, read: ReadAt, shape: number[], zero: Part, scale: Part) => void;
export type Get = (file: string, cache: RequestCache, ends?: AbortSignal) => Promise<Response>;
/**
 * Reads a response into `region` and verifies length and digest; returns its bytes.  `kept`: count them as cached; `open`: there is no known digest, and the
 * length is only an upper limit.
 */
export type Receive = (ref: FileRef, response: Response, region: Uint8Array, kept?: boolean, open?: boolean) => Promise<number>;
/** A reader of the body: BYOB (it fills the given chunk) if supported, else a default one, which ignores the chunk. */
export type ReaderOf = (response: any) => { read(chunk: Bytes): Promise<{ done: boolean; value: Bytes }> };
/** SHA-256 as 64 hex digits. */
export type Digest = (bytes: any) => Promise<string>;
export type Corrupt = (message: string, hint: string, facts: ErrorFacts) => Error;
export type NetworkError = (file: string, cause: unknown) => Error;
export type StartWorker = (start: (name: string) => Worker, fail: Fail) => Lodged;
export type Fail = (message: string, hint: string, facts?: ErrorFacts) => void;
/** A worker, and the Web Lock that it holds while it lives. */
export type Lodged = { worker: Worker; lock: string };
/** Runs jobs one after the other, except jobs that may overlap; starts a job synchronously if none is open. */
export type Enqueue = (job: () => Promise<any>, overlaps?: unknown) => Promise<any>;
/** Requests without an answer yet, by id. */
export type Pending = Map<number, { resolve: (value: any) => void; reject: (error: unknown) => void }>;
/** Sends a request to the worker, or runs it on the machine `here`.  Inputs go into shared memory if there is any, otherwise into the message. */
export type Ask = (kind: string, work: any, tensors: Tensor[] | null, here?: PlanRunner | null) => any;
export type Measure = (of: string, work: { bucket?: Sizes; runs: number; warmup?: number; only?: number[] | 'all'; repeat?: number; inOrder?: boolean }) => Promise<any>;
/** Copies outputs from a message into the caller's arrays, where given. */
export type Delivered = (outputs: Wanted[], into: Record<string, any>) => Wanted[];
/** The error of an index that is out of range for the axis of `check`; `low`, `high`: the index. */
export type OutOfRange = (check: StepCheck, low: number, high: number, facts: ErrorFacts) => EngineError;
/** Throws `input` if `options` has a name that is not among the words of `known`. */
export type RequireOptions = (of: string, options: object | undefined, known: string) => void;
/** Throws `input` unless `value` is an integer from `least` to `most`. */
export type RequireCount = (name: string, value: number, least: number, most?: number) => void;
export type Within = (limit: number, ...promises: (Promise<unknown> | undefined)[]) => Promise<any>;
/** `limit`: milliseconds until a helper's first message. */
export type Help = (number: number, limit?: number) => Promise<void>;
export type OwnOf = (object: any, name: string) => any;
/** Rejects with the signal's reason, or with an EngineError. */
export type Typed = <Value>(signal: AbortSignal | undefined, job: () => Promise<Value>) => Promise<Value>;
export type Loaded = (given: string | URL, options: LoadOptions, open: OpenChannel) => Promise<Engine>;
/** The arguments with which a starter calls `new Worker`. */
export type PartsOf = (start: () => Worker) => [URL, WorkerOptions | undefined];
export type LaunchWorker = (start: () => Worker) => Worker;
/** Resolves with a module; rejects with `unsupported-host` where modules cannot be imported on demand. */
export type OnDemand = <Module>(module: Promise<Module>) => Promise<Module>;
export type OrAborted = (promise: Promise<any>, signal?: AbortSignal) => Promise<any>;
export type MakePlanRunner = (plans: PlacedPlan[], memory: WebAssembly.Memory, driver: Driver, threads: number, tuned?: TunedKernel[]) => PlanRunner;
/** Runs steps [first, last) of a plan, by default all; returns milliseconds.  Throws `kernel-trap`, or `host` if a worker stalled. */
export type Call = (plan: number, first?: number, last?: number) => number;
export type Stopped = (plan: number, code: number, trap: string) => Error;
/** `kinds`: the `typeof` that each key must have. */
export type Form = ((value: any) => unknown) | readonly Form[] | { readonly [key: string]: Form };
export type Tidy = (folder: any, part: string, reach: Store['reach'], drop: Store['drop'], old: Set<string>) => Promise<void>;
export type ReadJson = (bytes: Uint8Array, path: string) => any;
export type Parse = (bytes: Uint8Array, place: string, form: Form) => any;
export type RequireForm = (value: any, form: any, path: string, key?: string) => any;
export type RequireCounts = (place: string, ...numbers: any[]) => void;
export type ReadPointer = (bytes: Uint8Array, place: string) => Pointer;
export type ReadManifest = (bytes: Uint8Array, place: string) => Manifest;
export type SectionOf = (manifest: Manifest, target: string, form: Form) => any;
export type ProgramOf = (manifest: Manifest) => WasmProgram;
export type PlaceAll = (manifest: Manifest, section: Section) => { plans: PlacedPlan[]; states: Placed[]; growth?: Growth };
/** Joins tensors with their addresses, in the same order; `dims` has the sizes of open dimensions. */
export type PlaceEach = (infos: TensorInfo[], addresses: number[], dims: Sizes, compact?: boolean, within?: Growth) => Placed[];
export type MakeStates = (places: Placed[], enqueue: Enqueue, link: Channel, live: () => void) => States;
/** In the engine's memory; without `data` it reads. */
export type Exchanged = (memory: WebAssembly.Memory, work: { place: Placed; data?: any }) => Promise<any>;
/** The same for numbers that lie together. */
export type ExchangedPart = (buffer: ArrayBufferLike, place: Placed, data?: any) => Promise<any>;
/** The same for a state that grows; with the functions of other files that it needs. */
export type ExchangedBlocks = (...parts: [...Parameters<Exchanged>, { part: ExchangedPart; reach: Reach; arrayOf: (dtype: DType) => any; elementsOf: (shape: number[]) => number }]) => Promise<any>;
/** The exports of a module, which writes its functions to the table. */
export type Made = (module: WebAssembly.Module, table: WebAssembly.Table) => Promise<any>;
/** Rejects as `WebAssembly.instantiate` does. */
export type InstanceOf = (module: WebAssembly.Module, parts: { memory: WebAssembly.Memory; table: WebAssembly.Table; scratch: WebAssembly.Global }) => Promise<WebAssembly.Instance>;

// Functions of vet.js.

/** Why a module is not the linker's, or ''.  It must export exactly these functions; their types are hexadecimal digits of the binary format. */
export type ObjectionTo = (bytes: Uint8Array, exported: Record<string, string>) => string;
/** All entries of a vector, each read by `read`. */
export type EachEntry = <Entry>(read: () => Entry) => Entry[];
/** The same bytes; throws `bundle-corrupt` if they are not valid code of ours. */
export type Vetted = (bytes: Bytes) => Bytes;

export type Instantiate = (setup: Setup, worker: number) => Promise<Driver>;
/** Aborts the current run on behalf of a worker that will not finish it; `code`: TRAP or STALLED. */
export type LeaveRun = (words: Int32Array, worker: number, code: number) => void;
/** `near`: a machine in the page for short plans, with the bundle's own kernels; null if memory is not shared. */
export type MakeEngine = (link: Channel, info: Info, parts: { device: Device; manifest: Manifest; program: Program; limits: Limits; again: Again }, near: PlanRunner | null) => Engine;
export type OpenChannel = (onProgress: (progress: Progress) => void, threads: number, device: Device) => Channel;
export type OpenHere = (device: GPUDevice) => OpenChannel;
export type Keeping = (device: GPUDevice, end: () => unknown) => { device: GPUDevice; destroy: () => void };
/** Answers a request of the page by its kind. */
export type Answering = (load: LoadBackend, crew: any, report: (progress: Progress) => void) => (kind: string, params: any) => Promise<any>;
export type BundleFiles = (parts: FilesParts) => Files;
export type MakeMeter = (report: (progress: Progress) => void) => Meter;
export type RegionOf = (buffer: ArrayBufferLike, place: Placed) => any;
export type Take = (setup: Setup | null) => Promise<void>;
/** A sync access handle; null outside workers, or if another one locks the file. */
export type OpenAccess = (file: any, options?: object) => Promise<any>;
/** Times whole runs of a plan, or single steps if `only` names some. */
export type Measured = (bundle: WasmLoaded, work: MeasureWork) => Times | { steps: StepTime[]; read?: Bytes };
export type MeasureLoaded = (...parts: [...Parameters<Measured>, requireCount: RequireCount, EngineError: typeof import('./errors.js').EngineError]) => ReturnType<Measured>;
export type IsCount = (value: any, least: number, most: number) => boolean;
/** The tuned kernels in use after these changes; throws `input` if a change is invalid. */
export type Merged = (plans: PlacedPlan[], kernels: TunedKernel[], changes: Change[], kernelOf: KernelOf) => TunedKernel[];
/** Checks and completes a kernel that is swapped in, for a device; `refuse` throws. */
export type KernelOf = (kernel: TunedKernel, refuse: (problem: string, hint: string, facts?: ErrorFacts) => never) => TunedKernel;
/** `original`: the compiler's image of the plan `number`; `slots`: table entries of the bundle's own kernels. */
export type Drawn = (original: Uint32Array, plan: PlacedPlan, number: number, slots: number, kernels: TunedKernel[]) => Uint32Array;
/** Applies changes in all workers; resolves with the tuned kernels now in use, and the machine for runs in the page. */
export type Swapped = (link: Channel, program: Program, info: Pick<Info, 'variant' | 'adapter'>, kernels: TunedKernel[], changes: Change[]) => Promise<TunedKernel[]>;
/** Headers and records of the build's plan images, as the compiler made them. */
export type ImagesOf = (link: Channel, program: Program, variant: string) => Promise<Uint32Array[]>;
/** Resolves with sentences about problems. */
export type HandOver = (tools: ExchangeTools, pool: Pool, setup: Setup, back: Setup) => Promise<string[]>;
export type Resume = (pool: Pool, words: Int32Array, stop: number) => void;
export type ExchangeTools = {
  ABORT: number; EPOCH: number; STOP: number; TRAP: number; LATE: string;
  EngineError: new (...parts: [ErrorCode, string, string?, ErrorFacts?]) => Error;
  instantiate: Instantiate; makePlanRunner: MakePlanRunner; within: Within; wordsOf: (memory: WebAssembly.Memory) => Int32Array;
};
export type Exchange = (tools: ExchangeTools, bundle: WasmLoaded, pool: Pool, next: Required<TunedImages>) => Promise<void>;
/** Buffers of a result that are transferred to the page instead of copied. */
export type LargeParts = (value: any) => Transferable[];

// The shapes of functions of single files of the engine; no browser fetches this file.

import type {
  Build, DType, FileRef, Manifest, MemoryMap, Placed, PlacedPlan, Pointer, Program, Section, Sizes,
  TensorInfo, WasmProgram,
} from './manifest.js';
import type {
  Bytes, Change, Device, Driver, Engine, Facts, Files, FilesParts, HostFeatures, Info, Input, Kernel, Limits,
  Link, Machine, MeasureWork, Meter, Pool, Progress, Setup, States, StepTime, Store, Tensor, TensorData,
  Times, Wanted, WasmLoaded,
} from './types.js';

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
/** Extents by their numbers, as long as a run says or as can be. */
export type SizesOf = (plan: PlacedPlan, sizes?: Sizes) => number[];
/** The array behind `Engine.input`. */
export type InputArray = (buffer: ArrayBufferLike | undefined, places: Placed[], name: string) => any;
/** Copies the box [0, box) from one row-major array to another. */
export type CopyBox = (to: any, toShape: number[], from: any, fromShape: number[], box: number[]) => void;

// Functions of webgpu.js; its types are those of the browser's API.

export type StoredTensor = { dtype: DType; shape: number[]; layout: string; shard: number; offset: number; bytes: number; digest: string };
/** A step as the plan's file has it: the first word of each buffer, the output first. */
/** `tiles`, `scalars`: what follows an extent is given by the fields of kernel/extents.py's `Count`. */
export type Dispatched = { slot: number; tiles: number | number[]; words: number[]; scalars: (number | number[])[] };
export type Dispatch = { pipeline: GPUComputePipeline; bindings: GPUBindGroup; offset: number; groups: [number, number] };
export type ReadPlaces = (places: Placed[]) => Promise<{ trapped: boolean; arrays: any[] }>;
export type DeviceFor = (bytes: number, limit?: number) => Promise<{ device: GPUDevice; adapter: string }>;
export type PipelineOf = (device: GPUDevice, layout: GPUBindGroupLayout, code: string) => Promise<GPUComputePipeline>;
export type PlanOf = (device: GPUDevice, layout: GPUBindGroupLayout, memory: GPUBuffer, pipelines: GPUComputePipeline[], group: number, calls: Dispatched[]) => { dispatches: Dispatch[]; resize: (sizes: number[]) => void };
export type NumberAt = (number: number | number[], sizes: number[]) => number;
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
export type FillMemory = (parts: { ref: FileRef; address: number }[], memory: WebAssembly.Memory, files: Files) => Promise<void>;
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

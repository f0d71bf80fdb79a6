// Types of trials: requests to the trial worker, and its internals; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { Listening } from '../loop/types.js';
import type { Bytes, Needs, Verdict } from '../types.js';

/** A buffer of a kernel; `size` in elements. */
export type Buffer = {
  dtype: string; size: number; bytes: number;
  /** Bound of the elements' magnitude; 0: unknown. */
  limit: number;
  /** On WebGPU, true if elements are stored as f16, two in a word. */
  halves: boolean;
  /** On WebGPU, true if elements are stored as bytes, four in a word. */
  packed: boolean;
  /** If not 0, elements are whole numbers below this: indices of a table, or 0 and 1 of a mask. */
  extent: number;
  /** The weight in the model's own memory, if the buffer is a weight and memory is shared. */
  real: Uint8Array | null;
};
/** A trial's facts about a kernel specification; buffer 0 is the output. */
export type SpecFacts = {
  spec: number; buffers: Buffer[]; scalars: number[]; slot: number; tiles: number; flops: number;
  /** On WebGPU: threads of a workgroup; `tiles` are then invocations. */
  group?: number;
  /** True if results are rounded, so that schedules may differ in the last bits. */
  rounds: boolean;
  /** True if NaN and infinities propagate the same way in every schedule. */
  special: boolean;
};
export type Described = (data: any) => Pick<SpecFacts, 'buffers' | 'rounds' | 'special'>;
export type OpenedSpecs = {
  facts: (spec: number) => SpecFacts;
  /** Bytes of a kernel's buffers in a trial. */
  bytesOf: (spec: number) => number;
  /** The place of a step's result in the model's memory (address and length), and its type. */
  resultOf: (plan: number, step: number) => { place: [number, number]; dtype: string; rounds: boolean };
  /** True if the kernel reads indices from a buffer. */
  gathers: (spec: number) => boolean;
  /** True if a dispatch computes a step of the specification together with others, while their kernels are the bundle's. */
  joined: (spec: number) => boolean;
  /** The first of the steps that one dispatch computes together with this one. */
  firstOf: (plan: number, step: number) => number;
  /** True if a candidate can replace the bundle's kernel in the page. */
  exchangeable: (spec: number) => boolean;
  /** The bundle's own kernels: their module, or their texts. */
  code: () => Promise<ArrayBuffer>;
};
export type OpenSpecs = (engine: Engine.Engine) => Promise<OpenedSpecs>;
export type MasksOf = (data: any, factor?: number, found?: Set<number>) => Set<number>;
export type Gathered = (data: any, extent?: number, found?: Map<number, number>) => Map<number, number>;
export type Uniform = (seed: number) => () => number;
export type NumbersOf = (buffer: Buffer, set: string, next: () => number) => (at: number) => number | bigint;
export type Filled = (buffer: Buffer, set: string, seed: number) => Promise<Uint8Array>;
export type Allowed = (wanted: any, dtype: string, rounds: boolean) => Promise<number>;
export type Shake = (bytes: Uint8Array, buffer: Buffer, seed: number) => Promise<void>;
export type Spread = (found: any, wanted: any) => Promise<number>;
export type Difference = (found: any, wanted: any, most: number) => Promise<string>;
export type KernelCode = { digest: string; module: Bytes; tiles: number };
/** `margin`: the ratio that a candidate must exceed; `grant`: factor on its ratio in decisions, 1 or more. */
export type Bar = { margin: number; grant: number };
export type BarOf = (objective: string, needs?: Needs | null, inUse?: Needs | null) => Bar;
type Tried = {
  spec: number; candidate: KernelCode; incumbent: KernelCode | null; bar: Bar;
  /** True if the candidate is the compiler's own and serves as reference: its results are correct, and the kernel in use is checked. */
  judge: boolean;
};
/** `bytes`: size of the kernel's buffers. */
export type TrialWork = Tried & { facts: () => SpecFacts; bytes: number };
/** By input set, the results of a kernel's reference. */
export type Expected = Record<string, any>;
/**
 * The message to the worker.  Facts and known expected results are sent only if the worker lacks the kernel; `forget`: kernels to drop from its cache;
 * `confirm`: check results only; `usual`: milliseconds of the incumbent in an earlier trial, or NaN.
 */
export type Asked = Tried & { facts: SpecFacts | null; expected: Expected | null; forget: number[]; confirm?: boolean; usual: number };
export type Outcome = {
  verdict: Verdict;
  /** The trial's time without pauses. */
  milliseconds: number;
  /**
   * Milliseconds by stage: `prepare` (inputs and expected results), `incumbent` (warm-up of the kernel in use), `build`, `look` (at first tiles),
   * `warm`, `check`, `pairs`; `confirm` (in a fresh worker, all stages), `undecided` (a whole trial before this one).
   */
  stages: Record<string, number>;
  /** Resolution of the clock in milliseconds. */
  resolution: number;
  /** Time of the incumbent over time of the candidate, with its interval. */
  ratio?: number; low?: number; high?: number;
  /** Milliseconds of the incumbent and of the candidate. */
  times?: number[];
  /** The last comparison's numbers; `lost`: pairs that were interrupted, or timed by a clock that jumped. */
  parts?: number; pairs?: number; lost?: number;
  /** The reason for the verdict, as a sentence. */
  why?: string;
  /** True if the device was lost meanwhile. */
  gone?: boolean;
  /** Set only if the candidate is to be adopted. */
  module?: Code;
  /** What is wrong with the kernel in use, compared with the compiler's own. */
  refuted?: string;
};
export interface Trials {
  /** The verdict on a candidate.  Rejects with a `host` error if the trial itself failed; that is not a verdict. */
  attempt(work: TrialWork): Promise<Outcome>;
  /** A sentence about how two results of a kernel differ beyond rounding, or ''. */
  compare(results: Results): Promise<string>;
  /** Bytes of L1 data cache, or 0 if unclear. */
  l1(): Promise<number>;
  /** Starts making the next candidate, if that takes long. */
  ahead(candidate: { module: Bytes; tiles: number }): void;
  pause(on: boolean): void;
  close(): void;
}
/** Two results of one step as bytes; `rounds`: as in `SpecFacts`. */
export type Results = { dtype: string; rounds: boolean; found: Bytes; wanted: Bytes };
/**
 * `start`: starts the worker of a device other than WebAssembly; `early`: it takes long to start, so one is kept in reserve, and candidates are made ahead;
 * `powerPreference`: the engine's, so that it is the same GPU; `silent`: called at each check while a candidate runs, to tell whether it made the page's own
 * device unresponsive.
 */
export type OpenTrials = (parts: { code: ArrayBuffer; slots: number; bytes: number; scratchBytes: number; patience?: number; start?: () => Worker; early?: boolean; powerPreference?: GPUPowerPreference; silent?: ReturnType<Listening> }) => Trials;
/** How a trial worker is started and watched; `remember` receives its expected results. */
export type Launching = { start: () => Worker; patience: number; silent: ReturnType<Listening>; remember: Remember };
/** What to tell a worker about a kernel: its facts if it lacks them, and kernels to drop for it; `held`: bytes in its cache afterwards. */
export type BriefOf = (spec: number, bytes: number, facts: () => SpecFacts) => { given: SpecFacts | null; forget: number[]; held: number };
/** `given`: the facts, if the worker lacks them; `facts`: for a new worker. */
export type Ask = (worker: { attempt(work: Asked): Promise<Outcome> }, work: Tried, given: SpecFacts | null, more: { forget?: number[]; confirm?: boolean; facts: () => SpecFacts }) => Promise<Outcome>;
export type MessageOf = (work: Tried, facts: SpecFacts | null, forget: number[], confirm: boolean) => Asked;
export type Confirmed = (outcome: Outcome, work: Tried, facts: () => SpecFacts) => Promise<Outcome>;
export type Remember = (told: { spec: number; sets: Expected }) => void;
export type LearnTimes = (work: Tried, times?: number[]) => void;
export type Request = (kind: string, params: object) => Promise<any>;

// Inside the trial worker.

/** A kernel's code as its device compiles it: a module, or the text of WebGPU. */
export type Code = WebAssembly.Module | string;
/** An instantiated kernel, as its device runs it. */
export type Runner = { tiles: number };
/** `run` executes tiles [first, last). */
export type WasmRunner = Runner & { run: (first: number, last: number) => void };
/** `tiles` are invocations, in workgroups of `group`. */
export type GpuRunner = Runner & { group: number; pipeline: GPUComputePipeline };
export type Compiled = (bytes: Bytes, count?: number) => Promise<any>;
export type MakeRunner = (module: WebAssembly.Module, name: string, entries: number, tiles: number) => Promise<WasmRunner>;
/** `code`: the bundle's own kernels; `bytes`: the most of all buffers of a kernel. */
export type OpenBench = (given: { code: ArrayBuffer; entries: number; bytes: number; scratchBytes: number; powerPreference?: GPUPowerPreference }) => Promise<void>;
export type OwnRunner = (facts: SpecFacts) => Promise<Runner>;
export type RunnerFor = (module: any, tiles: number) => Promise<Runner>;
export type Ahead = (candidate: { module: Bytes; tiles: number }) => Promise<void>;
/** The memory in which a device's kernels are tried.  A kernel that does not compile is `Refused`; one that runs may be `Trapped`. */
export interface Bench {
  open: OpenBench;
  readonly loaded: LoadedKernel | null;
  use: (next: LoadedKernel | null) => unknown;
  lay: Lay;
  compiled: Compiled;
  own: OwnRunner;
  runnerFor: RunnerFor;
  begin: (set: string) => Promise<void>;
  runAll: RunAll;
  accept: Accept;
  check: Check;
  refutation: Check;
  ahead?: Ahead;
  /** Sends heartbeats while a request is open, if a hanging device would stop them; returns a function that ends them. */
  beating: () => () => void;
}
/** How a device's kernels are timed. */
export interface Clock {
  readonly finest: number;
  readClock: () => void;
  coldEstimate: ColdEstimate;
  warm: Warm;
  warmEstimate: WarmEstimate;
  pairsOf: PairsOf;
}
export type Judge = (bench: Bench, clock: Clock, more?: Record<string, (params: any) => unknown>) => void;
/** Steps of a bench: `changedInput` gives -1 for a write elsewhere and 0 for none; `perturb` changes the last bits of an input. */
export type ChecksOf = (steps: {
  current: () => LoadedKernel; begin: Bench['begin']; output: () => any; runAll: RunAll;
  changedInput: (set: TrialSet) => Promise<number>; perturb: (set: TrialSet, buffer: Buffer, number: number) => Promise<void>;
}) => Pick<Bench, 'accept' | 'check' | 'refutation'>;
/** An input set: its inputs, the expected result, and the maximum absolute difference from it. */
export type TrialSet = {
  inputs: (Uint8Array | null)[]; wanted: any; allowed: number;
  /** True if `allowed` already includes the effect of perturbed inputs. */
  doubted: boolean;
};
/** A kernel specification laid out in the trial memory. */
export type LoadedKernel = {
  facts: SpecFacts; addresses: number[]; words: number[]; block: Uint32Array; canaries: Uint8Array[];
  /** Input sets, by name. */
  sets: Record<string, TrialSet>;
  /** The bundle's own kernel, and the one whose results are expected. */
  standard: Runner; reference: Runner;
  /** Warm kernels, by digest; '' is the bundle's own. */
  known: Map<string, Runner>;
};
export type Same = (a: Uint8Array, b: Uint8Array) => boolean;
/** Numbers packed as f16, two in a word. */
export type HalvesOf = (numbers: Float32Array) => Uint32Array;
export type RunAll = (runner: Runner, shuffled: boolean) => Promise<void>;
export type Prepare = (facts: SpecFacts, reference: Runner | null, expected: Expected | null) => Promise<void>;
export type Tell = (kernel: LoadedKernel) => void;
/** Times the next batch: its milliseconds, those that it counts for, tiles run, and whether the time is long enough to be valid. */
export type GrowingBatches = (runner: Runner) => () => { time: number; spent: number; count: number; sure: boolean };
export type Warm = (runner: Runner, other: number) => Promise<number>;
export type Check = (runner: Runner) => Promise<string>;
export type InPieces = (count: number, piece: number, work: (from: number, to: number) => void) => Promise<void>;
export type Lay = (facts: SpecFacts) => T.MaybePromise<Pick<LoadedKernel, 'addresses' | 'words' | 'block' | 'canaries'>>;
export type InputsOf = (facts: SpecFacts, set: string) => Promise<(Uint8Array | null)[]>;
export type Accept = (set: TrialSet, given?: any) => Promise<TrialSet>;
export type Doubt = (name: string) => Promise<void>;
export type Differs = (name: string) => Promise<string>;
/** Milliseconds of a trial by stage; `end` ends a stage and adds its time. */
export type Stages = { milliseconds: Record<string, number>; spent(): number; end(stage: string): void };
/** Milliseconds of two kernels on the same part. */
export type Pair = { first: number; second: number };
/** `order`: 1 if the second kernel runs first.  A round measures one pair of each part.  `granted`: the second one need not be faster. */
export type Pairs = { parts: number; long: boolean; granted?: boolean; measure: (part: number, order: number) => Promise<Pair | null> };
export type PairsOf = (first: Runner, second: Runner, times: number[]) => Pairs;
export type RoundsOf = (pairs: Pair[], parts: number, side: 'first' | 'second', groups: number) => Float64Array;
export type RatiosOf = (pairs: Pair[], parts: number, groups: number) => number[];
/** `ratio`: time of the first over time of the second, with its interval; `first`, `second`: milliseconds per round. */
export type Judgement = { ratio: number; low: number; high: number; first: number; second: number };
export type Compared = Judgement & { pairs: number; lost: number; undecided: boolean };
/** True if more than `times` the time limit was spent. */
export type Over = (times: number) => boolean;
export type Sweep = (pair: (part: number, order: number) => Promise<Pair | null>, parts: number) => Promise<Judgement | null>;
export type Compare = (pairs: Pairs, margin: number, over: Over) => Promise<Compared>;
/** `overs`: time limits of the first comparison, and of both together. */
export type Contest = (pairs: Pairs, bar: Bar, overs: Over[]) => Promise<Compared & { verdict: Verdict; wins: boolean }>;
export type RunnerOf = (known: KernelCode | null, usual?: number) => Promise<Runner>;
export type Found = Partial<Outcome> & { verdict: Verdict; wins?: boolean };
export type Question = (facts: SpecFacts, runner: Runner, incumbent: KernelCode | null) => Promise<{ wrong?: string; refuted?: string }>;
export type FarSlower = (runner: Runner, other: Runner) => Promise<Found | null>;
export type Against = (runner: Runner, other: Runner, bar: Bar, stages: Stages) => Promise<Found>;
export type VerdictOn = (asked: Asked, facts: SpecFacts, stages: Stages) => Promise<Found>;
export type AddSet = (kernel: LoadedKernel, name: string, expected: Expected | null) => Promise<void>;
export type Attempt = (work: Asked) => Promise<Outcome>;
/** `whole`: estimated milliseconds of all tiles; 0 if the clock did not advance.  `spent`: milliseconds of the measurement. */
export type ColdEstimate = (runner: Runner) => Promise<{ whole: number; spent: number }>;
export type Hopeless = (runner: Runner, least: number) => Promise<Found | null>;
export type WarmEstimate = (runner: Runner) => Promise<number>;
export type Timed = (work: () => void, most: number) => number;
export type Interval = (values: number[], sure?: number) => { centre: number; low: number; high: number };
export type Judged = (pairs: Pair[], parts: number, sure?: number, far?: number, groups?: number) => Judgement;

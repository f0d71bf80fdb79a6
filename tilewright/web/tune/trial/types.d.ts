// The shapes of trials: what is asked of the trial worker, and what passes inside it; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { Bytes, Needs, Verdict } from '../types.js';

export type Buffer = {
  dtype: string; size: number; bytes: number;
  /** No element is larger in magnitude; 0: not known. */
  limit: number;
  /** Elements are indices below this; 0: they are none. */
  extent: number;
  /** The model's own memory, if this is a weight and memory is shared. */
  real: Uint8Array | null;
};
export type SpecFacts = {
  spec: number; buffers: Buffer[]; scalars: number[]; slot: number; tiles: number; flops: number;
  /** Results are rounded: schedules may differ in the last bits. */
  rounds: boolean;
  /** NaN and infinities come out where they went in, whatever the schedule. */
  special: boolean;
};
export type OpenedSpecs = {
  facts: (spec: number) => SpecFacts;
  /** Bytes of memory that a trial takes. */
  bytesOf: (spec: number) => number;
  gathers: (spec: number) => boolean;
  /** The bundle's kernel module. */
  code: () => Promise<ArrayBuffer>;
};
export type OpenSpecs = (engine: Engine.Engine) => Promise<OpenedSpecs>;
export type Gathered = (data: any, extent?: number, found?: Map<number, number>) => Map<number, number>;
export type Uniform = (seed: number) => () => number;
export type NumbersOf = (buffer: Buffer, set: string, next: () => number) => (at: number) => number | bigint;
export type Filled = (buffer: Buffer, set: string, seed: number) => Promise<Uint8Array>;
export type Allowed = (wanted: any, dtype: string, rounds: boolean) => Promise<number>;
export type Shake = (bytes: Uint8Array, buffer: Buffer, seed: number) => Promise<void>;
export type Spread = (found: any, wanted: any) => Promise<number>;
export type Difference = (found: any, wanted: any, most: number) => Promise<string>;
export type KernelCode = { digest: string; module: Bytes; tiles: number };
/** How much faster a candidate must be, and how many times as fast it counts as. */
export type Bar = { margin: number; grant: number };
export type BarOf = (objective: string, needs?: Needs | null, inUse?: Needs | null) => Bar;
type Tried = {
  spec: number; candidate: KernelCode; incumbent: KernelCode | null; bar: Bar;
  /** The candidate is the compiler's own: its results are right, those of the kernel in use are in question. */
  judge: boolean;
};
/** What a trial needs; `bytes`: of the kernel's buffers. */
export type TrialWork = Tried & { facts: () => SpecFacts; bytes: number };
/** The same on its way to the worker, with facts that it does not know yet, and kernels to forget. */
export type Asked = Tried & { facts: SpecFacts | null; forget: number[] };
export type Outcome = {
  verdict: Verdict;
  /** Of the trial without pauses, and the part of it that served all candidates of the kernel. */
  milliseconds: number; prepared: number;
  /** Of the clock. */
  resolution: number;
  ratio?: number; low?: number; high?: number;
  /** Of the incumbent and of the candidate. */
  times?: number[];
  /** Of the last comparison; `lost`: pairs that were interrupted, or timed by a clock that jumped. */
  parts?: number; pairs?: number; lost?: number;
  why?: string;
  /** If it is to be adopted. */
  module?: WebAssembly.Module;
  /** What is wrong with the kernel in use, by the compiler's own. */
  refuted?: string;
};
export interface Trials {
  /** The verdict on a candidate.  Rejects with a `host` error where the trial itself failed: that says nothing of the candidate. */
  attempt(work: TrialWork): Promise<Outcome>;
  /** Bytes of L1, or 0 if that is not clear. */
  l1(): Promise<number>;
  pause(on: boolean): void;
  close(): void;
}
export type OpenTrials = (parts: { code: ArrayBuffer; slots: number; bytes: number; scratchBytes: number; patience?: number }) => Trials;

export type Request = (kind: string, params: object) => Promise<any>;

// Inside the trial worker.

export type Runner = { tiles: number; run: (first: number, last: number) => void };
export type MakeRunner = (module: WebAssembly.Module, name: string, entries: number, tiles: number) => Promise<Runner>;
/** `allowed`: how far a result may be from what is wanted. */
export type TrialSet = { inputs: (Uint8Array | null)[]; wanted: any; allowed: number };
export type LoadedKernel = {
  facts: SpecFacts; addresses: number[]; words: number[]; block: Uint32Array; canaries: Uint8Array[];
  /** By name, what goes in and what the bundle's kernel makes of it. */
  sets: Record<string, TrialSet>;
  /** Kernels that are warm, by digest; '' is the bundle's own. */
  known: Map<string, Runner>;
};
export type Same = (a: Uint8Array, b: Uint8Array) => boolean;
export type RunAll = (runner: Runner, shuffled: boolean) => Promise<void>;
export type Prepare = (facts: SpecFacts, reference: Runner | null) => Promise<void>;
export type Warm = (runner: Runner, other: number) => Promise<number>;
export type Check = (runner: Runner) => Promise<string>;
export type InPieces = (count: number, piece: number, work: (from: number, to: number) => void) => Promise<void>;
export type Lay = (facts: SpecFacts) => Pick<LoadedKernel, 'addresses' | 'words' | 'block' | 'canaries'>;
export type InputsOf = (facts: SpecFacts, set: string) => Promise<(Uint8Array | null)[]>;
export type Accept = (set: TrialSet) => Promise<TrialSet>;
export type Doubt = (set: TrialSet, runner: Runner) => Promise<void>;
export type Pair = { first: number; second: number };
/** `order`: which of the two comes first.  Pairs go through all parts, round after round. */
export type Pairs = { parts: number; long: boolean; measure: (part: number, order: number) => Promise<Pair | null> };
export type PairsOf = (first: Runner, second: Runner, times: number[]) => Pairs;
export type RoundsOf = (pairs: Pair[], parts: number, side: 'first' | 'second') => Float64Array;
export type Judgement = { ratio: number; low: number; high: number; first: number; second: number };
export type Compared = Judgement & { pairs: number; lost: number; undecided: boolean };
/** Whether more than so many times the limit was spent. */
export type Over = (times: number) => boolean;
export type Sweep = (pair: (part: number, order: number) => Promise<Pair | null>, parts: number) => Promise<Judgement | null>;
export type Compare = (pairs: Pairs, margin: number, over: Over) => Promise<Compared>;
/** `overs`: of the first comparison and of both. */
export type Contest = (pairs: Pairs, bar: Bar, overs: Over[]) => Promise<Compared & { verdict: Verdict; wins: boolean }>;
export type RunnerOf = (known: KernelCode | null) => Promise<Runner>;
export type Found = Partial<Outcome> & { verdict: Verdict; wins?: boolean };
export type Question = (facts: SpecFacts, runner: Runner, incumbent: KernelCode | null) => Promise<{ wrong?: string; refuted?: string }>;
export type Against = (runner: Runner, other: Runner, bar: Bar, overs: Over[]) => Promise<Found>;
export type Attempt = (work: Asked) => Promise<Outcome>;
export type Quick = (runner: Runner) => Promise<number>;
export type Timed = (work: () => void, most: number) => number;
export type Interval = (values: number[], sure?: number) => { centre: number; low: number; high: number };
export type Judged = (pairs: Pair[], parts: number, sure?: number, far?: number) => Judgement;

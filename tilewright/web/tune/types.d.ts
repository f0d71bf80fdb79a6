// The shapes of what a page gives to the tuner and gets from it; no browser fetches this file.

// In the tuner's files these and those of its folders are called Tune.Name, those of the engine T.Name.

import type * as Engine from '../engine/types.js';
import type * as Gains from './exchange/types.js';
import type { Sent } from './loop/types.js';

export as namespace Tune;

export type * from './device/types.js';
export type * from './loop/types.js';
export type * from './records/types.js';
export type * from './trial/types.js';

export type Bytes = Engine.Bytes;
export type Verdict = 'faster' | 'same' | 'slower' | 'wrong' | 'trapped' | 'hung' | 'refused';
export type Mark = 'default' | 'lite' | 'extended';

/** Where candidates come from: a server, a folder, the compiler in a worker. */
export interface Source {
  /** The table of device classes (`tilewright/targets/classes.py`), the most exact first. */
  classes?(): Promise<DeviceClass[]>;
  /** What its candidates were made for. */
  objective?(): Promise<string>;
  /** Begins, or begins again after `next` was lost: hello says all there is to know. */
  open(hello: Hello): Promise<Welcome>;
  /** The next candidate, a kernel of which nothing more comes, or null when there is none left.  Rejects with a `network` error if the source is lost. */
  next(): Promise<Sent | { done: number } | null>;
  result(result: Result): void;
  /** A vote; only asked if the site takes part.  Resolves when it is stored or refused. */
  report(report: Report): Promise<unknown>;
  close(): void;
}
export type DeviceClass = {
  id: string; kind: string; vendor: string; architecture: string; features: string[];
  /** Bytes of L1 that a device must be known to have. */
  least_l1: number;
  variant: string;
};
export type Hello = {
  protocol: number; bundle: string; digest: string; device: string; browser: string; variant: string; objective: string;
  /** Kernels to tune, hottest first, and their shares of the time. */
  specs: number[]; shares: number[];
  tried: Record<string, number[]>;
  /** Whether the site takes part in the vote: only then a server is told results. */
  share: boolean;
};
/** What a server hears of it: coarse shares, tries of this visit alone; so many of the first candidates come last. */
export type Told = Omit<Hello, 'share'> & { skip: number };
/** By objective, what a kernel takes of that which it counts. */
export type Needs = Record<string, number>;
/** `needs`: of the default, null if that is not known. */
export type Offer = { spec: number; kind: string; shape: string; checksum: string; count: number; default: number | null; needs?: Needs | null; gold?: { a: number; b: number } | null };
export type Welcome = { compiler: string; kernels: Offer[] };
/** A candidate: another schedule of the same kernel. */
export type Header = {
  spec: number; candidate: number; mark: Mark; schedule: string; checksum: string; digest: string;
  tiles: number;
  /** By number of the plan, tiles per ticket. */
  grains: Record<string, number>;
  scratch: number; needs?: Needs | null; bytes: number;
};
export type Result = { spec: number; candidate: number; verdict: Verdict };
/** Ratios are time of the default over time of the candidate. */
export type Report = {
  nonce: string; spec: number; checksum: string; top: { candidate: number; ratio: number }[];
  gold: { a: number; b: number; ratio: number } | null;
};

export type Options = {
  source: Source;
  /** Share of the time that tuning may take; 1: all of it. */
  budget?: number;
  /** Ends after so much tuning time, or so many candidates. */
  seconds?: number;
  rounds?: number;
  /** Kernels to tune; by default those that take the time. */
  specs?: number[];
  /** Whether the site takes part in the vote. */
  report?: boolean;
  /** `latency`, `traffic` or `scratch` (docs/spaces.md). */
  objective?: string;
  /** Class of this device, if it is known. */
  device?: string;
  /** Milliseconds without a sign of life after which a candidate hangs. */
  patience?: number;
  /** Milliseconds after which a hidden page lets another tab tune. */
  absence?: number;
  onEvent?: (event: Event) => void;
  /** Ends tuning; the summary so far is the result. */
  signal?: AbortSignal;
};
export type Event =
  | {
    type: 'start'; class: string;
    /**
     * `part` is of the time of its `plan`, `share` of that of all plans; `default`: number of the bundle's own kernel;
     * `current`: what an earlier visit put in its place, `gain` null if nobody measured it.
     */
    kernels: {
      spec: number; plan: number; kind: string; shape: string; node: string; part: number; share: number; flops: number; default: number | null;
      current: { candidate: number; schedule: string; gain: number | null; moved: boolean } | null;
    }[];
  }
  | {
    type: 'trial'; round: number; spec: number; candidate: number; mark: Mark; schedule: string; verdict: Verdict;
    /** The kernel in use is wrong: of this trial nothing is sent, and nothing more of this kernel if it took that one's place. */
    refuted: boolean;
    /** NaN where nothing was measured. */
    ratio: number; low: number; high: number;
    /** Milliseconds of the bundle's own kernel, on one thread; NaN if this trial does not tell. */
    own: number;
    milliseconds: number;
    /** What was wrong, in words. */
    why: string;
  }
  | { type: 'swap' | 'rollback'; spec: number; candidate: number; ratio: number }
  /** The host failed, which says nothing of the candidate. */
  | { type: 'fault'; spec: number; candidate: number; why: string }
  /** Of this plan alone, warm. */
  | { type: 'latency'; round: number; plan: number; milliseconds: number }
  /** The whole model is compared with other kernels: so many pairs were taken so far. */
  | { type: 'turns'; pairs: number }
  | { type: 'paused'; why: 'hidden' | 'another tab' }
  | { type: 'resumed' | 'lost' }
  | { type: 'end'; summary: Summary };
/** Times are those of trials: one thread; NaN if there was none, and where `gain` is null. */
/** The number is null of a bundle's kernel that is none of its space. */
export type KernelFigures = { candidate: number | null; schedule: string; milliseconds: number; gflops: number };
export type Summary = {
  rounds: number;
  /** Of tuning. */
  seconds: number;
  class: string;
  kernels: { spec: number; kind: string; shape: string; node: string; default: KernelFigures; current: KernelFigures; gain: number | null; tried: number }[];
  /** Milliseconds of a whole warm run, as it was seen last. */
  latency: number | null;
  gain: Gains.Gain;
};
/** Resolves when nothing is left to try, the budget is spent, or the signal fires. */
export type Tune = (engine: Engine.Engine, options: Options) => Promise<Summary>;

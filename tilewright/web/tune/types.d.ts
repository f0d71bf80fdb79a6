// The tuner's public types; no browser fetches this file.

// The tuner's files refer to these types, and to those of its folders, as Tune.Name; to the engine's as T.Name.

import type * as Engine from '../engine/types.js';
import type * as Gains from './exchange/types.js';
import type { Sent } from './loop/types.js';

export as namespace Tune;

export type * from './backend/types.js';
export type * from './device/types.js';
export type * from './loop/types.js';
export type * from './records/types.js';
export type * from './trial/types.js';

export type Bytes = Engine.Bytes;
/** The result of a trial (docs/tuning-loop.md). */
export type Verdict = 'faster' | 'same' | 'slower' | 'wrong' | 'trapped' | 'hung' | 'refused';
/** The space that a candidate belongs to (docs/spaces.md). */
export type Mark = 'default' | 'lite' | 'extended';

/** Where candidates come from: a server, a folder, the compiler in a worker. */
export interface Source {
  /** The URL's origin that its candidates come from. */
  origin?: string;
  /** Whether every candidate is signed by the site's key. */
  signed?: boolean;
  /** The table of device classes (`tilewright/targets/device_classes.py`), the most specific first. */
  classes?(): Promise<DeviceClass[]>;
  /** The objective that its candidates were made for. */
  objective?(): Promise<string>;
  /** Connects, or reconnects after `next` rejected; the hello carries the whole state.  Rejects with a `network` error if it may be retried. */
  open(hello: Hello): Promise<Welcome>;
  /**
   * The next candidate; or the number of a kernel that is done, because no more candidates follow; or null at the end.
   * Rejects with a `network` error if the connection is lost.
   */
  next(): Promise<Sent | { done: number } | null>;
  /** The candidate that `next` will give, if it has arrived already. */
  peek?(): Sent | null;
  result(result: Result): void;
  /** Sends a vote; called only if the site takes part.  Resolves when it is stored or refused. */
  report(report: Report): Promise<unknown>;
  close(): void;
}
export type DeviceClass = {
  id: string; kind: string; vendor: string; architecture: string; features: string[];
  /** Minimum bytes of L1 data cache. */
  least_l1: number;
  variant: string;
};
export type Hello = {
  protocol: number; bundle: string; digest: string; device: string; browser: string; variant: string; objective: string;
  /** On WebGPU, features of the adapter beyond the class; candidates that need others are not sent. */
  features: string[];
  /** Kernels to tune, hottest first, and their shares of the time, from 0 to 1. */
  specs: number[]; shares: number[];
  /** By kernel, numbers of the candidates that were tried. */
  tried: Record<string, number[]>;
  /** Whether the site takes part in the vote: only then are results sent to a server. */
  share: boolean;
  /** True if only candidate 0 is wanted, of kernels for which the bundle has another one. */
  check: boolean;
};
/** The hello that a server gets: rounded shares, candidates tried in this visit alone; `skip`: how many of the first candidates may come last. */
export type Told = Omit<Hello, 'share'> & { skip: number };
/** By objective, a kernel's cost (docs/spaces.md): words of traffic, bytes of scratch. */
export type Needs = Record<string, number>;
/** Why only the default schedule of a kernel is tried: `extents`: its size is known only at run time; '' if other schedules are tried. */
export type Fixed = '' | 'extents';
/**
 * A kernel that a source has candidates for.  `checksum`: of its space; `count`: candidates in it; `default`: number of the
 * bundle's own kernel, null if it is not in the space; `schedule` (or ''), `needs` (or null): of the default; `gold`: two candidates to compare: a gold question if `b` is `count`, else about a candidate of the crowd.
 */
export type Offer = { spec: number; kind: string; shape: string; checksum: string; count: number; fixed?: Fixed; default: number | null; schedule?: string; needs?: Needs | null; gold?: { a: number; b: number } | null };
export type Welcome = { compiler: string; kernels: Offer[] };
/** A candidate: another schedule of a kernel.  `digest` and `bytes` are of its module, `scratch` is in bytes. */
export type Header = {
  spec: number; candidate: number; mark: Mark; schedule: string; checksum: string; digest: string;
  /** Features that it needs of a device beyond the class (docs/spaces.md). */
  features?: string[];
  tiles: number;
  /** Tiles per ticket, by plan index. */
  grains: Record<string, number>;
  scratch: number; needs?: Needs | null; bytes: number;
  /** The signature by the site's key; sources/signed.js verifies it. */
  signature?: string;
};
export type Result = { spec: number; candidate: number; verdict: Verdict };
/** A vote.  Ratios are time of the default over time of the candidate. */
export type Report = {
  nonce: string; spec: number; checksum: string; top: { candidate: number; ratio: number }[];
  gold: { a: number; b: number; ratio: number } | null;
};

export type Options = {
  source: Source;
  /** Share of the time that tuning may take, above 0; 1: all of it.  Default 0.05. */
  budget?: number;
  /** Maximum tuning time. */
  seconds?: number;
  /** Maximum number of candidates to try. */
  rounds?: number;
  /** Kernels to tune; default: all that take at least 0.2 % of the time. */
  specs?: number[];
  /** Whether the site takes part in the vote; default false. */
  report?: boolean;
  /** `latency` (default), `traffic` or `scratch` (docs/spaces.md). */
  objective?: string;
  /** Class of this device; default: probed. */
  device?: string;
  /** Only compares the kernels of a relinked bundle with the compiler's own (check.js). */
  check?: boolean;
  /** Milliseconds without a heartbeat after which a candidate counts as hung; default 4000. */
  patience?: number;
  /** Milliseconds after which a hidden page lets another tab tune; default 30,000. */
  absence?: number;
  onEvent?: (event: Event) => void;
  /** Ends tuning; `tune` then resolves with the summary so far. */
  signal?: AbortSignal;
};
export type Event =
  | {
    type: 'start'; class: string;
    /**
     * `part`: share of the time of its `plan`; `share`: of the time of all plans; `default`: number of the bundle's own
     * kernel; `current`: the winner of an earlier visit that replaces it, with `gain` null if it was never measured.
     */
    kernels: {
      spec: number; plan: number; kind: string; shape: string; fixed: Fixed; node: string; part: number; share: number; flops: number; default: number | null;
      current: { candidate: number; schedule: string; gain: number | null; moved: boolean } | null;
    }[];
  }
  | {
    type: 'trial'; round: number; spec: number; candidate: number; mark: Mark; schedule: string; verdict: Verdict;
    /** The kernel in use gave wrong results, so nothing of this trial is reported. */
    refuted: boolean;
    /** Time of the kernel in use over time of the candidate, with its interval; NaN if not measured. */
    ratio: number; low: number; high: number;
    /** Milliseconds of the bundle's own kernel, on one thread; NaN if not measured. */
    own: number;
    /** Milliseconds of the whole trial, and of its stages (`Outcome`). */
    milliseconds: number; stages: Record<string, number>;
    /** The reason for the verdict, in words. */
    why: string;
  }
  | { type: 'swap' | 'rollback'; spec: number; candidate: number; ratio: number }
  /** The host failed, so there is no verdict on the candidate. */
  | { type: 'fault'; spec: number; candidate: number; why: string }
  /** The milliseconds of a whole warm run of this plan. */
  | { type: 'latency'; round: number; plan: number; milliseconds: number }
  /** Progress of the whole-model comparison: pairs measured so far. */
  | { type: 'turns'; pairs: number }
  | { type: 'paused'; why: 'hidden' | 'another tab' }
  | { type: 'resumed' | 'lost' }
  | { type: 'end'; summary: Summary };
/**
 * A kernel in the summary.  `candidate` is null for a bundle's own kernel that is not in its space; `milliseconds` are of
 * trials, on one thread, and NaN if there was none or `gain` is null.
 */
export type KernelFigures = { candidate: number | null; schedule: string; milliseconds: number; gflops: number };
/**
 * What a tuning session does.  `created`: nothing yet; `waiting`: another session tunes the bundle; `opening`: it restores winners, starts the trial worker,
 * finds the device's class and the kernels worth tuning, and connects to the source; `choosing`: it waits for idle time and the next
 * candidate; `trying`: a trial; `adopting`: a winner is compared and timed in the engine; `timing`: the latency of the whole model;
 * `confirming`: the model with and without all that changed; `closing`: it stores and reports; `resting`: the page is hidden, and the
 * bundle left to another tab.
 */
export type SessionState = 'created' | 'waiting' | 'opening' | 'choosing' | 'trying' | 'adopting' | 'timing' | 'confirming' | 'closing' | 'resting' | 'ended';
export type Summary = {
  rounds: number;
  /** Seconds that tuning took. */
  seconds: number;
  /** Class of the device. */
  class: string;
  /** `gain`: how many times as fast the current kernel is as the default, in trials; null if not measured. */
  kernels: { spec: number; kind: string; shape: string; fixed: Fixed; node: string; default: KernelFigures; current: KernelFigures; gain: number | null; tried: number }[];
  /** Milliseconds of a whole warm run, measured last. */
  latency: number | null;
  gain: Gains.Gain;
};
/**
 * Resolves when no candidate is left, a limit of the options is reached, or the signal fires.  Rejects with an
 * EngineError: `input` for bad options, `network` if the source stays lost, `host` after repeated faults.
 */
export type Tune = (engine: Engine.Engine, options: Options) => Promise<Summary>;
/** Options as of `tune`; the source is the server's socket by default, `onSend` is called with what is sent to it. */
export type CheckCrowd = (engine: Engine.Engine, options?: Partial<Pick<Options, 'source' | 'budget' | 'report' | 'signal' | 'onEvent' | 'patience' | 'absence'>> & { onSend?: (header: any) => void }) => Promise<Summary | null>;

// The shapes of what passes between the tuner's files, and its public functions; no browser fetches this file.

// In the tuner's files they are called Tune.Name, those of the engine T.Name.

import type * as Engine from '../engine/types.js';
import type * as Gains from './gains.js';

export as namespace Tune;

export type Bytes = Engine.Bytes;
export type Verdict = 'faster' | 'same' | 'slower' | 'wrong' | 'trapped' | 'hung' | 'refused';
export type Mark = 'default' | 'lite' | 'extended';

// What a page uses.

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
export type Standing = { candidate: number | null; schedule: string; milliseconds: number; gflops: number };
export type Summary = {
  rounds: number;
  /** Of tuning. */
  seconds: number;
  class: string;
  kernels: { spec: number; kind: string; shape: string; node: string; default: Standing; current: Standing; gain: number | null; tried: number }[];
  /** Milliseconds of a whole warm run, as it was seen last. */
  latency: number | null;
  gain: Gains.Gain;
};
/** Resolves when nothing is left to try, the budget is spent, or the signal fires. */
export type Tune = (engine: Engine.Engine, options: Options) => Promise<Summary>;

// Trials.

export type Buffer = {
  dtype: string; size: number; bytes: number;
  /** No element is larger in magnitude; 0: not known. */
  limit: number;
  /** Elements are indices below this; 0: they are none. */
  extent: number;
  /** The model's own memory, if this is a weight and memory is shared. */
  real: Uint8Array | null;
};
export type Facts = {
  spec: number; buffers: Buffer[]; scalars: number[]; slot: number; tiles: number; flops: number;
  /** Results are rounded: schedules may differ in the last bits. */
  rounds: boolean;
  /** NaN and infinities come out where they went in, whatever the schedule. */
  special: boolean;
};
export type OpenedSpecs = {
  facts: (spec: number) => Facts;
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
export type Kernel = { digest: string; module: Bytes; tiles: number };
/** How much faster a candidate must be, and how many times as fast it counts as. */
export type Bar = { margin: number; grant: number };
export type BarOf = (objective: string, needs?: Needs | null, inUse?: Needs | null) => Bar;
type Tried = {
  spec: number; candidate: Kernel; incumbent: Kernel | null; bar: Bar;
  /** The candidate is the compiler's own: its results are right, those of the kernel in use are in question. */
  judge: boolean;
};
/** What a trial needs; `bytes`: of the kernel's buffers. */
export type Work = Tried & { facts: () => Facts; bytes: number };
/** The same on its way to the worker, with facts that it does not know yet, and kernels to forget. */
export type Asked = Tried & { facts: Facts | null; forget: number[] };
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
  attempt(work: Work): Promise<Outcome>;
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
export type Loaded = {
  facts: Facts; addresses: number[]; words: number[]; block: Uint32Array; canaries: Uint8Array[];
  /** By name, what goes in and what the bundle's kernel makes of it. */
  sets: Record<string, TrialSet>;
  /** Kernels that are warm, by digest; '' is the bundle's own. */
  known: Map<string, Runner>;
};
export type Same = (a: Uint8Array, b: Uint8Array) => boolean;
export type RunAll = (runner: Runner, shuffled: boolean) => Promise<void>;
export type Prepare = (facts: Facts, reference: Runner | null) => Promise<void>;
export type Warm = (runner: Runner, other: number) => Promise<number>;
export type Check = (runner: Runner) => Promise<string>;
export type InPieces = (count: number, piece: number, work: (from: number, to: number) => void) => Promise<void>;
export type Lay = (facts: Facts) => Pick<Loaded, 'addresses' | 'words' | 'block' | 'canaries'>;
export type InputsOf = (facts: Facts, set: string) => Promise<(Uint8Array | null)[]>;
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
export type RunnerOf = (known: Kernel | null) => Promise<Runner>;
export type Found = Partial<Outcome> & { verdict: Verdict; wins?: boolean };
export type Question = (facts: Facts, runner: Runner, incumbent: Kernel | null) => Promise<{ wrong?: string; refuted?: string }>;
export type Against = (runner: Runner, other: Runner, bar: Bar, overs: Over[]) => Promise<Found>;
export type Attempt = (work: Asked) => Promise<Outcome>;
export type Quick = (runner: Runner) => Promise<number>;
export type Timed = (work: () => void, most: number) => number;
export type Interval = (values: number[], sure?: number) => { centre: number; low: number; high: number };
export type Judged = (pairs: Pair[], parts: number, sure?: number, far?: number) => Judgement;

// The device.

export type DeviceFacts = { kind: string; vendor: string; architecture: string; features: string[]; l1: number };
export type FactsOf = (info: Pick<Engine.Info, 'features' | 'variant'>, l1: number) => DeviceFacts;
export type Classify = (table: DeviceClass[], facts: DeviceFacts, variant: string) => string;

// Frames, and what the device keeps.

export type Encode = (header: object, ...payloads: Uint8Array[]) => Bytes;
export type Decode = (frame: ArrayBuffer) => { header: any; payload: Bytes };
export type Winner = { spec: number; candidate: number; schedule: string; digest: string; module: Bytes; tiles: number; grains: Record<string, number>; scratch: number; needs?: Needs | null; ratio: number;
  /** It won in another build: `ratio` says nothing. */
  moved?: boolean;
};
export type Record_ = {
  digest: string; variant: string; tool: string;
  /** Of the session before: what was tried, it judged. */
  objective: string;
  /** Class of the device as it was found out, and when. */
  device: string; deviceAt: number;
  /** By number of a kernel, what it computes and where (a digest). */
  about: string[];
  /** By kernel, checksum of the space that the numbers of its candidates are of. */
  checksums: Record<string, string>;
  winners: Winner[];
  /** By kernel, all that were tried; and those that must never run again. */
  tried: Record<string, number[]>;
  bad: Record<string, number[]>;
  /** By kernel, digest of the bundle whose own kernel agrees with the compiler's. */
  sound: Record<string, string>;
  /** The same of bundles whose own disagrees: the compiler's is in use, and nothing else is tried. */
  refuted: Record<string, string>;
  /** Reports without an answer. */
  unsent: Unsent[];
};
export type Recall = (engine: Engine.Engine, anew?: boolean) => Promise<Record_>;
export type Moved = (engine: Engine.Engine, record: Record_) => Promise<Record_>;
export type AboutKernels = (engine: Engine.Engine) => Promise<string[]>;
export type Keep = (engine: Engine.Engine, record: Record_) => Promise<void>;
export type Restore = (engine: Engine.Engine, anew?: boolean) => Promise<number>;
export type ChangeOf = (winner: Winner) => Promise<Engine.Change>;

// The loop.

/** A kernel that is worth tuning, and the step by which the engine times it. */
export type Target = {
  spec: number; plan: number; bucket: Engine.Sizes; step: number; kernel: string; node: string; flops: number;
  /** Of the time of its plan, and of that of all plans, each of which counts the same. */
  part: number; share: number;
  /** Of the kernel in use and of the plan when they were looked at, perhaps before they were warm. */
  milliseconds: number;
  whole: number;
  /** Of the bundle's own kernel, as the latest trial tells; NaN before. */
  own: number;
  /** Whether the step can run by itself, whatever lies in the arena. */
  alone: boolean;
};
export type Sleep = (milliseconds: number, signal: AbortSignal) => Promise<void>;
export type Unless = <Value>(promise: Promise<Value>, signal: AbortSignal) => Promise<Value>;
export type Hearers = { all: Set<Engine.Engine['onjob']>; page: Engine.Engine['onjob'] };
export type Hear = (engine: Engine.Engine, hearer: Engine.Engine['onjob']) => () => void;
export interface Pace {
  readonly spent: number;
  readonly latest: number;
  recent(plan: number): number[];
  forgetRuns(): void;
  guard(trials: Pick<Trials, 'pause'>): void;
  spend(milliseconds: number): void;
  turn(): Promise<void>;
  trial(work: () => Promise<Outcome>): Promise<Outcome>;
  job<Value>(work: () => Promise<Value>, now?: boolean): Promise<Value>;
  end(): void;
}
/** `leave`: called when the page was hidden for `absence` milliseconds; `spent`: milliseconds of earlier sessions. */
export type MakePace = (parts: {
  engine: Engine.Engine; budget: number; signal: AbortSignal; onEvent: (event: Event) => void; leave?: () => void; spent?: number; absence?: number;
}) => Pace;
export type Alone = <Value>(engine: Engine.Engine, signal: AbortSignal, onEvent: (event: Event) => void, work: (waited: boolean) => Promise<Value>) => Promise<Value>;
export type Sent = {
  header: Header; module: Bytes;
  /** What this device spent on making it. */
  milliseconds?: number;
};

/** A source that is opened again when it was lost.  `welcomed` says whether hello was right. */
export type OpenLine = (parts: {
  source: Source; signal: AbortSignal; onEvent: (event: Event) => void; hello: () => Hello; welcomed: (welcome: Welcome) => Promise<boolean>;
}) => Line;
export interface Line {
  classes(): Promise<DeviceClass[]>;
  open(): Promise<void>;
  next(): ReturnType<Source['next']>;
}
export type Patiently = <Value>(work: () => Promise<Value>) => Promise<Value>;

export type OpenLedger = (record: Record_, digest: string, objective: string) => Ledger;
export interface Ledger {
  record: Record_;
  offers: Map<number, Offer>;
  winner(spec: number): Winner | undefined;
  gain(spec: number): number;
  unknown(spec: number): boolean;
  own(spec: number): number | null;
  current(spec: number): number | null;
  use(spec: number, winner?: Winner): void;
  inQuestion(spec: number): boolean;
  refuted(spec: number): boolean;
  tried(spec: number): number[];
  done(spec: number): number[];
  note(spec: number, candidate: number, verdict: Verdict, ratio: number): void;
  agrees(spec: number): void;
  refute(spec: number): void;
  humble(spec: number, most: number): void;
  findings(spec: number): Map<number, number> | null;
  told(spec: number): void;
  untold(): number[];
  take(kernels: Offer[]): number[];
}

/** What the parts of a session share. */
export type Tools = {
  engine: Engine.Engine; objective: string; pace: Pace; signal: AbortSignal; specs: OpenedSpecs; ledger: Ledger; trials: Trials; source: Source;
  onEvent: (event: Event) => void;
  /** Its class. */
  device: string;
  targets: Map<number, Target>;
  changed: Map<number, Changed>;
  /** By kernel, the candidate that was adopted last. */
  won: Map<number, number>;
  compared: Map<string, Gains.Turns>;
};
/** A kernel that a session exchanged: what was in use before, and whether the engine found each exchange for the better. */
export type Changed = { before: Winner | undefined; better: boolean };
/** What goes on when a page comes back: rounds, milliseconds of tuning, the last latency, kernels that nobody confirmed yet, all that were adopted. */
export type Story = { rounds: number; spent: number; latency: number | null; gain: Gains.Gain | null; changed: Map<number, Changed>; won: Map<number, number> };
/** `anew`: another tab may have found more. */
type InSession = Omit<Options, 'signal' | 'onEvent' | 'objective' | 'budget' | 'absence'> & { objective: string; onEvent: (event: Event) => void; signal: AbortSignal; story: Story; anew: boolean };
export type Session = (engine: Engine.Engine, options: InSession & { budget: number; absence?: number; leave: () => void }) => Promise<Summary>;
export type WorkOn = (engine: Engine.Engine, pace: Pace, options: InSession) => Promise<Summary>;
export type Rounds = (tools: Tools, line: Line, story: Story, options: Pick<Options, 'seconds' | 'rounds'> & { tell: (spec: number) => unknown; save: () => Promise<void> }) => Promise<void>;
export type HelloOf = (tools: Tools) => Omit<Hello, 'share'>;
export type TakeOffers = (tools: Tools, reports: Reports, welcome: Welcome) => Promise<boolean>;
export type FindClass = (tools: Tools, line: Line) => Promise<string>;
export type StartOf = (tools: Tools) => Extract<Event, { type: 'start' }>['kernels'];
export type SummaryOf = (story: Story, tools?: Tools) => Summary;
export type FindTargets = (engine: Engine.Engine, pace: Pace, specs: OpenedSpecs, asked?: number[]) => Promise<Map<number, Target>>;
export type PlansInOrder = (engine: Engine.Engine, latest: number) => number[];
export type MayRun = (engine: Engine.Engine, plan: number) => boolean;
export type Profile = (engine: Engine.Engine, pace: Pace, specs: OpenedSpecs, which: PlanOf) => Promise<Engine.StepTime[]>;
export type OpenLatency = (parts: Tools & { target: Target; story: Story }) => {
  changed(): void;
  look(round: number, due?: boolean): Promise<void>;
  tell(round: number, milliseconds: number): void;
};

/** What became of a candidate; null if it was none to try. */
export type Handle = (tools: Tools, sent: Sent, round: number) => Promise<{ verdict: Verdict; swapped: boolean } | null>;
export type TryOne = (tools: Tools, sent: Sent, judge: boolean, bar: Bar) => Promise<Outcome>;
export type NoteWinner = (tools: Tools, sent: Sent, found: { over: number; old: Winner | undefined; better: boolean; refuted: boolean }) => void;
export type TakeIn = (tools: Tools, sent: Sent, outcome: Outcome, old: Winner | undefined) => Promise<{ verdict: Verdict; stays: boolean; better: boolean; before: number; after: number; why?: string }>;
export type PlanOf = Pick<Target, 'plan' | 'bucket'>;
export type PlanTimes = (engine: Engine.Engine, pace: Pace, which: PlanOf, runs?: number) => Promise<number[]>;
export type PlanTime = (...parts: Parameters<PlanTimes>) => Promise<number>;
export type UnlessTrapped = <Value>(times: Promise<Value>, otherwise: Value) => Promise<Value>;
/** `least`: milliseconds of runs. */
export type WarmUp = (engine: Engine.Engine, pace: Pace, which: PlanOf, least?: number) => Promise<number[]>;
export type Looker = (engine: Engine.Engine, pace: Pace, target: Target) => Promise<{ look: () => Promise<number>; first: number }>;
/** `better`: faster by more than what may be chance; times are milliseconds. */
export type Adopt = (engine: Engine.Engine, pace: Pace, target: Target, change: Engine.Change, back: Engine.Change) => Promise<{ stays: boolean; better: boolean; before: number; after: number }>;
export type Confirm = (tools: Tools) => Promise<void>;
export type Slower = (tools: Tools, specs: number[]) => Promise<boolean>;
export type Undo = (tools: Tools, specs: number[]) => Promise<void>;
export type BacksOf = (changed: Map<number, Changed>, specs: number[]) => Promise<Engine.Change[]>;
/** Kernels that are exchanged, and whether a run trapped in one of them meanwhile. */
export type Exchanged = { specs: number[]; trapped: boolean };
export type Undisturbed = <Value>(engine: Engine.Engine, specs: number[], work: (trapped: () => boolean) => Promise<Value>) => Promise<Value>;
export type Examine = (engine: Engine.Engine, error: unknown, again: () => Promise<unknown>) => Promise<void>;

/** `digest`: of the bundle whose default the ratios are over; `at`: when it was made. */
export type Unsent = { at: number; digest: string; report: Report };
export type Reports = {
  tell(offer: Offer | undefined, found: Map<number, number> | null): boolean;
  again(offers: Map<number, Offer>): void;
  farewell(): Promise<void>;
};
export type OpenReports = (parts: { source: Source; record: Record_; digest: string; on: boolean; save: () => Promise<void> }) => Reports;
/** By kernel, the candidates that came in this visit. */
export type ToldOf = (hello: Hello, came: Map<number, Set<number>>) => Told;
export type Whole = (offer: Offer, tried: Record<string, number[]>) => boolean;
export type Fitting = (report: Report, offer: Offer, answer: Report['gold'] | undefined) => Report | null;
/** `own`: the number of the bundle's own kernel; null if it has none. */
export type TopOf = (found: Map<number, number>, own: number | null) => { candidate: number; ratio: number }[];

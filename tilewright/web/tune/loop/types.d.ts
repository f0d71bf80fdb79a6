// Types of a session and its parts; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type * as Gains from '../exchange/types.js';
import type { Ledger, Winner } from '../records/types.js';
import type { Bar, OpenedSpecs, Outcome, Trials } from '../trial/types.js';
import type { Bytes, DeviceClass, Event, Header, Hello, Options, SessionState, Source, Summary, Verdict, Welcome } from '../types.js';

/** A kernel to tune, and the step at which the engine times it. */
export type Target = {
  spec: number; plan: number; bucket: Engine.Sizes; step: number; kernel: string; node: string; flops: number;
  /** `part`: its share of its plan's time, from 0 to 1; `share`: `part` divided by the number of plans. */
  part: number; share: number;
  /** Milliseconds of the kernel in use and of its whole plan, from the profile, possibly before warm-up. */
  milliseconds: number;
  whole: number;
  /** Milliseconds of the bundle's own kernel in the latest trial; NaN before. */
  own: number;
  /** Whether the step can run alone, whatever data is in the arena (it gathers nothing). */
  alone: boolean;
  /** Whether one dispatch computes it together with other steps, so that another kernel for it changes their cost, too. */
  joined: boolean;
};
export type Sleep = (milliseconds: number, signal: AbortSignal) => Promise<void>;
export type Unless = <Value>(promise: Promise<Value>, signal: AbortSignal) => Promise<Value>;
export type Hearers = { all: Set<Engine.Engine['onjob']>; page: Engine.Engine['onjob'] };
export type Hear = (engine: Engine.Engine, hearer: Engine.Engine['onjob']) => () => void;
export interface Pace {
  /** Milliseconds of tuning so far. */
  readonly spent: number;
  /** The plan of the page's last run, or -1. */
  readonly latest: number;
  /** Milliseconds of the page's latest runs of a plan. */
  recent(plan: number): number[];
  forgetRuns(): void;
  guard(trials: Pick<Trials, 'pause'>): void;
  spend(milliseconds: number): void;
  turn(): Promise<void>;
  trial(work: () => Promise<Outcome>): Promise<Outcome>;
  job<Value>(work: () => Promise<Value>, now?: boolean): Promise<Value>;
  end(): void;
}
/** `leave`: called after the page was hidden for `absence` milliseconds; `spent`: milliseconds of earlier sessions. */
export type MakePace = (parts: {
  engine: Engine.Engine; budget: number; signal: AbortSignal; onEvent: (event: Event) => void; leave?: () => void; spent?: number; absence?: number;
}) => Pace;
export type Alone = <Value>(engine: Engine.Engine, signal: AbortSignal, onEvent: (event: Event) => void, work: (waited: boolean) => Promise<Value>) => Promise<Value>;
export type Sent = {
  header: Header; module: Bytes;
  /** Milliseconds that this device spent on compiling it. */
  milliseconds?: number;
};

/** A source that is reopened when its connection is lost.  `welcomed`: false if a corrected hello must be sent. */
export type OpenConnection = (parts: {
  source: Source; signal: AbortSignal; onEvent: (event: Event) => void; hello: () => Hello; welcomed: (welcome: Welcome) => Promise<boolean>;
}) => Connection;
export interface Connection {
  classes(): Promise<DeviceClass[]>;
  open(): Promise<void>;
  next(): ReturnType<Source['next']>;
  /** The next candidate, if it has arrived already. */
  peek(): Sent | null;
  /** Stops asking for candidates and connecting. */
  close(): void;
}
export type OpenForecast = (parts: {
  ledger: Pick<Ledger, 'offers' | 'winner' | 'unknown' | 'inQuestion'>; objective: string;
  /** For each choice of a schedule, its learned effect on the logarithm of a kernel's speed; the forecast updates it. */
  effects: Map<string, number>;
  /** A kernel's share of the time when the session began. */
  shareOf: (spec: number) => number;
}) => Forecast;
/** The choices of a schedule, by field. */
export type Choices = Map<string, string>;
/** The fastest known schedule of a kernel; `speed`: logarithm of its speed over that of the bundle's own. */
export type Fastest = { choices: Choices; speed: number };
/** Chooses which candidate is tried next. */
export interface Forecast {
  /** Adds a candidate that a source sent. */
  take(sent: Sent): void;
  /** The candidate to try next; null if none may be tried, or if fewer than `least` held candidates are not expected to be slow.  With `least` 0 slow ones are tried, too. */
  next(least: number): Sent | null;
  /** The held candidate that will be next if nothing else arrives or is learned; null if all must wait. */
  peek(): Sent | null;
  /** Whether a candidate must wait: it is expected to be slow, or the compiler's own candidate of its kernel must be tried first. */
  waits(sent: Sent): boolean;
  /** The held candidates of this kernel. */
  held(spec: number): number[];
  /** `ratio`: time of the bundle's own kernel over time of this candidate, as measured. */
  learn(header: Header, ratio: number): void;
}
export type OpenQueue = (parts: {
  line: Pick<Connection, 'next'>; forecast: Forecast; pace: Pick<Pace, 'spend' | 'turn'>; signal: AbortSignal;
  /** Whether the session must end. */
  isOver: () => boolean;
}) => { next(): ReturnType<Connection['next']> };
export type Patiently = <Value>(work: () => Promise<Value>) => Promise<Value>;

/** What the parts of a session share.  Maps are keyed by kernel, `compared` by comparison. */
export type Tools = {
  engine: Engine.Engine; objective: string; pace: Pace; signal: AbortSignal; specs: OpenedSpecs; ledger: Ledger; trials: Trials; source: Source;
  onEvent: (event: Event) => void;
  /** The device's class. */
  device: string;
  targets: Map<number, Target>;
  /** Kernels changed in this session that confirm() has not checked yet. */
  changed: Map<number, Changed>;
  /** The candidate adopted last. */
  won: Map<number, number>;
  compared: Map<string, Gains.Turns>;
  forecast: Forecast;
  /** Sets the session's state. */
  enter: (state: SessionState) => void;
  /** Runs a piece of work after all earlier ones have ended. */
  inTurn<Value>(work: () => Promise<Value>): Promise<Value>;
};
/** A kernel that a session changed: the winner in use before (undefined: the bundle's own), and whether the engine's own timing showed a gain at each swap. */
export type Changed = { before: Winner | undefined; better: boolean };
/** State that survives a hidden page's pause: rounds, milliseconds of tuning, last latency, gain, `changed` and `won` of Tools, effects of choices. */
export type Story = { rounds: number; spent: number; latency: number | null; gain: Gains.Gain | null; changed: Map<number, Changed>; won: Map<number, number>; effects: Map<string, number> };
/** The options of `tune`, with defaults. */
export type SessionOptions = Options & Required<Pick<Options, 'objective' | 'budget' | 'onEvent'>>;
/** `left`: the bundle was left to another tab; without a summary if it was cancelled before there was one. */
export type TakeTurn = (again: boolean) => Promise<{ summary: Summary | void; left: boolean }>;
export type SessionWork = (signal: AbortSignal, leave: () => void, anew: boolean) => Promise<Summary>;
/** In the options, `signal` is the page's own signal. */
export type ActiveSessionOptions = Omit<SessionOptions, 'budget' | 'absence'>;
/** `signal`: ends the active session; `enter`: sets the session's state. */
export type ActiveSessionParts = { engine: Engine.Engine; options: ActiveSessionOptions; story: Story; pace: Pace; signal: AbortSignal; enter: (state: SessionState) => void };
export type NextRound = (supply: ReturnType<OpenQueue>, latency: ReturnType<OpenLatency>) => Promise<boolean>;
export type TryNoted = (sent: Sent) => ReturnType<Handle>;
export type Settle = (latency: ReturnType<OpenLatency>, target: Target) => Promise<void>;
export type TakeOffers = (welcome: Welcome) => Promise<boolean>;
export type IsBelieved = (engine: Engine.Engine, source: Source) => boolean;
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

export type Handle = (tools: Tools, sent: Sent, round: number) => Promise<{ verdict: Verdict; swapped: boolean } | null>;
export type TryOne = (tools: Tools, sent: Sent, judge: boolean, bar: Bar) => Promise<Outcome>;
export type NoteWinner = (tools: Tools, sent: Sent, found: { over: number; old: Winner | undefined; better: boolean; refuted: boolean }) => void;
export type TakenIn = { verdict: Verdict; stays: boolean; better: boolean; before: number; after: number; why?: string };
export type TakeIn = (tools: Tools, sent: Sent, outcome: Outcome, old: Winner | undefined) => Promise<TakenIn>;
export type Gone = (verdict: Verdict, why: string) => TakenIn;
export type Caught = (tools: Tools, verdict: Verdict) => Promise<void>;
export type PlanOf = Pick<Target, 'plan' | 'bucket'>;
export type PlanTimes = (engine: Engine.Engine, pace: Pace, which: PlanOf, runs?: number) => Promise<number[]>;
export type PlanTime = (...parts: Parameters<PlanTimes>) => Promise<number>;
export type UnlessTrapped = <Value>(times: Promise<Value>, otherwise: Value) => Promise<Value>;
/** `least`: minimum milliseconds of runs. */
export type WarmUp = (engine: Engine.Engine, pace: Pace, which: PlanOf, least?: number) => Promise<number[]>;
export type Looker = (engine: Engine.Engine, pace: Pace, target: Target) => Promise<{ look: () => Promise<number>; first: number }>;
/** `stays`: not rolled back; `better`: faster by more than the noise; `before`, `after`: milliseconds. */
export type Adopt = (engine: Engine.Engine, pace: Pace, target: Target, change: Engine.Change, back: Engine.Change) => Promise<{ stays: boolean; better: boolean; before: number; after: number }>;
export type Disagreement = (tools: Pick<Tools, 'engine' | 'pace' | 'specs' | 'trials'>, target: Target, change: Engine.Change, back: Engine.Change) => Promise<{ verdict: Verdict; why: string } | null>;
export type Confirm = (tools: Tools) => Promise<void>;
export type Slower = (tools: Tools, specs: number[]) => Promise<boolean>;
export type Undo = (tools: Tools, specs: number[]) => Promise<void>;
export type BacksOf = (engine: Engine.Engine, changed: Map<number, Changed>, specs: number[]) => Promise<Engine.Change[]>;
export type Watch = (engine: Engine.Engine, held: () => boolean, slowest: () => number, act: (again: boolean) => void) => <Found extends object>(job: Promise<Found>, runs?: number) => Promise<Found>;
export type Repeated = (given: Parameters<Engine.Engine['run']>, error?: unknown) => ReturnType<Engine.Engine['run']>;
export type GuardedRun = (start: Promise<boolean> | undefined, given: Parameters<Engine.Engine['run']>, run: () => ReturnType<Engine.Engine['run']>, watched: ReturnType<Watch>) => ReturnType<Engine.Engine['run']>;
export type Recovered = <Value>(start: Promise<boolean> | undefined, job: Promise<Value>) => Promise<Value>;
/** Resolves with `whole`: whether the states were kept. */
export type StartAgain = (guilty: Winner[], whole: boolean) => Promise<boolean>;
/** `slowest`: milliseconds of the engine's slowest run. */
export type Answers = (engine: Engine.Engine, slowest: number) => Promise<boolean>;
/** Counts checks instead of time, since the device may sleep. */
export type Listening = (parts: Pick<Engine.Engine['parts'], 'device' | 'probe'>, slowest: () => number) => (limit: number, each: number) => boolean;
export type ReplacedEngine = (engine: Engine.Engine) => Promise<Engine.Engine>;
export type Saying = (engine: Engine.Engine, sentence: string) => Engine.Engine;
export type Blamed = (engine: Engine.Engine, winners: Winner[]) => Winner[];
/** Where a run of the page trapped during an exchange: in one of its kernels, as memory says, or elsewhere. */
export type Trapped = '' | 'here' | 'elsewhere';
/** An exchange under way, and its kernels. */
export type OpenExchange = { specs: number[]; trapped: Trapped };
export type Undisturbed = <Value>(specs: number[], work: (trapped: () => Trapped) => Promise<Value>) => Promise<Value>;
export type Examine = (error: unknown, again: () => Promise<unknown>) => Promise<void>;

// The shapes of a session and its parts; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type * as Gains from '../exchange/types.js';
import type { Ledger, Reports, Winner } from '../records/types.js';
import type { Bar, OpenedSpecs, Outcome, Trials } from '../trial/types.js';
import type { Bytes, DeviceClass, Event, Header, Hello, Options, Source, Summary, Verdict, Welcome } from '../types.js';

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
export type OpenExchange = { specs: number[]; trapped: boolean };
export type Undisturbed = <Value>(engine: Engine.Engine, specs: number[], work: (trapped: () => boolean) => Promise<Value>) => Promise<Value>;
export type Examine = (engine: Engine.Engine, error: unknown, again: () => Promise<unknown>) => Promise<void>;

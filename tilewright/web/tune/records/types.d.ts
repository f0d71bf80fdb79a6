// Types of what a device stores and reports; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { Bytes, Hello, Needs, Offer, Report, Source, Told, Verdict } from '../types.js';

export type Encode = (header: object, ...payloads: Uint8Array[]) => Bytes;
export type Decode = (frame: ArrayBuffer) => { header: any; payload: Bytes };
/** A tuned kernel in use.  `ratio`: time of the bundle's own kernel over its own, in trials. */
export type Winner = { spec: number; candidate: number; schedule: string; digest: string; module: Bytes; tiles: number; grains: Record<string, number>; scratch: number; needs?: Needs | null; ratio: number;
  /** It won against another build's kernel, so `ratio` is meaningless. */
  moved?: boolean;
};
export type TuningRecord = {
  digest: string; variant: string; tool: string;
  /** The objective by which `tried` was judged. */
  objective: string;
  /** Class of the device, and when it was probed (Date.now()). */
  device: string; deviceAt: number;
  /** By kernel, a digest of what it computes and in which steps. */
  about: string[];
  /** By kernel, checksum of the space that candidate numbers refer to. */
  checksums: Record<string, string>;
  winners: Winner[];
  /** By kernel, all tried candidates. */
  tried: Record<string, number[]>;
  /** By kernel, the candidates that must never run again. */
  bad: Record<string, number[]>;
  /** By kernel, digest of the bundle whose own kernel agrees with the compiler's. */
  sound: Record<string, string>;
  /** By kernel, digest of the bundle whose own kernel disagrees: the compiler's is in use, and no other is tried. */
  refuted: Record<string, string>;
  /** Reports without an acknowledgement. */
  unsent: Unsent[];
  /** Digest of the bundle whose kernels check.js has compared with the compiler's own. */
  checked: string;
  /** How many candidates passed their trial and then failed in the model. */
  caught: number;
};
export type Recall = (engine: Engine.Engine, anew?: boolean) => Promise<TuningRecord>;
export type Moved = (engine: Engine.Engine, record: TuningRecord) => Promise<TuningRecord>;
export type AboutKernels = (engine: Engine.Engine) => Promise<string[]>;
export type Keep = (engine: Engine.Engine, record: TuningRecord) => Promise<void>;
/** Resolves with this tab's record. */
export type Condemn = (engine: Engine.Engine, winners: Winner[]) => Promise<TuningRecord>;
export type Forbid = (record: TuningRecord, spec: number, candidates: number[]) => void;
/** `next` gets null if nothing that fits is stored. */
export type ChangeRecord = (engine: Engine.Engine, next: (stored: TuningRecord | null) => TuningRecord) => Promise<void>;
export type Restore = (engine: Engine.Engine, anew?: boolean) => Promise<number>;
export type ChangeOf = (engine: Engine.Engine, winner: Winner) => Promise<Engine.Change>;

/** `believed`: whether the source may say that the bundle's own kernel is not the compiler's. */
export type OpenLedger = (record: TuningRecord, digest: string, objective: string, believed?: boolean) => Ledger;
export interface Ledger {
  record: TuningRecord;
  believed: boolean;
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

/** `digest`: of the bundle whose default the ratios refer to; `at`: when the report was made (Date.now()). */
export type Unsent = { at: number; digest: string; report: Report };
export type Reports = {
  tell(offer: Offer | undefined, found: Map<number, number> | null, bad?: number[]): boolean;
  again(offers: Map<number, Offer>): void;
  farewell(): Promise<void>;
};
export type OpenReports = (parts: { source: Source; record: TuningRecord; digest: string; on: boolean; save: () => Promise<void> }) => Reports;
/** `came`: by kernel, the candidates that arrived in this visit. */
export type MinimalHello = (hello: Hello, came: Map<number, Set<number>>) => Told;
export type Whole = (offer: Offer, tried: Record<string, number[]>) => boolean;
export type Fitting = (report: Report, offer: Offer, answer: Report['gold'] | undefined) => Report | null;
/** `own`: the number of the bundle's own kernel; null if it is not in the space. */
export type TopOf = (found: Map<number, number>, own: number | null) => { candidate: number; ratio: number }[];

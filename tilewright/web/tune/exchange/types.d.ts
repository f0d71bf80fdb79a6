// Types of the gain, and of the comparison behind it; no browser fetches this file.

// The tuner's files refer to these types as Gains.Name, to other types of the tuner as Tune.Name, and to the engine's as T.Name.

import type * as Engine from '../../engine/types.js';
import type * as Tuner from '../types.js';

export as namespace Gains;

/** The gain of the kernels in use over the bundle's own in whole runs; `text`: the same in words. */
export type Gain =
  /** `none`: no kernel was changed; `unknown`: not measured, and `text` says why. */
  | { verdict: 'none' | 'unknown'; text: string }
  /** `same`: the interval includes 1. */
  | Measured & { verdict: 'faster' | 'same' | 'slower'; text: string };
type Measured = {
  plan: number; bucket: Engine.Sizes;
  /** Number of tuned kernels in the plan. */
  kernels: number;
  /** Time with the bundle's own kernels over time with those in use, its 95 % interval, and the number of pairs. */
  ratio: number; low: number; high: number; pairs: number;
  /** Milliseconds of a whole run with the bundle's own kernels, and with those in use. */
  own: number; tuned: number;
};
/** Measures the gain of tuned kernels of all visits, after a running session has ended; the signal cancels it (`unknown`). */
export type MeasureGain = (engine: Engine.Engine, options?: Pick<Tuner.Options, 'signal' | 'onEvent'>) => Promise<Gain>;

/** `why`: the reason if there is no result; numbers are then NaN. Otherwise ''. */
export type Turns = Omit<Measured, 'plan' | 'bucket' | 'kernels'> & { why: string };
/** A kernel in use, and the one it is compared with; undefined: the bundle's own. */
export type KernelPair = { winner: Tuner.Winner; back: Tuner.Winner | undefined };
export type PairedRuns = (parts: Pick<Tuner.Tools, 'engine' | 'pace' | 'compared' | 'onEvent'>, which: Tuner.PlanOf, kernels: KernelPair[]) => Promise<Turns>;
export type Taken = (parts: Pick<Tuner.Tools, 'engine' | 'pace' | 'onEvent'>, which: Tuner.PlanOf, kernels: KernelPair[]) => Promise<Turns>;
/** Specification numbers of kernels. */
export type Exchanges = (tools: Pick<Tuner.Tools, 'won' | 'ledger'>) => number[];
export type SessionGain = (tools: Tuner.Tools) => Promise<Gain>;
export type GainOf = (parts: Pick<Tuner.Tools, 'engine' | 'pace' | 'compared' | 'onEvent'>, winners: Tuner.Winner[], specs: number[]) => Promise<Gain>;
export type Worded = (verdict: string, found: Measured, several: boolean) => string;

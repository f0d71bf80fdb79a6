// The shapes of what a session gained, and of the comparison behind it; no browser fetches this file.

// In their files they are called Gains.Name, those of the tuner Tune.Name, those of the engine T.Name.

import type * as Engine from '../../engine/types.js';
import type * as Tuner from '../types.js';

export as namespace Gains;

/** What the kernels in use gain over the bundle's own, as whole runs tell; in words, too. */
export type Gain =
  /** Nothing was exchanged; or it was not measured, and the words say why. */
  | { verdict: 'none' | 'unknown'; text: string }
  /** `same`: the interval includes 1. */
  | Measured & { verdict: 'faster' | 'same' | 'slower'; text: string };
type Measured = {
  plan: number; bucket: Engine.Sizes;
  /** Exchanged kernels of the plan. */
  kernels: number;
  /** Time with the bundle's own kernels over time with those in use, its 95 % interval, and pairs of looks. */
  ratio: number; low: number; high: number; pairs: number;
  /** Milliseconds of a whole run with either. */
  own: number; tuned: number;
};
/** Of what kernels of any visit gain.  Waits for the end of a session; the signal ends it. */
export type MeasureGain = (engine: Engine.Engine, options?: Pick<Tuner.Options, 'signal' | 'onEvent'>) => Promise<Gain>;

/** NaN if there is no figure, and why. */
export type Turns = Omit<Measured, 'plan' | 'bucket' | 'kernels'> & { why: string };
/** A kernel in use and what it is compared with: another one, or the bundle's own. */
export type KernelPair = { winner: Tuner.Winner; back: Tuner.Winner | undefined };
export type ByTurns = (parts: Pick<Tuner.Tools, 'engine' | 'pace' | 'compared' | 'onEvent'>, which: Tuner.PlanOf, kernels: KernelPair[]) => Promise<Turns>;
export type Taken = (parts: Pick<Tuner.Tools, 'engine' | 'pace' | 'onEvent'>, which: Tuner.PlanOf, kernels: KernelPair[]) => Promise<Turns>;
/** Numbers of kernels. */
export type Exchanges = (tools: Pick<Tuner.Tools, 'won' | 'ledger'>) => number[];
export type SessionGain = (tools: Tuner.Tools) => Promise<Gain>;
export type GainOf = (parts: Pick<Tuner.Tools, 'engine' | 'pace' | 'compared' | 'onEvent'>, winners: Tuner.Winner[], specs: number[]) => Promise<Gain>;
export type Worded = (verdict: string, found: Measured, several: boolean) => string;

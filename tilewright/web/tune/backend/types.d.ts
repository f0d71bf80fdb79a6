// Types of the device-specific part of tuning; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { FactsOf } from '../device/types.js';
import type { Winner } from '../records/types.js';
import type { Code, OpenSpecs } from '../trial/types.js';

/** The tuning functions of one kind of device. */
export interface Backend {
  /** Reads the kernels of a bundle for trials. */
  openSpecs: OpenSpecs;
  /** The worker of trials; by default that of WebAssembly. */
  start?: () => Worker;
  /** True if starting the worker and making candidates take long; both then begin before they are needed. */
  early?: boolean;
  /** The facts by which the device's class is found, given bytes of L1. */
  factsOf: FactsOf;
  /** The number of probes of L1 for that. */
  PROBES: number;
  /** The most tiles of a candidate. */
  MOST_TILES: number;
  /** A winner's code in the engine's form; rejects with `input` if it contains anything but a kernel. */
  codeOf: (winner: Pick<Winner, 'spec' | 'module'>) => Promise<Code>;
}
export type BackendOf = (engine: Pick<Engine.Engine, 'parts'>) => Promise<Backend>;

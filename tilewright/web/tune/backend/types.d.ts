// Types of what devices do differently in tuning; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { FactsOf } from '../device/types.js';
import type { Winner } from '../records/types.js';
import type { Code, OpenSpecs } from '../trial/types.js';

/** One kind of device, as tuning sees it. */
export interface Backend {
  /** What a trial reads of a bundle. */
  openSpecs: OpenSpecs;
  /** The worker of trials; by default that of WebAssembly. */
  start?: () => Worker;
  /** Whether that takes long, and making candidates too: both then begin before they are needed. */
  early?: boolean;
  /** By what the device's class is found, given bytes of L1. */
  factsOf: FactsOf;
  /** How often L1 is probed for that. */
  PROBES: number;
  /** Most tiles of a candidate. */
  MOST_TILES: number;
  /** A winner's code as the engine takes it; fails with `input` if it holds anything but a kernel. */
  codeOf: (winner: Pick<Winner, 'spec' | 'module'>) => Promise<Code>;
}
export type BackendOf = (engine: Pick<Engine.Engine, 'parts'>) => Promise<Backend>;

// Types of device classes; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { DeviceClass } from '../types.js';

/** Facts that are matched against classes; `l1`: bytes of L1 data cache, 0 if unknown. */
export type DeviceFacts = { kind: string; vendor: string; architecture: string; features: string[]; l1: number };
export type FactsOf = (info: Pick<Engine.Info, 'features' | 'variant'> & { adapter?: Engine.Info['adapter'] }, l1: number) => DeviceFacts;
export type Classify = (table: DeviceClass[], facts: DeviceFacts, variant: string) => string;

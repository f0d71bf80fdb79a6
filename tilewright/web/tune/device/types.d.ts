// The shapes of what is known of a device; no browser fetches this file.

import type * as Engine from '../../engine/types.js';
import type { DeviceClass } from '../types.js';

export type DeviceFacts = { kind: string; vendor: string; architecture: string; features: string[]; l1: number };
export type FactsOf = (info: Pick<Engine.Info, 'features' | 'variant'>, l1: number) => DeviceFacts;
export type Classify = (table: DeviceClass[], facts: DeviceFacts, variant: string) => string;

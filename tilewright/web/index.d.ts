/// <reference path="./engine/types.d.ts" />
// The engine's types for users of the npm package; engine/engine.js is what they describe.

import type { Engine, HostFeatures, LoadOptions, Manifest } from './engine/types.js';

export type * from './engine/types.js';
export { EngineError } from './engine/errors.js';

/** Loads a bundle.  Rejects with an EngineError, or with an AbortError when `signal` fires. */
export function load(url: string | URL, options?: LoadOptions): Promise<Engine>;

/** The manifest of a bundle, verified, without its code and weights. */
export function inspect(url: string | URL): Promise<Manifest>;

/** What this browser can do, found by asking it. */
export function probeHost(): HostFeatures;

/** How many bytes of bundle files this origin keeps. */
export function cachedBytes(): Promise<number>;

/** Forgets every bundle file; gives how many bytes there were. */
export function clearCache(): Promise<number>;

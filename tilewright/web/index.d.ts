/// <reference path="./engine/types.d.ts" />
// Types of the npm package's main entry, which is engine/engine.js.

import type { Engine, HostFeatures, LoadOptions, Manifest } from './engine/types.js';

export type * from './engine/types.js';
export { EngineError } from './engine/errors.js';

/** Loads a bundle from its folder's URL.  Rejects with an EngineError, or with an AbortError when `signal` fires. */
export function load(url: string | URL, options?: LoadOptions): Promise<Engine>;

/** Reads and verifies only a bundle's manifest; `key`: its signature, too.  Rejects with an EngineError. */
export function inspect(url: string | URL, options?: { key?: string }): Promise<Manifest>;

/** This browser's features, detected by running tiny Wasm modules. */
export function probeHost(): HostFeatures;

/** Total bytes of bundle files that this origin keeps. */
export function cachedBytes(): Promise<number>;

/** Deletes all kept bundle files; resolves with their total bytes. */
export function clearCache(): Promise<number>;

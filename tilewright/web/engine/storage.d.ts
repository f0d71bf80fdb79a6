// Types of how a bundle's files are read and kept; no browser fetches this file.

import type { FileRef } from './manifest.js';
import type { Bytes, Phase, Progress } from './types.js';

/** The files of one bundle, verified. */
export interface Files {
  /**
   * Reads bundle.json from the server, or the stored copy if the server cannot be reached.  An answer that `read`
   * rejects, such as a gateway's HTML page, never replaces the stored copy.
   */
  pointer<T>(name: string, read: (bytes: Bytes, name: string) => T): Promise<T>;
  /**
   * Called when all files are complete.  Only then is the pointer stored: an interrupted download leaves the
   * previous bundle usable offline.  Files that no pointer reaches any more are deleted.
   */
  settle(): Promise<void>;
  bytes(ref: FileRef): Promise<Bytes>;
  /**
   * Reads a file straight into `region`, without a second copy in the page.  A stored file was verified when it was
   * stored.  It is verified again if it is small (plan images and code are), or if the page asked for that.
   */
  into(ref: FileRef, region: Uint8Array): Promise<void>;
  /**
   * A compiled module, after its digest was verified.  compileStreaming gets the network's own response even if the store has the file, since only then the
   * browser caches the optimised machine code.  `exported`: the functions that the module must export (vet.js).
   */
  module(ref: FileRef, exported: Record<string, string>): Promise<{ module: WebAssembly.Module; problem: string }>;
}
export type FilesParts = {
  base: URL;
  store: Store;
  meter: Meter;
  signal: AbortSignal;
  /** Verify stored weights too. */
  verify?: boolean;
};

/** Files that this origin keeps.  A file with a name is always complete, even after a crash or power loss. */
export interface Store {
  readonly on: boolean;
  /** A sentence about why the store is off; '' while it works. */
  readonly problem: string;
  has(name: string): Promise<boolean>;
  drop(name: string): Promise<void>;
  /** Fills the region with a stored file; false if there is none of exactly this length. */
  read(name: string, region: Uint8Array): Promise<boolean>;
  /** Stores verified bytes.  Tabs write one at a time; a worker terminated half-way leaves no file of this name. */
  keep(name: string, bytes: Uint8Array): Promise<void>;
  /** A small file of unknown length. */
  find(name: string): Promise<Bytes | null>;
  /** Adds the names of all files reachable from a stored pointer to `found`, the pointer's own included. */
  reach(name: string, found?: Set<string>, depth?: number): Promise<Set<string>>;
  /**
   * Deletes the files in `old`, and files that were not written for thirty days, unless a pointer written in the last thirty days reaches them.  Never rejects.
   */
  tidy(old: Set<string>): Promise<void>;
}

/** Counts the bytes of a load; `loaded` includes `cached`. */
export interface Meter {
  loaded: number;
  cached: number;
  total: number;
  /** For progress reports of backends that make pipelines. */
  pipelines?: Progress['pipelines'];
  enter(phase: Phase): void;
  /** `bytes` is negative after a failed read, which will be repeated. */
  count(bytes: number, fromCache: boolean): void;
}

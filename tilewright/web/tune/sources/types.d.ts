// The shapes that the sources without a server share; no browser fetches this file.

// In their files they are called S.Name, those of the tuner Tune.Name, those of the engine T.Name.

import type * as Engine from '../../engine/types.js';
import type * as Tuner from '../types.js';

export as namespace S;

/** An offer with all candidates in their order of trial. */
export type Ordered = Tuner.Offer & { order: number[] };
/** A row of the table of classes; `fallback` is the next wider one, or ''. */
export type Row = Tuner.DeviceClass & { fallback: string };
export type CandidateRef = { spec: number; candidate: number };

/** `tuning/index.json` of a static build (docs/modes.md). */
export type Index = {
  format: number;
  tool: string;
  /** Digest of the manifest whose kernels these are. */
  bundle: string;
  /** What the candidates serve; those of `latency` are all that there are. */
  objective: string;
  classes: Row[];
  /** By class: the file that lists its candidates. */
  spaces: Record<string, Engine.FileRef>;
};
export type Listed = Pick<Tuner.Header, 'mark' | 'schedule' | 'digest' | 'tiles' | 'grains' | 'scratch' | 'needs' | 'bytes'>;
/** What that file holds of each kernel. */
export type ListedKernel = Ordered & { candidates: (Listed | null)[] };

export type PyodideOptions = {
  /** The bundle's URL. */
  bundle: string | URL;
  /** Folder with the compiler's source and Pyodide's core; by default beside the engine. */
  compiler?: string | URL;
  /** Folder of Pyodide's core, if it is elsewhere. */
  pyodide?: string | URL;
  /** Ends the worker. */
  signal?: AbortSignal;
  onProgress?: (progress: Started) => void;
};
/** How long the parts of a start took, in milliseconds: Python's interpreter, the compiler's modules. */
export type Started = { tool: string; python: number; compiler: number };

export type InOrder = (kernels: Ordered[], hello: Tuner.Hello) => CandidateRef[];
export type Serving = (kernel: ListedKernel, objective?: string) => number[];
export type FilesOf = (url: string | URL, signal: AbortSignal) => Engine.Files;
export type ReadJson = (bytes: Uint8Array, place: string) => any;
export type FileOf = (listed: Listed) => Engine.FileRef;
export type Nearest = (device: string, classes: Row[], spaces: object) => string;

// Types of the sources without a server; no browser fetches this file.

// Their files refer to these types as S.Name, to the tuner's as Tune.Name, to the engine's as T.Name.

import type * as Engine from '../../engine/types.js';
import type * as Tuner from '../types.js';

export as namespace S;

/** An offer with all candidates in their order of trial. */
export type Ordered = Tuner.Offer & { order: number[] };
/** A row of the table of classes; `fallback`: id of the next wider class, or ''; `target`: whose code it runs. */
export type Row = Tuner.DeviceClass & { fallback: string; target?: string };
export type CandidateRef = { spec: number; candidate: number };

/** `tuning/index.json` of a static build (docs/modes.md). */
export type Index = {
  format: number;
  tool: string;
  /** Digest of the manifest whose kernels these are. */
  bundle: string;
  /** The objective of the candidates; `latency`: all candidates of the spaces. */
  objective: string;
  classes: Row[];
  /** By class: the file that lists its candidates. */
  spaces: Record<string, Engine.FileRef>;
};
export type Listed = Pick<Tuner.Header, 'mark' | 'schedule' | 'features' | 'digest' | 'tiles' | 'grains' | 'scratch' | 'needs' | 'bytes' | 'signature'>;
/** A kernel in such a file; a candidate that cannot be made or does not serve the objective is null. */
export type ListedKernel = Ordered & { candidates: (Listed | null)[] };

export type PyodideOptions = {
  /** The bundle's URL. */
  bundle: string | URL;
  /** The key that must have signed it, as for `load`. */
  key?: string;
  /** Folder with the compiler's source and Pyodide's core; by default beside the engine. */
  compiler?: string | URL;
  /** Folder of Pyodide's core; default: `compiler`. */
  pyodide?: string | URL;
  /** Ends the source and its worker. */
  signal?: AbortSignal;
  onProgress?: (progress: Started) => void;
};
/** The compiler's version, and milliseconds that the start of the Python interpreter and of the compiler took. */
export type Started = { tool: string; python: number; compiler: number };

export type InOrder = (kernels: Ordered[], hello: Tuner.Hello) => CandidateRef[];
export type Serving = (kernel: ListedKernel, objective?: string) => number[];
export type FilesOf = (url: string | URL, signal: AbortSignal) => Engine.Files;
export type StatementOf = (bundle: string, header: Tuner.Header, digest: string) => string;
export type ReadJson = (bytes: Uint8Array, place: string) => any;
export type JsonOf = (response: Pick<Response, 'body'>, what: string) => Promise<any>;
export type Heard = (value: any, form: any, what: string) => any;
export type FileOf = (listed: Listed, extension: string) => Engine.FileRef;
export type SectionWith = (manifest: Engine.Manifest, variant: string) => Engine.Section;
export type Nearest = (device: string, classes: Row[], spaces: object) => string;

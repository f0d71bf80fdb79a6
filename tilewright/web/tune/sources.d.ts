// What the sources of candidates speak of (docs/modes.md); no browser fetches this file.
// In the files of sources they are called S.Name.

export as namespace S;

/** The first message of a session: docs/tuning-protocol.md. */
export type Hello = {
  /** Of the bundle's manifest. */
  digest: string;
  /** Id of the device class. */
  device: string;
  objective?: string;
  /** Which kernels to tune, hottest first. */
  specs: number[];
  /** Of each of them, its share of the time. */
  shares?: number[];
  /** Candidates that need not come again. */
  tried?: Record<number, number[]>;
};

/** A kernel that may be tuned. */
export type Offer = {
  spec: number;
  kind: string;
  shape: string;
  checksum: string;
  count: number;
  default: number;
  gold: { a: number; b: number } | null;
};
/** An offer with all candidates in their order of trial. */
export type Ordered = Offer & { order: number[] };
export type Welcome = { type: 'welcome'; compiler: string; kernels: Offer[] };

export type Header = {
  type: 'kernel';
  spec: number;
  candidate: number;
  mark: string;
  schedule: string;
  checksum: string;
  digest: string;
  tiles: number;
  /** Tiles per ticket, by number of the plan. */
  grains: Record<string, number>;
  scratch: number;
  bytes: number;
};
/** A candidate on its way to the tuner; its bytes are those of the digest. */
export type Sent = { header: Header; module: Uint8Array<ArrayBuffer> };

/** Where candidates come from.  Every method may reject with an EngineError; `next` may be asked again then. */
export interface Source {
  /** The public table of device classes, from which the page chooses its own. */
  classes(): Promise<DeviceClass[]>;
  open(hello: Hello): Promise<Welcome>;
  /** The next candidate; null when there is none left. */
  next(): Promise<Sent | null>;
  result(result: object): Promise<void>;
  report(report: { nonce: string }): Promise<{ nonce: string; accepted: boolean; reason: string }>;
  close(): Promise<void>;
}

/** A row of the table (targets/classes.py). */
export type DeviceClass = { id: string; fallback: string } & Record<string, unknown>;

/** `tuning/index.json` of a static build. */
export type Index = {
  format: number;
  tool: string;
  /** Digest of the manifest whose kernels these are. */
  bundle: string;
  classes: DeviceClass[];
  /** By class: the file that lists its candidates. */
  spaces: Record<string, T.FileRef>;
};
export type ListedCandidate = Pick<Header, 'mark' | 'schedule' | 'digest' | 'tiles' | 'grains' | 'scratch' | 'bytes'>;
/** What that file holds of each kernel. */
export type ListedKernel = Ordered & { candidates: ListedCandidate[] };

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

export type InOrder = (kernels: Ordered[], hello: Hello) => { spec: number; candidate: number }[];
export type FilesOf = (url: string | URL, signal: AbortSignal) => T.Files;
export type ReadJson = (bytes: Uint8Array, place: string) => any;
export type FileOf = (header: ListedCandidate) => T.FileRef;

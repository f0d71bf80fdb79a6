// Candidates from the folder of a static build: all were compiled in advance, so no tuning server is needed.
// Input: the URL of `tuning/` (docs/modes.md).  Output: a source of candidates, verified by digest.

import { folderOf, requireForm } from '../../engine/bundle.js';
import { bundleFiles, makeMeter } from '../../engine/files.js';
import { EngineError } from '../../engine/errors.js';
import { INDEX as INDEX_FORM, LIST } from './answer_checks.js';
import { LATENCY } from '../loop/objective.js';
import { inOrder, serving, unheard } from '../loop/candidate_order.js';

const FORMAT = 1;
const INDEX = 'index.json';
const REBUILD = 'Build the bundle again with --static, and copy all of its folder to the server';

/** Candidates are read once, so the HTTP cache is enough. @type {T.Store} */
const NO_STORE = {
  on: false,
  problem: '',
  has: async () => false,
  drop: async () => {},
  read: async () => false,
  keep: async () => {},
  find: async () => null,
  reach: async () => new Set(),
  tidy: async () => {},
};

/** Reads files below a URL and verifies their digests. @type {S.FilesOf} */
export const filesOf = (url, signal) => bundleFiles({ base: new URL(url), store: NO_STORE, meter: makeMeter(() => {}), signal });

/**
 * A source that reads a static build.  Its methods reject with `bundle-version`, `bundle-corrupt`, `input`,
 * `unsupported-host` or `network`.
 * @param {string | URL} url of the folder `tuning/`
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Tune.Source}
 */
export function folderSource(url, { signal } = {}) {
  const stop = new AbortController();
  const base = new URL(folderOf(url));
  const files = filesOf(base, signal ? AbortSignal.any([signal, stop.signal]) : stop.signal);
  /** @type {Promise<S.Index> | null} */
  let reading = null;
  /** @type {Map<number, S.ListedKernel>} */
  let listed = new Map();
  /** @type {S.CandidateRef[]} */
  let left = [];
  /** Of the files of candidates: that of the class's target. */
  let extension = '';

  /** The index, read once; read again after a failure. */
  const index = () => (reading ??= files.pointer(INDEX, readIndex).catch((error) => {
    reading = null;
    throw error;
  }));

  return {
    origin: base.origin,

    async classes() {
      return (await index()).classes;
    },

    async objective() {
      return (await index()).objective;
    },

    async open(hello) {
      const { tool, bundle, objective, classes, spaces } = await index();
      if (bundle !== hello.digest) {
        throw new EngineError('bundle-version', `The candidates belong to another build of the bundle, by ${tool}`, REBUILD,
          { path: base.href, tool, found: bundle, expected: hello.digest });
      }
      // A build for latency has all candidates, and serving() orders them for any objective; other builds have a selection.
      if (objective !== LATENCY && objective !== hello.objective) {
        throw new EngineError('input', `The candidates are for the objective ${objective}, but the page tunes for ${hello.objective}`,
          `Tune with the option objective: '${objective}', or build the bundle again with --static and without --objective`,
          { path: base.href, found: objective, expected: hello.objective });
      }
      const device = nearest(hello.device, classes, spaces);
      const ref = spaces[device];
      extension = classes.find(({ id }) => id === device)?.target ?? 'wasm';
      const { kernels } = requireForm(readJson(await files.bytes(checked(ref)), ref.file), LIST, ref.file);
      listed = new Map(kernels.map((/** @type {S.ListedKernel} */ kernel) => [kernel.spec, kernel]));
      const runs = (/** @type {S.ListedKernel} */ { candidates }, /** @type {number} */ number) => (candidates[number]?.features ?? []).every((name) => hello.features.includes(name));
      left = inOrder([...listed.values()].map((kernel) => ({ ...kernel, order: serving(kernel, hello.objective).filter((number) => runs(kernel, number)) })), hello);
      const offers = hello.specs.flatMap((spec) => listed.get(spec) ?? []);
      // Where the device cannot run the bundle's choice, the bundle has the compiler's own as well.
      return {
        compiler: tool,
        kernels: offers.map(({ candidates, order, ...offer }) => (
          runs({ ...offer, candidates, order }, offer.default ?? 0) ? offer : { ...offer, default: 0, schedule: candidates[0]?.schedule, needs: candidates[0]?.needs })),
      };
    },

    async next() {
      const trial = left.shift();
      const kernel = trial && listed.get(trial.spec);
      if (!kernel) return null;
      const { spec, candidate } = trial;
      const found = kernel.candidates[candidate];
      if (!found) throw corrupt(`Candidate ${candidate} of kernel ${spec} is not in its list`, { spec, candidate });
      const module = await files.bytes(checked(blob(found, extension)));
      return { header: { spec, candidate, checksum: kernel.checksum, ...found }, module };
    },

    ...unheard,

    close() {
      left = [];
      stop.abort();
    },
  };
}

/** @type {S.FileOf} */
const blob = ({ digest, bytes }, extension) => ({ file: `blobs/${digest}.${extension}`, digest, bytes });

/** The device's class, or the nearest wider one with candidates; throws `unsupported-host` if there is none. @type {S.Nearest} */
function nearest(device, classes, spaces) {
  const table = new Map(classes.map((row) => [row.id, row]));
  const seen = new Set();
  let id = device;
  while (!Object.hasOwn(spaces, id) && table.has(id) && !seen.has(id)) {
    seen.add(id);
    id = /** @type {S.Row} */ (table.get(id)).fallback;
  }
  if (Object.hasOwn(spaces, id)) return id;
  throw new EngineError('unsupported-host', `There are no candidates for devices of class ${device}`,
    'Build the bundle with --static and without --classes, or with this class among them', { device, built: Object.keys(spaces) });
}

/** @param {string} message @param {T.ErrorFacts} facts */
const corrupt = (message, facts) => new EngineError('bundle-corrupt', message, REBUILD, facts);

/** @type {S.ReadJson} */
function readJson(bytes, place) {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw corrupt(`${place} is not valid JSON: ${error instanceof Error ? error.message : error}`, { path: place });
  }
}

/** @type {(bytes: Uint8Array, place: string) => S.Index} */
function readIndex(bytes, place) {
  const value = readJson(bytes, place);
  const found = value?.format;
  if (!Number.isInteger(found)) throw corrupt(`${place} has no format version`, { path: place });
  if (found !== FORMAT) {
    throw new EngineError('bundle-version', `${place} is ${found < FORMAT ? 'older' : 'newer'} than this page: it has format ${found}, the page reads ${FORMAT}`,
      REBUILD, { path: place, found, expected: FORMAT, tool: value.tool });
  }
  return requireForm(value, INDEX_FORM, place);
}

/** No digest covers the index, so its references are checked before memory of that length is allocated. @param {T.FileRef} ref */
function checked(ref) {
  const sound = /^blobs\/[0-9a-f]{64}\.(wasm|wgsl|json)$/.test(ref?.file) && Number.isInteger(ref.bytes) && ref.bytes >= 0 && ref.bytes < 1 << 28;
  if (!sound) throw corrupt('The list of candidates has an invalid file reference', { file: ref?.file, bytes: ref?.bytes });
  return ref;
}

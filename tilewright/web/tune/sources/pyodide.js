// Candidates compiled on the device: the compiler runs under Pyodide in a worker of the page.
// Input: the URLs of a bundle and of the compiler (docs/modes.md).  Output: a source of candidates.
// Each has the same digest as the kernel that a server would send.

import { folderOf, requireForm } from '../../engine/bundle.js';
import { inspect } from '../../engine/engine.js';
import { EngineError } from '../../engine/errors.js';
import { launchWorker } from '../../engine/start_worker.js';
import { filesOf } from './folder.js';
import { CANDIDATE, MADE, OFFERED } from './answer_checks.js';
import { inOrder, unheard } from '../loop/candidate_order.js';

/** Milliseconds for the start, which may have to fetch and compile megabytes. */
const START_LIMIT = 120_000;
/** Milliseconds for other requests; a kernel usually takes less than a second. */
const LIMIT = 60_000;

const COMPILER = 'the answer of the compiler in the page';

/** Bundlers recognise the file only in this literal form. */
const SOURCE = new URL('../../compiler/source.zip', import.meta.url);

/** A source that compiles in the page.  Its methods reject with `bundle-version`, `bundle-corrupt`, `host` or `network`. @param {S.PyodideOptions} options @returns {Tune.Source} */
export function pyodideSource({ bundle, key, compiler, pyodide = compiler ?? new URL('.', SOURCE), signal, onProgress = () => {} }) {
  const stop = new AbortController();
  const ended = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  /** @type {S.CandidateRef[]} */
  let left = [];
  /** @type {ReturnType<typeof startWorker> | null} */
  let worker = null;

  /** Starts the worker once; may be called again after a failure. */
  async function start() {
    ended.throwIfAborted();
    if (worker) return worker;
    const starting = startWorker(ended);
    try {
      const { href: source } = compiler ? new URL('source.zip', folder(compiler)) : SOURCE;
      onProgress(starting.started = await starting.ask('start', { source, pyodide: folder(pyodide) }, START_LIMIT));
      worker = starting;
      return starting;
    } catch (error) {
      starting.end();
      throw error;
    }
  }

  return {
    origin: new URL(folderOf(bundle)).origin,

    classes: async () => (await (await start()).ask('classes', {}, LIMIT)),

    async open(hello) {
      const [manifest, compiling] = await Promise.all([inspect(bundle, { key }), start()]);
      if (manifest.digest !== hello.digest) {
        throw new EngineError('bundle-version', 'The bundle was rebuilt after the page had loaded it', 'Load the page again', { found: manifest.digest, expected: hello.digest });
      }
      const { tool } = compiling.started;
      if (tool !== manifest.tool) {
        throw new EngineError('bundle-version', `The compiler in the page is ${tool}, the bundle is by ${manifest.tool}`,
          'Build the bundle again with --client, so that both are of one version', { found: tool, expected: manifest.tool });
      }
      const files = filesOf(folderOf(bundle), ended);
      const [kernels, slots] = await Promise.all([manifest.kernels, sectionWith(manifest, hello.variant).kernels].map(async (ref) => new TextDecoder().decode(await files.bytes(ref))));
      const plans = manifest.plans.map(({ steps }) => steps.map(({ spec }) => spec));
      /** @type {S.Ordered[]} */
      const offered = requireForm(await compiling.ask('open', { ...hello, kernels, slots, plans }, START_LIMIT), OFFERED, COMPILER);
      left = inOrder(offered, hello);
      return { compiler: tool, kernels: offered.map(({ order, ...offer }) => offer) };
    },

    async next() {
      let milliseconds = 0;
      for (let trial; worker && (trial = left.shift());) {
        const made = requireForm(await worker.ask('make', trial, LIMIT), MADE, COMPILER);
        milliseconds += made.milliseconds;
        if (made.header) return { ...requireForm(made, CANDIDATE, COMPILER), milliseconds };
      }
      return null;
    },

    ...unheard,

    close() {
      left = [];
      worker?.end();
      stop.abort();
    },
  };
}

/** The folder of a program's files. @param {string | URL} url */
const folder = (url) => new URL('.', new URL(String(url).replace(/\/?$/, '/'), globalThis.document?.baseURI)).href;

/** The section with the code that the page runs. @type {S.SectionWith} */
function sectionWith({ targets }, variant) {
  const found = Object.values(targets).find(({ builds }) => builds.some((build) => build.variant === variant));
  if (found) return found;
  throw new EngineError('bundle-corrupt', `The bundle has no code of the variant ${variant}`, 'Build the bundle again', { variant });
}

/** A worker that answers requests, each within a time limit. @param {AbortSignal} signal */
function startWorker(signal) {
  const worker = launchWorker(() => new Worker(new URL('./pyodide_worker.js', import.meta.url), { type: 'module', name: 'tilewright-compiler' }));
  /** @type {Map<number, PromiseWithResolvers<any>>} */
  const open = new Map();
  let count = 0;
  /** @type {unknown} */
  let reason = null;

  /** @param {unknown} why */
  function end(why = new EngineError('disposed', 'The compiler was ended', 'Open the source again')) {
    reason ??= why;
    worker.terminate();
    signal.removeEventListener('abort', aborted);
    for (const { reject } of open.values()) reject(reason);
    open.clear();
  }
  const aborted = () => end(signal.reason);
  signal.addEventListener('abort', aborted);
  worker.addEventListener('error', ({ message }) => end(new EngineError('host', `The compiler's worker failed: ${message || 'its script could not be loaded'}`,
    'Check that tune/sources/pyodide_worker.js is on the server, and that the content security policy allows workers to run it')));
  worker.addEventListener('message', ({ data: { id, value, error } }) => {
    const answer = open.get(id);
    open.delete(id);
    if (error) answer?.reject(EngineError.from(error));
    else answer?.resolve(value);
  });

  return {
    /** @type {S.Started} */
    started: { tool: '', python: 0, compiler: 0 },
    end,

    /** @param {string} kind @param {object} params @param {number} limit @returns {Promise<any>} */
    async ask(kind, params, limit) {
      if (reason) throw reason;
      const id = count++;
      const answer = Promise.withResolvers();
      open.set(id, answer);
      const timer = setTimeout(() => end(new EngineError('host', `The compiler did not answer for ${limit / 1000} s`,
        'Close other tabs, or tune with a server or a static build instead', { kind, limit })), limit);
      worker.postMessage({ id, kind, params });
      return answer.promise.finally(() => clearTimeout(timer));
    },
  };
}

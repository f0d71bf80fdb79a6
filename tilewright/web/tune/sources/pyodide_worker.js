// The worker that runs the compiler under Pyodide, from the same Python source as on the server.
// Input: requests {id, kind, params}.  Output: {id, value} or {id, error}.  It fetches only Pyodide's core and the
// compiler's source, from the URLs that the page gives.

import { EngineError } from '../../engine/errors.js';

const FOLDER = '/compiler';
const ENTRY = 'tilewright.tuning.page_compiler';

/** The Python side: tuning/page_compiler.py. @type {any} */
let client = null;

/** @param {string} what @param {unknown} cause @param {T.ErrorFacts} facts */
const failed = (what, cause, facts = {}) => new EngineError('host', `${what}: ${cause}`,
  'Check that the compiler folder of a build with --client is on the server, and that the page may use WebAssembly; kernels stay as they are', facts);

/** @param {string} url */
async function bytesOf(url) {
  const response = await fetch(url).catch((error) => {
    throw failed(`${url} could not be fetched`, error);
  });
  if (!response.ok) throw failed(`${url} is missing`, response.status, { file: url, status: response.status });
  return new Uint8Array(await response.arrayBuffer());
}

/** @type {Record<string, (params: any) => Promise<any> | any>} */
const HANDLERS = {
  async start({ source, pyodide }) {
    const start = performance.now();
    // Fetched in parallel; the first failure is reported.
    const [archive, python] = await Promise.all([bytesOf(source), startPython(pyodide)]);
    const started = performance.now();
    try {
      python.unpackArchive(archive, 'zip', { extractDir: FOLDER });
      python.runPython(`import sys; sys.path.insert(0, '${FOLDER}')`);
      client = python.pyimport(ENTRY);
    } catch (error) {
      throw failed('The compiler does not start', lastLine(error), { file: source });
    }
    return { tool: client.TOOL, python: started - start, compiler: performance.now() - started };
  },

  /** @returns {S.Row[]} */
  classes: () => JSON.parse(call('classes')[0]),

  /** @returns {S.Ordered[]} */
  open: (given) => JSON.parse(call('open', JSON.stringify(given))[0]),

  /** The header is null if the candidate cannot be made; Python logs the reason to the console. */
  make({ spec, candidate }) {
    const start = performance.now();
    const [header, module] = call('make', spec, candidate);
    return { header: JSON.parse(header), module, milliseconds: performance.now() - start };
  },
};

/** @param {string} folder */
async function startPython(folder) {
  try {
    const { loadPyodide } = await import(/* @vite-ignore */ /* webpackIgnore: true */ new URL('pyodide.mjs', folder).href);
    return await Promise.race([loadPyodide({ indexURL: folder }), brokenModule()]);
  } catch (error) {
    throw failed('Pyodide does not start', error instanceof Error ? error.message : error, { file: folder });
  }
}

/** Rejects when a module cannot be instantiated: Pyodide would only log that and never settle. */
function brokenModule() {
  const { instantiateStreaming } = WebAssembly;
  return new Promise((_, reject) => {
    WebAssembly.instantiateStreaming = (/** @type {[any, any]} */ ...given) => {
      const made = instantiateStreaming.apply(WebAssembly, given);
      made.catch(reject);
      return made;
    };
  });
}

/** Calls the Python side; returns its text and bytes.  Throws the compiler's error, which comes as JSON. @param {string} name @param {unknown[]} given */
function call(name, ...given) {
  const answer = client.answer(name, ...given);
  const [error, ...values] = answer.toJs();
  answer.destroy();
  if (error) throw EngineError.from(JSON.parse(error));
  return values;
}

/** The last line of a Python traceback is the error itself. @param {unknown} error */
const lastLine = (error) => String(error).trimEnd().split('\n').at(-1);

self.addEventListener('message', async ({ data: { id, kind, params } }) => {
  try {
    const value = await HANDLERS[kind](params);
    self.postMessage({ id, value }, { transfer: value.module ? [value.module.buffer] : [] });
  } catch (error) {
    const known = error instanceof EngineError ? error : failed('The compiler stopped', lastLine(error));
    self.postMessage({ id, error: known.toJSON() });
  }
});

// Starts a worker, also if the engine's files are on another origin or the page uses Trusted Types.
// Input: a starter in the form that bundlers recognise.  Output: a worker; or `unsupported-host`.  Nothing is sent to it.

import { EngineError } from './errors.js';

const POLICY = 'tilewright';

export const HINT = `Let the page's headers allow the engine's files: worker-src in the Content-Security-Policy (blob: for another origin), trusted-types ${POLICY}, Access-Control-Allow-Origin, Cross-Origin-Embedder-Policy. Only pages and dedicated workers start them`;

/** The page's Trusted Types policy. @type {any} */
let policy;

/**
 * The arguments with which a starter calls `new Worker`.  Bundlers recognise a worker's URL only there, so it is read there.
 * @type {T.PartsOf}
 */
function partsOf(start) {
  const { Worker } = globalThis;
  /** @type {any[]} */
  let parts = [];
  globalThis.Worker = /** @type {any} */ (function (/** @type {any[]} */ ...given) {
    parts = given;
  });
  try {
    start();
  } finally {
    globalThis.Worker = Worker;
  }
  return [new URL(parts[0], globalThis.location?.href), parts[1]];
}

/** The URL of a worker's script. @param {() => Worker} start */
export const scriptOf = (start) => partsOf(start)[0].href;

/** @type {T.LaunchWorker} */
export function launchWorker(start) {
  const [url, options] = partsOf(start);
  // Node has no `origin`.
  const { origin = url.origin } = globalThis;
  // A worker's own script must be of the page's origin; the modules that it imports need not be.
  const text = `import ${JSON.stringify(url)};`;
  // In a sandboxed frame Chromium starts no worker from a blob; elsewhere a worker from a data URL would have no storage.
  const script = url.origin === origin ? url : origin === 'null' ? `data:text/javascript,${encodeURIComponent(text)}` : URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  try {
    try {
      return new Worker(script, options);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      policy ??= /** @type {any} */ (globalThis).trustedTypes.createPolicy(POLICY, { createScriptURL: String });
      return new Worker(policy.createScriptURL(`${script}`), options);
    }
  } catch (error) {
    throw new EngineError('unsupported-host', `The browser starts no worker from ${url}: ${error}`, HINT);
  }
}

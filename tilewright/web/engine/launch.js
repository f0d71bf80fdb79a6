// Starts a worker, also where the engine's files are of another origin or the page has Trusted Types.
// Input: a starter in the form that bundlers recognise.  Output: a worker; or `unsupported-host`.  It sends nothing.

import { EngineError } from './errors.js';

const POLICY = 'tilewright';

export const HINT = `Let the page's headers allow the engine's files: worker-src in the Content-Security-Policy (blob: for another origin), trusted-types ${POLICY}, Access-Control-Allow-Origin, Cross-Origin-Embedder-Policy. Only pages and dedicated workers start them`;

/** What the page's Trusted Types let through. @type {any} */
let policy;

/** What a starter gives to `new Worker`: bundlers recognise a worker's URL only inside of that, so it is read there. @type {T.PartsOf} */
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
  // Node has none.
  const { origin = url.origin } = globalThis;
  // A worker's own script must be of the page's origin; what that imports need not.
  const text = `import ${JSON.stringify(url)};`;
  // Chromium starts none from a blob of a sandboxed frame; elsewhere a worker from data would have no storage.
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

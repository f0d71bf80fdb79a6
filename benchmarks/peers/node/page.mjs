// The page of one engine without a browser: Node with Dawn runs page/page.js and its adapters as they are.
// Input: the folder of the npm package `webgpu`, words for Dawn, the page's address.  Output: what page.js answers.
// It gives Node what the engines expect of a page, and nothing else.

import { register } from 'node:module';
import { fileURLToPath } from 'node:url';
import { runInThisContext } from 'node:vm';
import { Worker as Thread } from 'node:worker_threads';
import { become, gpuOf } from '../../../tilewright/web/host/dawn_globals.mjs';

const [folder, words, address] = process.argv.slice(2);
const options = words.split(' ').filter(Boolean);
const below = (/** @type {string} */ path) => fileURLToPath(new URL(path, import.meta.url));
const web = '../../../tilewright/web';
register('./resolve.mjs', import.meta.url, { data: { host: below(`${web}/host`), engine: below(`${web}/engine`), npm: below('../node_modules') } });

/** A worker of the page, as a thread: it costs what a browser's worker does. */
class PageWorker extends EventTarget {
  #thread;

  /** @param {URL} url @param {{name: string}} worker */
  constructor(url, { name }) {
    super();
    this.#thread = new Thread(new URL('./worker.mjs', import.meta.url), { workerData: { url: url.href, name, folder, options, address } });
    this.#thread.on('message', (data) => this.dispatchEvent(new MessageEvent('message', { data })));
    this.#thread.on('error', ({ message }) => this.dispatchEvent(Object.assign(new Event('error', { cancelable: true }), { message })));
  }

  /** @param {any} message @param {any[]} [transfer] */
  postMessage(message, transfer = []) {
    this.#thread.postMessage(message, transfer);
  }

  terminate() {
    this.#thread.terminate();
  }
}

/** Scripts of a page run as soon as they are appended, and look for a window. @param {{src: string, onload(): void, onerror(): void}} script */
const append = (script) => fetch(script.src).then(async (answer) => {
  Object.assign(globalThis, { window: globalThis });
  runInThisContext(await answer.text(), { filename: script.src });
  script.onload();
}).catch((error) => {
  console.error(error);
  script.onerror();
});

become(address, await gpuOf(folder, options));
const { writeBuffer } = GPUQueue.prototype;
/** Dawn in Node takes no shared memory, which browsers do. @this {GPUQueue} @param {any[]} given */
GPUQueue.prototype.writeBuffer = function (...given) {
  const [buffer, offset, data, first = 0, count = data.length - first] = given;
  if (!(data.buffer instanceof SharedArrayBuffer)) return Reflect.apply(writeBuffer, this, given);
  return writeBuffer.call(this, buffer, offset, data.slice(first, first + count));
};
const { fetch: fetchAny } = globalThis;
Object.assign(globalThis, {
  Worker: PageWorker,
  crossOriginIsolated: false,
  // Node may take a connection that the server is just closing, and does not try again as a browser would.
  fetch: (/** @type {string | URL} */ url, /** @type {RequestInit} */ init) => fetchAny(new URL(url, address), init).catch(() => fetchAny(new URL(url, address), init)),
  document: { baseURI: address, getElementById: () => ({}), createElement: () => ({}), head: { append } },
});
globalThis.addEventListener ??= () => {};
await import('../page/page.js');

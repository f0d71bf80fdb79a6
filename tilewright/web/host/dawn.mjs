// The host without a browser: Node with Dawn, Chromium's WebGPU, drives the engine as the host page does.
// Input: the folder of the npm package `webgpu`, words for Dawn, and the host page's address, or `probe`.
// Output: a session (session.js); for `probe`, one line of JSON about the adapter, null without one.
// It gives Node what the engine expects of a page, and nothing else; dawn_worker.mjs does so for the engine's worker.

import { Worker as Thread } from 'node:worker_threads';
import { become, gpuOf } from './dawn_globals.mjs';

const [folder, words, address] = process.argv.slice(2);
const options = words.split(' ').filter(Boolean);

/** A worker of the page, as a thread; one that ends by itself fires an error. */
class PageWorker extends EventTarget {
  #ended = false;
  #thread;

  /** @param {URL} url @param {{name: string}} options */
  constructor(url, { name }) {
    super();
    const workerData = { url: url.href, name, folder, options, address };
    this.#thread = new Thread(new URL('./dawn_worker.mjs', import.meta.url), { workerData });
    this.#thread.on('message', (data) => this.dispatchEvent(new MessageEvent('message', { data })));
    this.#thread.on('messageerror', () => this.dispatchEvent(new Event('messageerror')));
    this.#thread.on('error', ({ message }) => this.#fail(message));
    this.#thread.on('exit', (code) => this.#fail(`it ended with code ${code}`));
  }

  /** @param {string} message */
  #fail(message) {
    if (this.#ended) return;
    this.#ended = true;
    this.dispatchEvent(Object.assign(new Event('error', { cancelable: true }), { message }));
  }

  /** @param {unknown} message @param {any[]} [transfer] */
  postMessage(message, transfer) {
    this.#thread.postMessage(message, transfer);
  }

  terminate() {
    this.#ended = true;
    this.#thread.terminate();
  }
}

async function probe() {
  const adapter = await (await gpuOf(folder, options)).requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return null;
  const { vendor, architecture, device, description, isFallbackAdapter } = /** @type {any} */ (adapter.info);
  return { vendor, architecture, device, description, software: isFallbackAdapter, features: [...adapter.features].sort() };
}

if (address === 'probe') {
  console.log(JSON.stringify(await probe()));
  // Dawn may hold the process open.
  process.exit();
}
become(address);
Object.assign(globalThis, { Worker: PageWorker });
const { serve } = await import('./session.js');
serve(address, (state) => state === 'closed' && process.exit());

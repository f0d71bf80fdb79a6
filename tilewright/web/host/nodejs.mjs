// The host page's code in Node, for bundles on WebAssembly, on one thread: the engine's worker and the tuner's are Node's threads, and Node has not all
// that a pool of them needs (crossOriginIsolated, navigator.locks).
// Input: the host page's address.  Output: a session (host_protocol.js).  For bundles on WebGPU there is dawn.mjs.

import { Worker as Thread, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { become, becomeWorker, WorkerElsewhere } from './dawn_globals.mjs';

/** A worker of the page, as a thread. */
class PageWorker extends WorkerElsewhere {
  #thread;

  /** @param {URL} url @param {{name: string}} worker */
  constructor(url, { name }) {
    super();
    this.#thread = new Thread(new URL(import.meta.url), { workerData: { url: url.href, name, address: workerData?.address ?? process.argv[2] } });
    this.#thread.on('message', (data) => this.dispatchEvent(new MessageEvent('message', { data })));
    this.#thread.on('error', ({ message }) => this.fail(message));
    this.#thread.on('exit', (code) => this.fail(`it ended with code ${code}`));
  }

  /** @param {any} message @param {any[]} [moved] */
  postMessage(message, moved) {
    this.#thread.postMessage(message, moved);
  }

  terminate() {
    this.ended = true;
    this.#thread.terminate();
  }
}

async function page() {
  const address = process.argv[2];
  become(address);
  Object.assign(globalThis, { Worker: PageWorker });
  const { serve } = await import('./host_protocol.js');
  serve(address, (state) => state === 'closed' && process.exit());
}

async function worker() {
  const { address, name, url } = workerData;
  const postMessage = (/** @type {unknown} */ message, /** @type {any[]} */ moved) => parentPort?.postMessage(message, moved);
  const deliver = becomeWorker(address, { name, postMessage, Worker: PageWorker });
  const started = import(url);
  parentPort?.on('message', (data) => started.then(() => deliver(data)));
  await started;
}

await (isMainThread ? page() : worker());

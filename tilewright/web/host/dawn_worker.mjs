// A worker of the host without a browser: dawn.mjs starts it where the engine starts a worker.
// Input: the worker's module and name, and how to make Dawn.  Output: that module, running as in a page's worker.

import { parentPort, workerData } from 'node:worker_threads';
import { become, gpuOf } from './dawn_globals.mjs';

const { url, name, folder, options, address } = workerData;
const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
const events = new EventTarget();

become(address, await gpuOf(folder, options));
Object.assign(globalThis, {
  self: globalThis,
  name,
  addEventListener: events.addEventListener.bind(events),
  postMessage: (/** @type {unknown} */ message, /** @type {{transfer?: any[]}} */ { transfer } = {}) => port.postMessage(message, transfer),
});
await import(url);
port.on('message', (data) => events.dispatchEvent(new MessageEvent('message', { data })));

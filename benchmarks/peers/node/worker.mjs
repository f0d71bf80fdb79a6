// A worker of page.mjs: a thread with a GPU of its own, running the engine's worker as a browser's would.
// Input: the worker's module and name, and how to make Dawn.  Output: that module's messages.

import { parentPort, workerData } from 'node:worker_threads';
import { become, gpuOf } from '../../../tilewright/web/host/dawn_globals.mjs';

const { url, name, folder, options, address } = workerData;
const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
const events = new EventTarget();
become(address, await gpuOf(folder, options));
Object.assign(globalThis, {
  self: globalThis,
  name,
  addEventListener: events.addEventListener.bind(events),
  postMessage: (/** @type {unknown} */ message, /** @type {{transfer?: any[]}} */ { transfer = [] } = {}) => port.postMessage(message, transfer),
});
await import(url);
port.on('message', (data) => events.dispatchEvent(new MessageEvent('message', { data })));

// A worker of the host without a browser: dawn.mjs starts it where the engine starts a worker.
// Input: the worker's module and name, and how to make Dawn.  Output: that module, running as in a page's worker.

import { become, gpuOf, packed, unpacked } from './dawn_globals.mjs';

const { url, name, folder, options, address } = JSON.parse(process.argv[2]);
const events = new EventTarget();

async function start() {
  become(address, await gpuOf(folder, options));
  Object.assign(globalThis, {
    self: globalThis,
    name,
    addEventListener: events.addEventListener.bind(events),
    postMessage: (/** @type {unknown} */ message) => process.send?.(packed(message)),
  });
  await import(url);
}

process.on('disconnect', () => process.exit());
const started = start();
process.on('message', (bytes) => started.then(() => events.dispatchEvent(new MessageEvent('message', { data: unpacked(/** @type {any} */ (bytes)) }))));

// A worker of the host without a browser: dawn.mjs starts it where the engine starts a worker.
// Input: the worker's module and name, and how to make Dawn.  Output: that module, running as in a page's worker.

import { becomeWorker, gpuOf, packed, unpacked } from './dawn_globals.mjs';

const { url, name, folder, options, address } = JSON.parse(process.argv[2]);

async function start() {
  const postMessage = (/** @type {unknown} */ message) => process.send?.(packed(message));
  const deliver = becomeWorker(address, { name, postMessage, gpu: await gpuOf(folder, options) });
  await import(url);
  return deliver;
}

process.on('disconnect', () => process.exit());
const started = start();
process.on('message', (bytes) => started.then((deliver) => deliver(unpacked(/** @type {any} */ (bytes)))));

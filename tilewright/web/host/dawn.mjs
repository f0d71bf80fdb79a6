// The host without a browser: Node with Dawn, Chromium's WebGPU, drives the engine as the host page does.
// Input: the folder of the npm package `webgpu`, words for Dawn, and the host page's address, or `probe`.
// Output: a session (host_protocol.js); for `probe`, one line of JSON about the adapter, null without one.
// It gives Node what the engine expects of a page, and nothing else; dawn_worker.mjs does so for the engine's worker.

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { become, gpuOf, packed, unpacked, WorkerElsewhere } from './dawn_globals.mjs';

const [folder, words, address] = process.argv.slice(2);
const options = words.split(' ').filter(Boolean);

/**
 * A worker of the page, as a process: when it ends, the driver gives back all that its device took, which it does not when a
 * thread ends.
 */
class PageWorker extends WorkerElsewhere {
  #process;

  /** @param {URL} url @param {{name: string}} worker */
  constructor(url, { name }) {
    super();
    const setup = JSON.stringify({ url: url.href, name, folder, options, address });
    this.#process = fork(fileURLToPath(new URL('./dawn_worker.mjs', import.meta.url)), [setup], { serialization: 'advanced' });
    this.#process.on('message', (bytes) => this.dispatchEvent(new MessageEvent('message', { data: unpacked(/** @type {any} */ (bytes)) })));
    this.#process.on('error', ({ message }) => this.fail(message));
    this.#process.on('exit', (code, signal) => this.fail(`it ended with ${signal ?? `code ${code}`}`));
  }

  /** What is to be transferred is copied. @param {any} message */
  postMessage(message) {
    if (!this.ended) this.#process.send(packed(message));
  }

  terminate() {
    this.ended = true;
    this.#process.kill('SIGKILL');
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
const { serve } = await import('./host_protocol.js');
serve(address, (state) => state === 'closed' && process.exit());

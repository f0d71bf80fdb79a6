// What a page or worker has and Node lacks, for dawn.mjs and nodejs.mjs.
// Input: the page's address; the folder of the npm package `webgpu`.  Output: globals; a GPU object.

import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Deserializer, Serializer } from 'node:v8';

/** Dawn crashes if one of these is collected while another is in use. @type {unknown[]} */
const kept = [];

/**
 * Makes this process look like part of the page at `address`.
 * @param {string} address
 * @param {GPU} [gpu]
 */
export function become(address, gpu) {
  const storage = { getDirectory: async () => { throw new Error('Node keeps no files for a page'); } };
  const navigator = { userAgent: `Node ${process.version}`, hardwareConcurrency: availableParallelism(), storage, gpu };
  Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
  Object.assign(globalThis, { location: new URL(address), isSecureContext: true });
  Promise.withResolvers ??= () => {
    /** @type {any} */
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
  };
}

/**
 * The same for a worker of that page.  Returns what hands a message to the worker's module.
 * @param {string} address
 * @param {{name: string, postMessage: Function, gpu?: GPU, Worker?: unknown}} parts
 */
export function becomeWorker(address, { gpu, ...parts }) {
  const events = new EventTarget();
  become(address, gpu);
  Object.assign(globalThis, { self: globalThis, addEventListener: events.addEventListener.bind(events), ...parts });
  return (/** @type {unknown} */ data) => events.dispatchEvent(new MessageEvent('message', { data }));
}

/** A worker of the page that runs elsewhere.  One that ends by itself fires an error. */
export class WorkerElsewhere extends EventTarget {
  ended = false;

  /** @param {string} message */
  fail(message) {
    if (this.ended) return;
    this.ended = true;
    this.dispatchEvent(Object.assign(new Event('error', { cancelable: true }), { message }));
  }
}

/**
 * Dawn's GPU object, with WebGPU's constants as globals.
 * @param {string} folder
 * @param {string[]} options
 * @returns {Promise<GPU>}
 */
export async function gpuOf(folder, options) {
  const { create, globals } = await import(pathToFileURL(join(folder, 'index.js')).href);
  Object.assign(globalThis, globals);
  const gpu = create(options);
  const ask = gpu.requestAdapter.bind(gpu);
  gpu.requestAdapter = async (/** @type {GPURequestAdapterOptions} */ wanted) => {
    const adapter = await ask({ powerPreference: 'high-performance', ...wanted });
    kept.push(gpu, adapter);
    return adapter;
  };
  return gpu;
}

/** A message between processes; read as `unpacked`, its arrays have buffers of their own, as between workers. @param {unknown} message */
export function packed(message) {
  const serializer = new Serializer();
  serializer.writeHeader();
  serializer.writeValue(message);
  return serializer.releaseBuffer();
}

/** @param {Uint8Array} bytes @returns {any} */
export function unpacked(bytes) {
  const deserializer = new Deserializer(bytes);
  deserializer.readHeader();
  return deserializer.readValue();
}

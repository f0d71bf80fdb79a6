// What Node lacks of a page, for fuzzing web/ without a browser: workers in the same thread, a network that
// serves the files of a case, storage, a GPU; and typed arrays that refuse lengths no file of a case can justify.
// Input: the files of a case.  Output: globals.

import { gpu } from './fake_gpu.mjs';
import { answer } from '../../../tilewright/web/engine/requests.js';
import { load } from '../../../tilewright/web/engine/wasm.js';
import { load as loadOnGpu } from '../../../tilewright/web/engine/webgpu.js';

/** Most bytes of one array: everything in a case is smaller than this by far. */
const MOST = 2 ** 26;

export const ORIGIN = 'https://a.example';
export const PATH = '/bundles/m/';

/** By path below `PATH`, the files that the network serves. @type {Map<string, Uint8Array>} */
export let files = new Map();
/** By key, what the page stored. @type {Map<string, Response>} */
export const stored = new Map();

/** @param {Record<string, string>} given in base64, by path */
export function serve(given) {
  files = new Map(Object.entries(given).map(([path, text]) => [path, Uint8Array.from(Buffer.from(text, 'base64'))]));
}

export class TooLarge extends Error {}

for (const name of ['ArrayBuffer', 'Uint8Array', 'Int8Array', 'Uint16Array', 'Int16Array', 'Uint32Array', 'Int32Array', 'Float32Array', 'Float64Array', 'BigInt64Array']) {
  const plain = globalThis[name];
  globalThis[name] = new Proxy(plain, {
    construct(target, parts, made) {
      const [length] = parts;
      if (typeof length === 'number' && length * (plain.BYTES_PER_ELEMENT ?? 1) > MOST) throw new TooLarge(`${name} of ${length} elements`);
      return Reflect.construct(target, parts, made === globalThis[name] ? target : made);
    },
  });
}

const Memory = WebAssembly.Memory;
/** The driver gives up on a damaged plan sooner than by default (docs/bundle-wasm.md, "patience"). */
WebAssembly.Memory = class extends Memory {
  constructor(parts) {
    super(parts);
    new Int32Array(this.buffer)[5] = 1;
  }
};

Promise.withResolvers ??= function withResolvers() {
  let settle;
  const promise = new this((...both) => (settle = both));
  return { promise, resolve: settle[0], reject: settle[1] };
};
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: 'Firefox', hardwareConcurrency: 2, gpu }, configurable: true });
Object.assign(globalThis, { isSecureContext: true, location: { href: `${ORIGIN}/` } });

globalThis.fetch = async (url) => {
  const { origin, pathname } = new URL(url);
  const found = origin === ORIGIN && files.get(pathname.startsWith(PATH) ? pathname.slice(PATH.length) : pathname.slice(1));
  const type = pathname.endsWith('.wasm') ? 'application/wasm' : 'application/json';
  return new Response(found || 'none', { status: found ? 200 : 404, headers: { 'content-type': type } });
};

globalThis.caches = {
  open: async () => ({
    match: async (key) => stored.get(key)?.clone(),
    delete: async (key) => stored.delete(key),
    put: async (key, response) => void stored.set(key, response),
  }),
};

/** What the compiler in the page says, by request. @type {Record<string, any>} */
let compiler = {};
export const compileWith = (answers) => (compiler = answers);

/** As messages between threads do; memory is shared, and modules are the same. */
const sent = (data) => (data.memory || data.params?.kernels ? data : structuredClone(data, { transfer: [] }));

/** The engine's worker in the page's thread. */
globalThis.Worker = class extends EventTarget {
  #heard = () => {};

  constructor(url, { name }) {
    super();
    if (url.pathname.endsWith('/pyodide_worker.js')) {
      this.#heard = ({ data: { id, kind } }) => this.dispatchEvent(Object.assign(new Event('message'), { data: { id, value: compiler[kind] } }));
      return;
    }
    globalThis.self = {
      name,
      addEventListener: (_, heard) => (this.#heard = heard),
      postMessage: (data) => setImmediate(() => this.dispatchEvent(Object.assign(new Event('message'), { data: sent(data) }))),
    };
    answer(url.pathname.endsWith('/gpu_worker.js') ? loadOnGpu : load);
  }

  postMessage(data) {
    setImmediate(() => this.#heard({ data: sent(data) }));
  }

  terminate() {
    this.#heard = () => {};
  }
};

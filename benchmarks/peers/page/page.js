// The page of one engine: does what Python asks over a socket, and times it.
// Input: requests of the host protocol.  Output: milliseconds, outputs, bytes.
// Only engines/*.js know the engines.

import { FrameReader, sendMessage } from '/host/host_protocol.js';
import { watchMemories } from './memories.js';

/**
 * What files.py says of a case, with `base`, the address of its files.
 * @typedef {{name: string, op: string, base: string, dims: Record<string, number>, sizes: any, inputs: any[], constants: any[], outputs: string[], results: any[]}} Task
 * @typedef {{name: string, dtype: string, shape: number[], data: any}} Tensor
 * `stream`: so many runs whose outputs stay on the device, until it has done them.
 * @typedef {{run(): Promise<Tensor[]>, stream?: (runs: number) => Promise<unknown>, speak?: (asked: Asked) => Promise<Spoken>, dispose(): unknown, memoryBytes?: () => number, inside?: () => number}} Model
 * `speak`: what follows a prompt, each token with its milliseconds since the call.
 * @typedef {{prompt: string, ids: number[], most: number}} Asked
 * @typedef {{times: number[], text?: string, ids?: number[], timings?: any}} Spoken
 * @typedef {{about: any, open(task: Task): Promise<Model>}} Engine
 */

const PROTOCOL = 1;
const MEMORY_MS = 1500;
/** Milliseconds that runs in a row last at least, to be timed together, and at most how many. */
const [STREAM_MS, MOST_STREAM] = [20, 512];
const query = new URLSearchParams(location.search);
const memories = watchMemories();
const refused = watchDevices();
/** Chromium's questions about memory are not in the types. @type {any} */
const scope = performance;
const state = /** @type {HTMLOutputElement} */ (document.getElementById('state'));

/** Of the last `open`; Python asks for nothing before it. @type {any} */
let engine = null;
/** @type {any} */
let model = null;

/** @param {() => Promise<unknown>} work */
async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** @type {Record<string, (params: any) => Promise<any>>} */
const METHODS = {
  /** Engine (if it is not there yet) and model, ready to run. */
  async open({ task }) {
    const start = performance.now();
    if (!engine) {
      const { start: begin } = await import(`./engines/${query.get('engine')}.js`);
      engine = await begin(Number(query.get('threads')), query.get('device'), query.has('captured'));
    }
    model = await engine.open({ ...task, base: `/cases/${task.name}/` });
    return { milliseconds: performance.now() - start, about: engine.about };
  },

  async first() {
    const start = performance.now();
    const outputs = await model.run();
    const milliseconds = performance.now() - start;
    return { milliseconds, outputs };
  },

  /** Until the time is over; the page stays responsive between runs. */
  async warm({ milliseconds, most }) {
    const end = performance.now() + milliseconds;
    let fastest = Infinity;
    for (let run = 0; run < most && (run === 0 || performance.now() < end); run++) {
      const start = performance.now();
      await model.run();
      fastest = Math.min(fastest, performance.now() - start);
    }
    return { fastest };
  },

  /** The same for runs in a row, and how many of them a sample takes. */
  async warmStream({ milliseconds }) {
    const end = performance.now() + milliseconds;
    let [fastest, batch] = [Infinity, 1];
    do {
      const spent = await timed(() => model.stream(batch));
      fastest = Math.min(fastest, spent / batch);
      if (spent < STREAM_MS && batch < MOST_STREAM) batch *= 2;
    } while (performance.now() < end);
    return { fastest, batch };
  },

  /** `settle`: milliseconds of runs before, in which a GPU gets back to its clock. */
  async round({ samples, batch, stream, settle }) {
    const runs = async () => {
      if (stream) return model.stream(batch);
      for (let run = 0; run < batch; run++) await model.run();
    };
    const end = performance.now() + settle;
    while (performance.now() < end) await runs();
    const times = [];
    const inside = [];
    for (let sample = 0; sample < samples; sample++) {
      times.push(await timed(runs) / batch);
      if (model.inside && !stream) inside.push(model.inside());
    }
    return { times, inside };
  },

  speak: (asked) => model.speak(asked),

  async memory() {
    // Workers that block, as a pool's do, never answer: then the page's own heap has to do.
    const asked = Promise.resolve(scope.measureUserAgentSpecificMemory?.()).catch(() => undefined);
    const found = await Promise.race([asked, new Promise((resolve) => setTimeout(resolve, MEMORY_MS))]);
    // An engine in a worker tells of its memory; a shared one was made by this page and is seen already.
    const unseen = Math.max(0, (model?.memoryBytes?.() ?? 0) - memories.sharedBytes());
    const shared = memories.sharedBytes() + unseen;
    return {
      wasm_bytes: memories.bytes() + unseen,
      js_bytes: found ? heapBytes(found.breakdown, shared) : scope.memory?.usedJSHeapSize ?? null,
      js_from: found ? 'page and workers' : 'page',
    };
  },

  async close() {
    model?.dispose();
    model = null;
    return {};
  },

  async go({ url }) {
    setTimeout(() => location.replace(url));
    return {};
  },
};

/** What a device finds wrong beside a call, from now on: such work is not done, and its time means nothing. */
function watchDevices() {
  /** @type {string[]} */
  const found = [];
  const { GPUAdapter } = globalThis;
  if (!GPUAdapter) return found;
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...given) {
    const device = await requestDevice.apply(this, given);
    device.addEventListener('uncapturederror', ({ error }) => found.push(error.message));
    return device;
  };
  return found;
}

/**
 * The heaps alone: Chromium counts a shared Wasm memory in each thread that sees it, and others never.
 * @param {{bytes: number, types: string[]}[]} breakdown
 * @param {number} shared
 */
const heapBytes = (breakdown, shared) => breakdown.reduce((sum, { bytes, types }) => sum + bytes - (types.includes('JavaScript') && bytes >= shared ? shared : 0), 0);

const plain = (/** @type {Tensor} */ tensor) => ({ name: tensor.name, dtype: tensor.dtype, shape: [...tensor.shape], bytes: tensor.data.byteLength });

/** The bytes of a typed array in a buffer of their own, which no other thread shares. */
const bytesOf = (/** @type {Tensor} */ { data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice().buffer;

/**
 * @param {WebSocket} socket
 * @param {import('/host/host_protocol.js').Request} request
 */
async function answer(socket, { id, method, params }) {
  state.value = method;
  refused.length = 0;
  try {
    const { outputs, ...rest } = await METHODS[method](params);
    if (refused.length) throw new Error(`The device refused work: ${refused[0]}`);
    const result = outputs ? { ...rest, outputs: outputs.map(plain) } : rest;
    sendMessage(socket, { id, result }, (outputs ?? []).map(bytesOf));
  } catch (thrown) {
    const error = /** @type {Error} */ (thrown);
    const message = `${error?.name ?? 'Error'}: ${error?.message ?? error}`;
    sendMessage(socket, { id, error: { code: 'engine', message, hint: '', facts: { stack: String(error?.stack ?? '').slice(0, 1000) } } }, []);
  }
}

const socket = new WebSocket(new URL(`/_host/socket?token=${query.get('token')}`, location.href.replace(/^http/, 'ws')));
socket.binaryType = 'arraybuffer';
const frames = new FrameReader();
socket.addEventListener('open', () => sendMessage(socket, { hello: { protocol: PROTOCOL, userAgent: navigator.userAgent, isolated: crossOriginIsolated } }, []));
socket.addEventListener('message', ({ data }) => {
  const request = frames.take(data);
  if (request) answer(socket, request);
});

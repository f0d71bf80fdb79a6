// One session of the host protocol: a WebSocket over which Python drives the engine.
// Input: requests of docs/host-protocol.md, each one JSON text frame, then one binary frame per described tensor.  Output: answers in the same
// form.  methods.js implements the methods; host.js and dawn.mjs are the two places where a session runs, a page and a Node process.

import { EngineError, probeHost } from '../engine/engine.js';
import { Methods } from './methods.js';

/**
 * @typedef {{name: string, dtype: import('../engine/types.js').DType, shape: number[], bytes: number}} Description
 * @typedef {{id: number, method: string, params: any, parts: ArrayBuffer[]}} Request
 */

export class FrameReader {
  /** The request whose binary frames are still coming. @type {Request | null} */
  #open = null;

  /**
   * Takes one frame; throws if it breaks the protocol.
   * @param {string | ArrayBuffer} frame
   * @returns {Request | null} the request that it completes, if any
   */
  take(frame) {
    if (typeof frame === 'string') {
      if (this.#open) throw new Error('A text frame came where a binary frame was announced');
      this.#open = { params: {}, ...JSON.parse(frame), parts: [] };
    } else {
      if (!this.#open) throw new Error('A binary frame came that no message announced');
      const expected = described(this.#open)[this.#open.parts.length].bytes;
      if (frame.byteLength !== expected) {
        throw new Error(`A binary frame has ${frame.byteLength} bytes, its description says ${expected}`);
      }
      this.#open.parts.push(frame);
    }
    const request = /** @type {Request} */ (this.#open);
    if (request.parts.length < described(request).length) return null;
    this.#open = null;
    return request;
  }
}

/**
 * The binary frames that a request announces.
 * @param {Request} request
 * @returns {Description[]}
 */
const described = ({ params }) => params.inputs ?? [];

/**
 * Sends a message and its binary frames; drops it if the socket is closed.
 * @param {WebSocket} socket
 * @param {object} message
 * @param {ArrayBuffer[]} parts
 */
export function sendMessage(socket, message, parts) {
  // Python may have disconnected before the answer was ready.
  if (socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify(message));
  for (const part of parts) socket.send(part);
}

const PROTOCOL = 1;
// WebSocket close codes.
const NOT_JSON = 1003;
const NOT_DESCRIBED = 1008;
const DONE = 1000;

/**
 * Connects to the server of the page at `address`, which names the token.
 * @param {string} address
 * @param {(state: 'open' | 'closed') => void} show
 */
export function serve(address, show) {
  const { searchParams } = new URL(address);
  const url = new URL(`/_host/socket?${new URLSearchParams({ token: searchParams.get('token') ?? '' })}`, address);
  url.protocol = url.protocol.replace('http', 'ws');
  const socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  const methods = new Methods((progress) => sendMessage(socket, { progress }, []));
  const frames = new FrameReader();
  socket.addEventListener('open', () => {
    show('open');
    sendMessage(socket, { hello: { protocol: PROTOCOL, userAgent: navigator.userAgent, features: probeHost() } }, []);
  });
  socket.addEventListener('message', ({ data }) => {
    let request;
    try {
      request = frames.take(data);
    } catch (error) {
      socket.close(typeof data === 'string' ? NOT_JSON : NOT_DESCRIBED, String(error).slice(0, 120));
      return;
    }
    if (request) answer(socket, methods, request);
  });
  socket.addEventListener('close', () => {
    methods.disposeAll();
    show('closed');
  });
}

/**
 * @param {WebSocket} socket
 * @param {Methods} methods
 * @param {Request} request
 */
async function answer(socket, methods, request) {
  const { id, method } = request;
  try {
    const { result, parts } = await methods.call(request);
    sendMessage(socket, { id, result }, parts);
  } catch (error) {
    sendMessage(socket, { id, error: plain(error) }, []);
  }
  if (method === 'close') socket.close(DONE);
}

/** An error as the protocol sends it. @param {unknown} error */
function plain(error) {
  if (error instanceof EngineError) return error.toJSON();
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) };
  if (name === 'AbortError') return { code: 'aborted', message, hint: '', facts: {} };
  return { code: 'usage', message, hint: 'See docs/host-protocol.md', facts: {} };
}

// One session of the host protocol: a WebSocket over which Python drives the engine.
// Input: requests of docs/host-protocol.md.  Output: answers.  methods.js implements the methods; host.js and dawn.mjs
// are the two places where a session runs, a page and a Node process.

import { EngineError, probeHost } from '../engine/engine.js';
import { FrameReader, sendMessage } from './framing.js';
import { Methods } from './methods.js';

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
 * @param {import('./framing.js').Request} request
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

// A source of candidates: the server's tuning socket (docs/tuning-protocol.md).
// Input: its URL.  Output: the interface `Source`.  A lost connection rejects `next` with a `network` error;
// `open` again goes on where it was, for the server knows only what hello says.

import { EngineError } from '../engine/errors.js';
import { decode, encode } from './frames.js';

/** Kernels on their way while one is tried. */
const AHEAD = 2;
/** Milliseconds to wait for the welcome, and until a report is sent again that came too early. */
const PATIENCE = 15_000;
const AGAIN = 20_000;
/** Milliseconds that the server has to close. */
const GOODBYE = 2000;
/** Answers after which the same report may be sent once more. */
const LATER = ['later', 'rate'];
/** Errors after which another attempt may go well. */
const PASSING = ['busy', 'error', 'too-slow', 'too-many'];

/** @param {string | URL} [url] @returns {Tune.Source} */
export function socketSource(url = '/api/tune') {
  /** @type {WebSocket | null} */
  let socket = null;
  /** @type {({header: any, module: Uint8Array<ArrayBuffer>} | {done: number})[]} */
  let inbox = [];
  let left = new Set();
  /** Why nothing more comes. @type {unknown} */
  let lost = null;
  let wake = () => {};
  /** @type {((header: any) => void) | null} */
  let welcomed = null;
  /** Reports that the server has not stored yet, by nonce. @type {Map<string, {report: any, resolve: (ack: any) => void}>} */
  const unanswered = new Map();

  /** Of the server that has the socket, be it another than the page's; `scheme` is http or ws. @param {string} scheme */
  function address(scheme) {
    const found = new URL(url, globalThis.location.href);
    found.protocol = found.protocol.replace(/^(http|ws)/, scheme);
    return found;
  }

  /** @param {object} header */
  function send(header) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(encode(header));
  }

  /** @param {any} header @param {Uint8Array<ArrayBuffer>} payload */
  function take(header, payload) {
    switch (header.type) {
      case 'welcome': return welcomed?.(header);
      case 'kernel': return void inbox.push({ header, module: payload });
      case 'done': return void (left.delete(header.spec) && inbox.push({ done: header.spec }));
      case 'ack': return acknowledged(header);
      case 'error': return fail(refusal(header));
      default: return undefined; // a newer server may say more
    }
  }

  /** @param {any} ack */
  function acknowledged(ack) {
    const waiting = unanswered.get(ack.nonce);
    if (!waiting) return;
    if (LATER.includes(ack.reason)) {
      setTimeout(() => unanswered.has(ack.nonce) && send(waiting.report), AGAIN);
      return;
    }
    unanswered.delete(ack.nonce);
    waiting.resolve(ack);
  }

  /** @param {unknown} error */
  function fail(error) {
    lost ??= error;
    socket?.close();
    wake();
  }

  return {
    async classes() {
      const away = (/** @type {unknown} */ cause) => new EngineError('network', `The server's device classes cannot be had: ${cause}`, 'It is tried again; look at the server and the network');
      const response = await fetch(new URL('classes', address('http'))).catch((error) => {
        throw away(error);
      });
      const { ok, status } = response;
      if (!ok && status < 500 && status !== 429) {
        throw new EngineError('input', `The server has no device classes: it answered ${status}`, "Serve with tuning, or name the device's class: option `device`", { status });
      }
      if (!ok) throw away(status);
      return response.json().catch((error) => {
        throw away(error);
      });
    },

    async open(hello) {
      socket?.close();
      [inbox, left, lost] = [[], new Set(hello.specs), null];
      const own = new WebSocket(address('ws'));
      socket = own;
      own.binaryType = 'arraybuffer';
      const gone = () => own === socket && fail(new EngineError('network', 'The connection to the tuning server is lost', 'It is tried again'));
      own.onclose = gone;
      own.onmessage = ({ data }) => {
        if (own !== socket) return;
        try {
          const { header, payload } = decode(data);
          take(header, payload);
        } catch (error) {
          fail(error);
        }
        wake();
      };
      own.onopen = () => send({ type: 'hello', ...hello });
      const timer = setTimeout(gone, PATIENCE);
      try {
        const welcome = await new Promise((resolve, reject) => {
          welcomed = resolve;
          wake = () => lost && reject(lost);
        });
        for (const { report } of unanswered.values()) send(report);
        if (hello.specs.length) send({ type: 'want', count: AHEAD });
        return welcome;
      } finally {
        clearTimeout(timer);
        welcomed = null;
      }
    },

    async next() {
      for (;;) {
        const kernel = inbox.shift();
        if (kernel) {
          if ('header' in kernel) send({ type: 'want', count: 1 });
          return kernel;
        }
        if (lost) throw lost;
        if (!left.size) return null;
        await new Promise((resolve) => (wake = () => resolve(null)));
      }
    },

    result(result) {
      send({ type: 'result', ...result });
    },

    report: (report) => new Promise((resolve) => {
      const whole = { type: 'report', ...report };
      unanswered.set(report.nonce, { report: whole, resolve });
      send(whole);
    }),

    close() {
      send({ type: 'bye' });
      const own = socket;
      socket = null;
      lost ??= new EngineError('disposed', 'The source was closed', 'Open another one');
      // The server closes after bye; one that is gone does not.
      setTimeout(() => own?.close(), GOODBYE);
      wake();
    },
  };
}

/** @param {any} header */
function refusal({ code, message, hint, facts }) {
  const kind = PASSING.includes(code) ? 'network' : code === 'other-version' ? 'bundle-version' : 'input';
  return new EngineError(kind, message, hint, { ...facts, code });
}

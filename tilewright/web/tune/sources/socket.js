// A source of candidates over the server's tuning socket (docs/tuning-protocol.md).
// Input: its URL.  Output: a Source.  If the connection is lost, `next` rejects with a `network` error.  The server
// keeps no session, so `open` resumes from the hello alone.
//
// A hello is reduced to what the server needs, so that it cannot recognise a device across visits.  Candidates that earlier visits tried stay on
// the device, which skips them on arrival.  Of data that outlasts a visit, only a power of two is sent.

import { EngineError } from '../../engine/errors.js';
import { decode, encode, heard, jsonOf, KERNEL, WELCOME } from './answer_checks.js';

/** Candidates to prefetch while one is tried. */
const AHEAD = 2;
/** Most bytes of a message: a module has at most 512 KiB, and a welcome lists the kernels of a model. */
const MOST_BYTES = 1 << 22;
/** Most candidates that may wait here: no more are asked for than AHEAD. */
const MOST_WAITING = 16;
/** Milliseconds to wait for the welcome. */
const TIMEOUT = 15_000;
/** Milliseconds after which a postponed report is sent again. */
const AGAIN = 20_000;
/** Milliseconds that the server has to close the connection. */
const GOODBYE = 2000;
/** The server's limit for a kernel (tuning/messages.py). */
const MOST_CANDIDATES = 4096;
/** Acknowledgements that postpone a report. */
const LATER = ['later', 'rate'];
/** Transient error codes: a retry may succeed. */
const PASSING = ['busy', 'error', 'too-slow', 'too-many'];

const cut = () => new EngineError('network', 'The connection to the tuning server is lost', 'It is retried automatically');

/** A source over a WebSocket; `onSend` is called with the header of every message sent. @param {string | URL} [url] @param {(header: any) => void} [onSend] @returns {Tune.Source} */
export function socketSource(url = '/api/tune', onSend = () => {}) {
  /** @type {WebSocket | null} */
  let socket = null;
  /** @type {({header: any, module: Uint8Array<ArrayBuffer>} | {done: number})[]} */
  let inbox = [];
  let left = new Set();
  let share = false;
  /** By kernel, candidates tried earlier. @type {Record<number, number[]>} */
  let known = {};
  /** Candidates still expected, so that a server that repeats itself cannot go on for ever. */
  let due = 0;
  /** By kernel, candidates that arrived in this visit. @type {Map<number, Set<number>>} */
  const came = new Map();
  /** The error that ended the connection. @type {unknown} */
  let lost = null;
  let wake = () => {};
  /** @type {((header: any) => void) | null} */
  let welcomed = null;
  /** Reports without a final answer, by nonce. @type {Map<string, {report: any, resolve: (ack: any) => void, reject: (why: unknown) => void}>} */
  const unanswered = new Map();

  /** The socket's URL with the scheme `http` or `ws` (https and wss on secure pages); its server may differ from the page's. @param {string} scheme */
  function address(scheme) {
    const found = new URL(url, globalThis.location.href);
    found.protocol = found.protocol.replace(/^(http|ws)/, scheme);
    return found;
  }

  /** @param {object} header */
  function send(header) {
    if (socket?.readyState !== WebSocket.OPEN) return false;
    socket.send(encode(header));
    onSend(header);
    return true;
  }

  /** @param {any} header @param {Uint8Array<ArrayBuffer>} payload */
  function take(header, payload) {
    switch (header.type) {
      case 'welcome': return welcomed?.(heard(header, WELCOME, 'welcome'));
      case 'kernel': return arrived(heard(header, KERNEL, 'kernel'), payload);
      case 'done': return void (left.delete(header.spec) && inbox.push({ done: header.spec }));
      case 'ack': return acknowledged(header);
      case 'error': return fail(refusal(header));
      default: return undefined; // from a newer server
    }
  }

  /** The number of waiting candidates.  Notices that a kernel is done are not counted: there is at most one per kernel of the page. */
  const waiting = () => inbox.filter((entry) => 'header' in entry).length;

  /** @param {any} header @param {Uint8Array<ArrayBuffer>} module */
  function arrived(header, module) {
    const { spec, candidate } = header;
    if (--due < 0 || waiting() > MOST_WAITING) return fail(new EngineError('input', 'The tuning server sends more candidates than it announced, or than were asked for', 'Update the server', { spec, candidate }));
    came.set(spec, (came.get(spec) ?? new Set()).add(candidate));
    // Already tried: asks for another at once instead of queueing it, where it would wait for a gap between runs.
    if (known[spec]?.includes(candidate)) send({ type: 'want', count: 1 });
    else inbox.push({ header, module });
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
    giveBack();
    wake();
  }

  /** Rejects open reports: reports.js sends them again, perhaps with the answer to another gold question. */
  function giveBack() {
    for (const { reject } of unanswered.values()) reject(cut());
    unanswered.clear();
  }

  return {
    origin: address('http').origin,

    async classes() {
      const away = (/** @type {unknown} */ cause) => new EngineError('network', `The server's device classes could not be fetched: ${cause}`, 'It is retried automatically; check the server and the network');
      const response = await fetch(new URL('classes', address('http'))).catch((error) => {
        throw away(error);
      });
      const { ok, status } = response;
      if (!ok && status < 500 && status !== 429) {
        throw new EngineError('input', `The server has no device classes: it answered ${status}`, "Start the server with tuning, or name the device's class: option `device`", { status });
      }
      if (!ok) throw away(status);
      return jsonOf(response, 'classes').catch((error) => {
        throw error instanceof EngineError ? error : away(error);
      });
    },

    async open(hello) {
      socket?.close();
      giveBack();
      const told = minimalHello(hello, came);
      ({ share, tried: known } = hello);
      [inbox, left, lost] = [[], new Set(told.specs), null];
      const own = new WebSocket(address('ws'));
      socket = own;
      own.binaryType = 'arraybuffer';
      const gone = () => own === socket && fail(cut());
      own.onclose = gone;
      own.onmessage = ({ data }) => {
        if (own !== socket || lost) return;
        try {
          // A text has no such length.
          if (!(data.byteLength <= MOST_BYTES)) throw new EngineError('input', `The tuning server sends a message of ${data.byteLength} bytes`, `The limit is ${MOST_BYTES}; update the server`);
          const { header, payload } = decode(data);
          take(header, payload);
        } catch (error) {
          fail(error);
        }
        wake();
      };
      own.onopen = () => send({ type: 'hello', ...told });
      const timer = setTimeout(gone, TIMEOUT);
      try {
        const welcome = await new Promise((resolve, reject) => {
          welcomed = resolve;
          wake = () => lost && reject(lost);
        });
        due = welcome.kernels.reduce((/** @type {number} */ sum, /** @type {Tune.Offer} */ { count }) => sum + (Math.min(count, MOST_CANDIDATES) || 0) + 1, 0);
        if (welcome.kernels.every((/** @type {Tune.Offer} */ offer) => whole(offer, hello.tried))) left.clear();
        if (left.size) send({ type: 'want', count: AHEAD });
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

    peek: () => inbox.find((entry) => 'header' in entry) ?? null,

    result(result) {
      // Sent only if shared: missing results would reveal which candidates an earlier visit had tried.
      if (share) send({ type: 'result', ...result });
    },

    report: (report) => new Promise((resolve, reject) => {
      const message = { type: 'report', ...report };
      unanswered.set(report.nonce, { report: message, resolve, reject });
      if (!send(message)) giveBack();
    }),

    close() {
      send({ type: 'bye' });
      const own = socket;
      socket = null;
      lost ??= new EngineError('disposed', 'The source was closed', 'Open another one');
      // The server closes after `bye`; an unreachable one never does.
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

/** The server's limit (tuning/messages.py). */
const MOST_SPECS = 1024;
/** Maximum candidate numbers in a hello, so that the message stays below the server's size limit. */
const MOST_TRIED = 32_768;
/** Shares are rounded to powers of this base, since devices of one class measure nearly the same and should send the same. */
const STEP = 4;
/** The smallest exponent. */
const LAST = -5;
/** Fewer tries than this are sent as 0. */
const LEAST_SKIP = 16;
const MOST_SKIP = 8192;

/** @param {number} share */
const coarse = (share) => STEP ** Math.min(0, Math.max(LAST, Math.round(Math.log(share) / Math.log(STEP))));

/** How many of the first candidates the server may send last: the number of tries, rounded down to a power of two. @param {number} tries */
const skipOf = (tries) => (tries < LEAST_SKIP ? 0 : 2 ** Math.floor(Math.log2(Math.min(tries, MOST_SKIP))));

/** @type {Tune.MinimalHello} */
export function minimalHello({ tried, share: _, ...hello }, came) {
  const ranked = hello.specs.slice(0, MOST_SPECS)
    .map((spec, at) => ({ spec, share: coarse(hello.shares[at]) }))
    // Sorted by the rounded shares: the order of two nearly equal kernels would tell devices apart.
    .sort((a, b) => b.share - a.share || a.spec - b.spec);
  const specs = ranked.map(({ spec }) => spec);
  let room = MOST_TRIED;
  const lately = specs.flatMap((spec) => {
    const found = (tried[spec] ?? []).filter((candidate) => came.get(spec)?.has(candidate)).slice(0, room);
    room -= found.length;
    return found.length ? [[spec, found]] : [];
  });
  const tries = specs.reduce((sum, spec) => sum + (tried[spec]?.length ?? 0), 0);
  return { ...hello, specs, shares: ranked.map(({ share }) => share), tried: Object.fromEntries(lately), skip: skipOf(tries) };
}

/** Whether all candidates of a space were tried, so that the server need not send any. @type {Tune.Whole} */
export function whole({ spec, count, default: own }, tried) {
  const known = new Set(tried[spec]);
  for (let candidate = 0; candidate < count; candidate++) if (candidate !== own && !known.has(candidate)) return false;
  return true;
}

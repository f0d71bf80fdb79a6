// Fetches the files of one bundle, from the store or the network, and verifies their digests.
// Input: file references.  Output: bytes or compiled modules; progress reports.

import { corrupt, requireCounts } from './bundle.js';
import { asEngineError, EngineError } from './errors.js';
import { digitsOf, objectionTo } from './vet.js';

/** Stored files of up to this many bytes are verified on every load. */
const ALWAYS_CHECKED = 1 << 20;
/** Bytes per read. */
const CHUNK = 1 << 16;
/** The most bytes of a file that is read in one piece; weights are split into shards. */
const MOST_BYTES = 1 << 28;
/** The most bytes of a file without a known digest. */
const MOST_POINTER = 1 << 20;
/** Status codes of a server for a missing file. */
const GONE = [404, 410];
/** Milliseconds between progress reports. */
const INTERVAL = 80;

/** @type {T.BundleFiles} */
export function bundleFiles({ base, store, meter, signal, verify }) {
  let settle = async () => {};
  let copy = new Uint8Array();
  let turn = Promise.resolve('');

  /** WebCrypto does not accept shared memory, so such bytes are first copied, one file at a time into one buffer. @type {T.Digest} */
  function digestOf(bytes) {
    if (bytes.buffer instanceof ArrayBuffer) return sha256(bytes);
    turn = turn.then(() => {
      if (copy.length < bytes.length) copy = new Uint8Array(bytes.length);
      copy.set(bytes);
      return sha256(copy.subarray(0, bytes.length));
    });
    return turn;
  }

  /** The address of a file, with the query of the folder. @param {string} file */
  function addressOf(file) {
    const url = new URL(base);
    url.pathname += file;
    return url.href;
  }

  /** @type {T.NetworkError} */
  const networkError = (file, cause) => new EngineError('network', `${file} could not be fetched: ${cause}`,
    `Check the connection, connect-src in the Content-Security-Policy${base.origin === globalThis.origin ? '' : `, the CORS header Access-Control-Allow-Origin of ${base.origin}`}`, { file });

  /** @type {T.Get} */
  async function get(file, cache, ends = signal) {
    const response = await fetch(addressOf(file), { cache, signal: ends }).catch((error) => {
      signal.throwIfAborted();
      throw networkError(file, error);
    });
    if (response.ok) return response;
    const { status } = response;
    if (GONE.includes(status)) throw corrupt(`${file} is missing on the server`, 'Copy the whole bundle', { file, status });
    throw new EngineError('network', `The server answered ${status} for ${file}`, 'Check the server, then load again: finished files are kept', { file, status });
  }

  /** @type {T.Receive} */
  async function receive(ref, response, region, kept = false, open = false) {
    let at = 0;
    const counted = (/** @type {number} */ bytes) => open || meter.count(bytes, kept);
    try {
      const reader = readerOf(response);
      let chunk = new Uint8Array(CHUNK);
      while (at <= ref.bytes) {
        const { done, value } = await reader.read(chunk);
        if (done) break;
        region.set(value.subarray(0, ref.bytes - at), at);
        at += value.length;
        counted(value.length);
        chunk = new Uint8Array(value.buffer);
      }
      if (open && at <= ref.bytes) return at;
      const [what, expected, found] = at === ref.bytes ? ['digest', ref.digest, await digestOf(region)] : ['length', ref.bytes, at];
      if (found !== expected) {
        throw corrupt(`${ref.file} does not match the manifest: its ${what} differs`,
          'Copy the bundle again, in binary mode', { file: ref.file, expected, found });
      }
      return at;
    } catch (error) {
      counted(-at);
      signal.throwIfAborted();
      throw error instanceof EngineError ? error : networkError(ref.file, error);
    }
  }

  /** @type {T.Files['into']} */
  async function into(ref, region) {
    if (await store.read(ref.digest, region)) {
      const trusted = ref.bytes > ALWAYS_CHECKED && !verify;
      if (trusted || await digestOf(region) === ref.digest) return meter.count(ref.bytes, true);
      await store.drop(ref.digest);
    }
    // With a store, a second copy in the HTTP cache would only take disk space.
    await receive(ref, await get(ref.file, store.on ? 'no-store' : 'default'), region);
    await store.keep(ref.digest, region);
  }

  /** @param {T.FileRef} ref */
  function roomFor({ file, bytes }) {
    requireCounts(file, bytes, MOST_BYTES - bytes);
    return new Uint8Array(bytes);
  }

  /** @type {T.Files['bytes']} */
  async function bytes(ref) {
    const region = roomFor(ref);
    await into(ref, region);
    return region;
  }

  /** @type {T.Files['module']} */
  async function module(ref, exported) {
    /** @type {T.Vetted} */
    const vetted = (bytes) => {
      const objection = objectionTo(bytes, exported);
      if (objection) throw corrupt(`${ref.file} is not code of Tilewright: ${objection}`, 'Build the bundle again', { file: ref.file });
      return bytes;
    };
    const kept = await store.has(ref.digest);
    const over = new AbortController();
    try {
      const response = await get(ref.file, 'force-cache', AbortSignal.any([signal, over.signal]));
      let problem = '';
      // Fails on a wrong MIME type; then the verified bytes are compiled below.
      const compiling = WebAssembly.compileStreaming(response.clone()).catch((error) => {
        problem = String(error);
        return null;
      });
      const region = roomFor(ref);
      await receive(ref, response, region, kept);
      if (!kept) await store.keep(ref.digest, region);
      vetted(region);
      return { module: await compiling ?? await WebAssembly.compile(region), problem };
    } catch (error) {
      // Otherwise the compiler would go on reading, even a body without an end.
      over.abort();
      signal.throwIfAborted();
      // Offline, or stale in the HTTP cache: `bytes` uses the store, or downloads again.
      return { module: await WebAssembly.compile(vetted(await bytes(ref))), problem: String(error) };
    }
  }

  /** @type {T.Files['pointer']} */
  async function pointer(name, read) {
    const href = addressOf(name);
    const key = `pointer-${await sha256(new TextEncoder().encode(href))}`;
    try {
      const room = new Uint8Array(MOST_POINTER);
      const found = room.slice(0, await receive({ file: name, bytes: MOST_POINTER, digest: '' }, await get(name, 'no-cache'), room, false, true));
      settle = async () => {
        copy = new Uint8Array();
        const old = String(await store.find(key)) !== String(found) && await store.reach(key);
        await store.keep(key, found);
        if (old) await store.tidy(old);
      };
      return read(found, name);
    } catch (error) {
      const { code, facts: { status } } = asEngineError(error);
      if (GONE.includes(Number(status))) throw new EngineError('network', `The server answered ${status} for ${href}`, 'Check the URL', { file: href, status });
      const kept = code === 'network' && await store.find(key);
      if (!kept) throw error;
      return read(kept, name);
    }
  }

  return { pointer, bytes, into, module, settle: () => settle() };
}

/** A BYOB reader reuses one buffer; not every browser has byte streams as bodies. @type {T.ReaderOf} */
function readerOf({ body }) {
  try {
    return body.getReader({ mode: 'byob' });
  } catch {
    return body.getReader();
  }
}

/** @type {T.Digest} */
export async function sha256(bytes) {
  return digitsOf(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)));
}

/** Counts downloaded bytes and reports progress. @type {T.MakeMeter} */
export function makeMeter(report) {
  let last = 0;
  /** @type {T.Phase} */
  let phase = 'manifest';
  return {
    loaded: 0,
    cached: 0,
    total: 0,

    enter(next) {
      phase = next;
      last = -Infinity;
      this.count(0, false);
    },

    count(bytes, fromCache) {
      this.loaded += bytes;
      if (fromCache) this.cached += bytes;
      if (performance.now() - last < INTERVAL) return;
      last = performance.now();
      // bundle.json is not in the manifest's total, so `loaded` may exceed it.
      report({ phase, loadedBytes: this.loaded, totalBytes: Math.max(this.total, this.loaded), cachedBytes: this.cached, pipelines: this.pipelines });
    },
  };
}

// Fetches the files of one bundle: from the store or the network, verified before anyone sees them.
// Input: file references.  Output: bytes or compiled modules.
// Which files are needed, and where they go, is decided by loader.js.

import { EngineError } from './errors.js';

/**
 * @import {Bytes, Facts, FileRef} from './types.js'
 * @import {Meter} from './progress.js'
 * @import {Store} from './store.js'
 */

/** Kept files up to this many bytes are checked on every load. */
const ALWAYS_CHECKED = 1 << 20;

/** @param {{base: URL, store: Store, meter: Meter, signal: AbortSignal, verify?: boolean}} parts `verify`: check kept weights too */
export function bundleFiles({ base, store, meter, signal, verify }) {
  /** @param {string} file @param {RequestCache} cache */
  async function get(file, cache) {
    const response = await fetch(new URL(file, base), { cache, signal }).catch((error) => {
      signal.throwIfAborted();
      throw networkError(file, error);
    });
    if (response.ok) return response;
    const { status } = response;
    await response.body?.cancel();
    if (status === 404 || status === 410) {
      throw corrupt(`${file} is missing on the server`, 'Check the URL, and copy the whole bundle folder to the server', { file, status });
    }
    throw new EngineError('network', `The server answered ${status} for ${file}`, 'Look at the server, then load again: finished files are kept', { file, status });
  }

  /**
   * Fills the region chunk by chunk, and checks it.
   * @param {FileRef} ref
   * @param {Response} response
   * @param {Uint8Array} region
   * @param {boolean} [kept] how its bytes are counted
   */
  async function receive(ref, response, region, kept = false) {
    let at = 0;
    try {
      const reader = /** @type {ReadableStream<Bytes>} */ (response.body).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (at + value.length > region.length) {
          reader.cancel().catch(() => {});
          throw wrongLength(ref, at + value.length);
        }
        region.set(value, at);
        at += value.length;
        meter.count(value.length, kept);
      }
      if (at !== ref.bytes) throw wrongLength(ref, at);
      const found = await sha256(region);
      if (found !== ref.digest) {
        throw corrupt(`${ref.file} is not what the manifest promises: its bytes have another digest`, COPY, { file: ref.file, expected: ref.digest, found });
      }
    } catch (error) {
      meter.count(-at, kept);
      signal.throwIfAborted();
      throw error instanceof EngineError ? error : networkError(ref.file, error);
    }
  }

  /**
   * Reads a file to its final place: no second copy of it exists in the page.  A kept file had its
   * digest checked before it got its name; it is checked again if it is small (what decides about
   * addresses and code is), or if the page wants it.
   * @param {FileRef} ref
   * @param {Uint8Array} region exactly `ref.bytes` long; may be shared memory
   */
  async function into(ref, region) {
    if (await store.read(ref.digest, region)) {
      const trusted = ref.bytes > ALWAYS_CHECKED && !verify;
      if (trusted || await sha256(region) === ref.digest) return meter.count(ref.bytes, true);
      await store.drop(ref.digest);
    }
    // The store is the cache: a copy in the HTTP cache as well would only cost disk.
    await receive(ref, await get(ref.file, store.on ? 'no-store' : 'default'), region);
    await store.keep(ref.digest, region);
  }

  /** @param {FileRef} ref */
  async function bytes(ref) {
    const region = new Uint8Array(ref.bytes);
    await into(ref, region);
    return region;
  }

  /**
   * A compiled module, handed out only after its digest was checked.  The network's own response goes
   * to compileStreaming, even if the store has the file: only then does the browser keep (and next
   * time find) the optimised machine code.
   * @param {FileRef} ref
   */
  async function module(ref) {
    const kept = await store.has(ref.digest);
    try {
      const response = await get(ref.file, 'force-cache');
      let problem = '';
      // A server with the wrong MIME type makes this fail; the verified bytes compile as well.
      const compiling = WebAssembly.compileStreaming(response.clone()).catch((error) => {
        problem = String(error.message ?? error);
        return null;
      });
      const region = new Uint8Array(ref.bytes);
      await receive(ref, response, region, kept);
      if (!kept) await store.keep(ref.digest, region);
      return { module: await compiling ?? await WebAssembly.compile(region), problem };
    } catch (error) {
      signal.throwIfAborted();
      // Offline with a kept copy, or a stale copy in the HTTP cache: `bytes` knows what to do.
      if (!kept && !(error instanceof EngineError && error.code === 'bundle-corrupt')) throw error;
      return { module: await WebAssembly.compile(await bytes(ref)), problem: 'it comes from the kept copy' };
    }
  }

  /**
   * bundle.json: newest first, the kept copy when the server cannot be reached.  A copy is kept
   * only if it can be read, so that some gateway's own page never replaces a good one.
   * @template T
   * @param {string} name
   * @param {(bytes: Bytes, name: string) => T} read
   */
  async function pointer(name, read) {
    const url = new URL(name, base).href;
    const key = `pointer-${await sha256(new TextEncoder().encode(url))}`;
    try {
      const found = new Uint8Array(await (await get(url, 'no-cache')).arrayBuffer());
      const value = read(found, name);
      await store.keep(key, found);
      return value;
    } catch (error) {
      const kept = error instanceof EngineError && error.code === 'network' && await store.find(key);
      if (!kept) throw error;
      return read(kept, name);
    }
  }

  return { pointer, bytes, into, module };
}

const COPY = 'Copy the bundle to the server again, in binary mode, and load it anew';

/** @param {string} message @param {string} hint @param {Facts} facts */
const corrupt = (message, hint, facts) => new EngineError('bundle-corrupt', message, hint, facts);

/** @param {FileRef} ref @param {number} found */
const wrongLength = ({ file, bytes: expected }, found) => corrupt(
  `${file} has the wrong length: expected ${expected} bytes, found ${found > expected ? 'more' : found}`, COPY, { file, expected, found });

/** @param {string} file @param {unknown} cause */
const networkError = (file, cause) => new EngineError(
  'network',
  `${file} could not be fetched: ${cause instanceof Error ? cause.message : cause}`,
  'Check the connection and the page\'s content security policy, then load again: finished files are kept',
  { file },
);

/** @param {Uint8Array} bytes digests take no shared memory, so of that a copy */
async function sha256(bytes) {
  const plain = bytes.buffer instanceof ArrayBuffer ? /** @type {Bytes} */ (bytes) : bytes.slice();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', plain));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

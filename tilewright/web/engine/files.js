// Fetches the files of one bundle: from the cache or the network, verified before anyone sees them.
// Input: file references.  Output: bytes or compiled modules.
// Which files are needed, and where they go, is decided by loader.js.

import { EngineError } from './errors.js';

/** @typedef {import('./types.js').FileRef} FileRef */
/** @typedef {import('./store.js').Store} Store */
/** @typedef {import('./progress.js').Meter} Meter */
/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/** Kept files up to this many bytes are checked on every load. */
const ALWAYS_CHECKED = 1 << 20;

export class BundleFiles {
  #base;
  #store;
  #meter;
  #signal;
  #verify;

  /**
   * @param {URL} base URL of the bundle's folder
   * @param {Store} store
   * @param {Meter} meter
   * @param {AbortSignal} signal
   * @param {boolean} verify whether kept weights are checked too
   */
  constructor(base, store, meter, signal, verify) {
    this.#verify = verify;
    this.#base = base;
    this.#store = store;
    this.#meter = meter;
    this.#signal = signal;
  }

  /**
   * bundle.json: newest first, the kept copy when the server cannot be reached.  A copy is kept
   * only if it can be read, so that some gateway's own page never replaces a good one.
   * @template T
   * @param {string} name
   * @param {(bytes: Bytes, name: string) => T} read
   * @returns {Promise<T>}
   */
  async pointer(name, read) {
    const url = new URL(name, this.#base).href;
    const key = `pointer-${await sha256(new TextEncoder().encode(url))}`;
    try {
      const response = await this.#fetch(url, 'no-cache');
      const bytes = new Uint8Array(await response.arrayBuffer());
      const pointer = read(bytes, name);
      await this.#store.keep(key, bytes);
      return pointer;
    } catch (error) {
      const kept = error instanceof EngineError && error.code === 'network' && await this.#store.find(key);
      if (!kept) throw error;
      return read(kept, name);
    }
  }

  /**
   * @param {FileRef} ref
   * @returns {Promise<Bytes>}
   */
  async bytes(ref) {
    const region = new Uint8Array(ref.bytes);
    await this.into(ref, region);
    return region;
  }

  /**
   * Reads a file to its final place: no second copy of it exists in the page.  A kept file had its
   * digest checked before it got its name; it is checked again if it is small (what decides about
   * addresses and code is), or if the page wants it.
   * @param {FileRef} ref
   * @param {Uint8Array} region exactly `ref.bytes` long; may be shared memory
   */
  async into(ref, region) {
    if (await this.#store.read(ref.digest, region)) {
      const trusted = ref.bytes > ALWAYS_CHECKED && !this.#verify;
      if (trusted || await sha256(region) === ref.digest) {
        this.#meter.count(ref.bytes, true);
        return;
      }
      await this.#store.drop(ref.digest);
    }
    // The store is the cache: a copy in the HTTP cache as well would only cost disk.
    const response = await this.#fetch(ref.file, this.#store.on ? 'no-store' : 'default');
    await this.#read(ref, response, region);
    await this.#store.keep(ref.digest, region);
  }

  /**
   * A compiled module.  The network's own response goes to compileStreaming, even if the store has
   * the file: only then does the browser keep (and next time find) the optimised machine code.
   * @param {FileRef} ref
   * @returns {Promise<{module: WebAssembly.Module, problem: string}>}
   */
  async module(ref) {
    const kept = await this.#store.has(ref.digest);
    const streamed = await this.#stream(ref, kept);
    if (!streamed) {
      return { module: await WebAssembly.compile(await this.bytes(ref)), problem: 'it comes from the kept copy' };
    }
    if (!kept) await this.#store.keep(ref.digest, streamed.bytes);
    this.#meter.count(ref.bytes, kept);
    const { module, problem, bytes } = streamed;
    return { module: module ?? await WebAssembly.compile(bytes), problem };
  }

  /**
   * Compiles while the bytes arrive; the module is handed out only after the digest was checked.
   * @param {FileRef} ref
   * @param {boolean} kept
   * @returns {Promise<{module: WebAssembly.Module | null, problem: string, bytes: Bytes} | null>} null: use another way
   */
  async #stream(ref, kept) {
    try {
      const response = await this.#fetch(ref.file, 'force-cache');
      let problem = '';
      // A server with the wrong MIME type makes this fail; the verified bytes compile as well.
      const compiling = WebAssembly.compileStreaming(response.clone()).catch((error) => {
        problem = String(error.message ?? error);
        return null;
      });
      const bytes = new Uint8Array(await response.arrayBuffer());
      const module = await compiling;
      await verify(ref, bytes, bytes.length);
      return { module, problem, bytes };
    } catch (error) {
      this.#signal.throwIfAborted();
      // Offline with a kept copy, or a stale copy in the HTTP cache: `bytes` knows what to do.
      if (kept || (error instanceof EngineError && error.code === 'bundle-corrupt')) return null;
      throw error;
    }
  }

  /**
   * Chunk by chunk from the network.
   * @param {FileRef} ref
   * @param {Response} response
   * @param {Uint8Array} region
   */
  async #read(ref, response, region) {
    let at = 0;
    try {
      const reader = /** @type {ReadableStream<Bytes>} */ (response.body).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (at + value.length > region.length) {
          await reader.cancel();
          throw wrongLength(ref, at + value.length);
        }
        region.set(value, at);
        at += value.length;
        this.#meter.count(value.length, false);
      }
      await verify(ref, region, at);
    } catch (error) {
      this.#meter.count(-at, false);
      this.#signal.throwIfAborted();
      if (error instanceof EngineError) throw error;
      throw networkError(ref.file, error);
    }
  }

  /**
   * @param {string} file
   * @param {RequestCache} cache
   */
  async #fetch(file, cache) {
    let response;
    try {
      response = await fetch(new URL(file, this.#base), { cache, signal: this.#signal });
    } catch (error) {
      this.#signal.throwIfAborted();
      throw networkError(file, error);
    }
    if (response.ok) return response;
    const facts = { file, status: response.status };
    await response.body?.cancel();
    if (response.status === 404 || response.status === 410) {
      throw new EngineError('bundle-corrupt', `${file} is missing on the server`,
        'Check the URL, and copy the whole bundle folder to the server', facts);
    }
    throw new EngineError('network', `The server answered ${response.status} for ${file}`,
      'Look at the server, then load again: finished files are kept', facts);
  }
}

/**
 * @param {FileRef} ref
 * @param {number} found
 */
function wrongLength(ref, found) {
  return new EngineError(
    'bundle-corrupt',
    `${ref.file} has the wrong length: expected ${ref.bytes} bytes, found ${found > ref.bytes ? 'more' : found}`,
    'Copy the bundle to the server again, in binary mode, and load it anew',
    { file: ref.file, expected: ref.bytes, found },
  );
}

/**
 * @param {string} file
 * @param {unknown} cause
 */
function networkError(file, cause) {
  return new EngineError(
    'network',
    `${file} could not be fetched: ${cause instanceof Error ? cause.message : cause}`,
    'Check the connection and the page\'s content security policy, then load again: finished files are kept',
    { file },
  );
}

/**
 * @param {FileRef} ref
 * @param {Uint8Array} bytes
 * @param {number} length
 */
async function verify(ref, bytes, length) {
  if (length !== ref.bytes) throw wrongLength(ref, length);
  const found = await sha256(bytes);
  if (found === ref.digest) return;
  throw new EngineError(
    'bundle-corrupt',
    `${ref.file} is not what the manifest promises: its bytes have another digest`,
    'Copy the bundle to the server again, in binary mode, and load it anew',
    { file: ref.file, expected: ref.digest, found },
  );
}

/**
 * @param {Uint8Array} bytes digests take no shared memory, so of that a copy
 * @returns {Promise<string>}
 */
async function sha256(bytes) {
  const plain = bytes.buffer instanceof ArrayBuffer ? /** @type {Bytes} */ (bytes) : bytes.slice();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', plain));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

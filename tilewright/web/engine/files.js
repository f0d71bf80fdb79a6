// Fetches the files of one bundle: from the cache or the network, verified before anyone sees them.
// Input: file references.  Output: bytes or compiled modules.
// Which files are needed, and where they go, is decided by loader.js.

import { EngineError } from './errors.js';

/** @typedef {import('./bundle.js').FileRef} FileRef */
/** @typedef {import('./store.js').Store} Store */
/** @typedef {import('./progress.js').Meter} Meter */
/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

export class BundleFiles {
  #base;
  #store;
  #meter;
  #signal;

  /**
   * @param {URL} base URL of the bundle's folder
   * @param {Store} store
   * @param {Meter} meter
   * @param {AbortSignal} signal
   */
  constructor(base, store, meter, signal) {
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
    try {
      const response = await this.#fetch(url, 'no-cache');
      const bytes = new Uint8Array(await response.arrayBuffer());
      const pointer = read(bytes, name);
      await this.#store.keepPointer(url, bytes);
      return pointer;
    } catch (error) {
      const kept = await this.#store.findPointer(url);
      if (!kept || !(error instanceof EngineError) || error.code !== 'network') throw error;
      return read(new Uint8Array(await kept.arrayBuffer()), name);
    }
  }

  /**
   * @param {FileRef} ref
   * @returns {Promise<Bytes>}
   */
  async bytes(ref) {
    const region = new Uint8Array(ref.bytes);
    const kept = await this.#store.find(ref.digest);
    if (kept) {
      try {
        await this.#read(ref, kept, region, true);
        return region;
      } catch (error) {
        if (!(error instanceof EngineError)) throw error;
        await this.#store.drop(ref.digest);
      }
    }
    // The store is the cache: a copy in the HTTP cache as well would only cost disk.
    const response = await this.#fetch(ref.file, this.#store.on ? 'no-store' : 'default');
    await this.#read(ref, response, region, false);
    await this.#store.keep(ref.digest, region);
    return region;
  }

  /**
   * A compiled module.  The network's own response goes to compileStreaming, even if the store has
   * the file: only then does the browser keep (and next time find) the optimised machine code.
   * @param {FileRef} ref
   * @returns {Promise<WebAssembly.Module>}
   */
  async module(ref) {
    const kept = await this.#store.has(ref.digest);
    const streamed = await this.#stream(ref, kept);
    if (!streamed) return WebAssembly.compile(await this.bytes(ref));
    if (!kept) await this.#store.keep(ref.digest, streamed.bytes);
    this.#meter.count(ref.bytes, kept);
    // A server with the wrong MIME type makes compileStreaming fail; the verified bytes do as well.
    return streamed.module ?? WebAssembly.compile(streamed.bytes);
  }

  /**
   * Compiles while the bytes arrive; the module is handed out only after the digest was checked.
   * @param {FileRef} ref
   * @param {boolean} kept
   * @returns {Promise<{module: WebAssembly.Module | null, bytes: Bytes} | null>} null: use another way
   */
  async #stream(ref, kept) {
    let response;
    try {
      response = await this.#fetch(ref.file, 'force-cache');
      const compiling = WebAssembly.compileStreaming(response.clone()).catch(() => null);
      const bytes = new Uint8Array(await response.arrayBuffer());
      const module = await compiling;
      await this.#verify(ref, bytes, bytes.length);
      return { module, bytes };
    } catch (error) {
      this.#signal.throwIfAborted();
      // Offline with a kept copy, or a stale copy in the HTTP cache: `bytes` knows what to do.
      if (kept || (error instanceof EngineError && error.code === 'bundle-corrupt')) return null;
      throw error;
    }
  }

  /**
   * @param {FileRef} ref
   * @param {Response} response
   * @param {Bytes} region
   * @param {boolean} fromCache
   */
  async #read(ref, response, region, fromCache) {
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
        this.#meter.count(value.length, fromCache);
      }
      await this.#verify(ref, region, at);
    } catch (error) {
      this.#meter.count(-at, fromCache);
      this.#signal.throwIfAborted();
      if (error instanceof EngineError) throw error;
      throw networkError(ref.file, error);
    }
  }

  /**
   * @param {FileRef} ref
   * @param {Bytes} bytes
   * @param {number} length
   */
  async #verify(ref, bytes, length) {
    if (length !== ref.bytes) throw wrongLength(ref, length);
    const found = hex(await crypto.subtle.digest('SHA-256', bytes));
    if (found === ref.digest) return;
    throw new EngineError(
      'bundle-corrupt',
      `${ref.file} is not what the manifest promises: its bytes have another digest`,
      'Copy the bundle to the server again, in binary mode, and load it anew',
      { file: ref.file, expected: ref.digest, found },
    );
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

/** @param {ArrayBuffer} digest */
function hex(digest) {
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

// The browser's cache of bundle files, keyed by content digest, so that bundles share equal files.
// Input: digests and verified bytes.  Output: cached responses, sizes.
// A cache that fails (private mode, quota) is never an error: the store notes the problem and is off.

const CACHE = 'tilewright-v1';
const SIZE = 'x-tilewright-bytes';
const PIECE = 1 << 20;

/**
 * The Cache API wants URLs as keys.  A name below .invalid can never be fetched by accident.
 * @param {string} digest
 */
const keyOf = (digest) => `https://tilewright.invalid/sha256/${digest}`;

export class Store {
  /** @type {Cache | null} */
  #cache = null;
  /** Why nothing is cached, in words; empty while all is well. */
  problem = '';

  static async open() {
    const store = new Store();
    try {
      store.#cache = await caches.open(CACHE);
    } catch (error) {
      store.#fail(error);
    }
    return store;
  }

  get on() {
    return this.#cache !== null;
  }

  /** @param {string} digest */
  find(digest) {
    return this.#match(keyOf(digest));
  }

  /** @param {string} digest */
  async has(digest) {
    return (await this.find(digest)) !== undefined;
  }

  /** @param {string} digest */
  async drop(digest) {
    await this.#cache?.delete(keyOf(digest)).catch((error) => this.#fail(error));
  }

  /**
   * Keeps verified bytes.  They are handed over piece by piece: a shard is never copied as a whole.
   * @param {string} digest
   * @param {Uint8Array<ArrayBuffer>} bytes must not change until the promise settles
   */
  async keep(digest, bytes) {
    await this.#put(keyOf(digest), bytes);
  }

  /**
   * The pointer is the one file that is kept by its URL.
   * @param {string} url
   */
  findPointer(url) {
    return this.#match(url);
  }

  /**
   * @param {string} url
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  async keepPointer(url, bytes) {
    await this.#put(url, bytes);
  }

  /** @param {string} key */
  async #match(key) {
    try {
      return await this.#cache?.match(key);
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }

  /**
   * @param {string} key
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  async #put(key, bytes) {
    const response = new Response(inPieces(bytes), { headers: { [SIZE]: String(bytes.length) } });
    try {
      await this.#cache?.put(key, response);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#cache = null;
    this.problem = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  }
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
function inPieces(bytes) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at < bytes.length) controller.enqueue(bytes.slice(at, (at += PIECE)));
      else controller.close();
    },
  });
}

/** How many bytes of bundle files this origin keeps. */
export async function cachedBytes() {
  if (!globalThis.caches || !(await caches.has(CACHE))) return 0;
  const cache = await caches.open(CACHE);
  let sum = 0;
  for (const request of await cache.keys()) {
    const response = await cache.match(request);
    sum += Number(response?.headers.get(SIZE) ?? 0);
    await response?.body?.cancel();
  }
  return sum;
}

/** Forgets every bundle file; returns how many bytes there were. */
export async function clearCache() {
  const bytes = await cachedBytes();
  await globalThis.caches?.delete(CACHE);
  return bytes;
}

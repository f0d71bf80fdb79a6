// What this origin keeps of bundles, in its private file system, named by content digest: bundles share equal files.
// Input: digests and verified bytes.  Output: the same bytes on a later visit, read straight to their place.
// A store that fails (private mode, quota) is never an error: it notes the problem and is off.

const FOLDER = 'tilewright-v2';

export class Store {
  /** @type {FileSystemDirectoryHandle | null} */
  #folder = null;
  /** Why nothing is kept, in words; empty while all is well. */
  problem = '';

  static async open() {
    const store = new Store();
    try {
      const root = await navigator.storage.getDirectory();
      store.#folder = await root.getDirectoryHandle(FOLDER, { create: true });
    } catch (error) {
      store.#fail(error);
    }
    return store;
  }

  get on() {
    return this.#folder !== null;
  }

  /** @param {string} name */
  async has(name) {
    return (await this.#find(name)) !== null;
  }

  /** @param {string} name */
  async drop(name) {
    await this.#folder?.removeEntry(name).catch(() => {});
  }

  /**
   * Fills the region with the kept file; false if there is none of exactly this length.
   * @param {string} name
   * @param {Uint8Array} region
   */
  async read(name, region) {
    const file = await this.#find(name);
    if (!file) return false;
    // Only workers have access handles, and in some browsers only one reader at a time.
    const access = await openAccess(file, { mode: 'read-only' });
    try {
      if (access) return access.getSize() === region.length && access.read(region, { at: 0 }) === region.length;
      const bytes = await bytesOf(file);
      if (bytes.length !== region.length) return false;
      region.set(bytes);
      return true;
    } catch {
      return false;
    } finally {
      access?.close();
    }
  }

  /**
   * Keeps verified bytes.  The file gets its name only when all of it is on the disk, so a name
   * stands for whole content whatever happened in between: the page closed, the device lost power.
   * @param {string} name
   * @param {Uint8Array} bytes
   */
  async keep(name, bytes) {
    if (!this.#folder) return;
    try {
      const file = await this.#folder.getFileHandle(`${name}.part`, { create: true });
      const access = await openAccess(file);
      if (!access) return; // another tab is keeping the same file, or this is no worker
      try {
        access.truncate(0);
        access.write(bytes, { at: 0 });
        access.flush();
      } finally {
        access.close();
      }
      await /** @type {any} */ (file).move(name);
    } catch (error) {
      await this.drop(`${name}.part`);
      this.#fail(error);
    }
  }

  /**
   * A small file whose length is known to nobody.
   * @param {string} name
   */
  async find(name) {
    const file = await this.#find(name);
    return file && bytesOf(file);
  }

  /** @param {string} name */
  async #find(name) {
    try {
      return await this.#folder?.getFileHandle(name) ?? null;
    } catch (error) {
      if (!(error instanceof DOMException) || error.name !== 'NotFoundError') this.#fail(error);
      return null;
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#folder = null;
    this.problem = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  }
}

/** @param {FileSystemFileHandle} file */
const bytesOf = async (file) => new Uint8Array(await (await file.getFile()).arrayBuffer());

/**
 * @param {any} file
 * @param {object} [options]
 * @returns {Promise<any>} null if somebody else has it open, or outside of a worker
 */
async function openAccess(file, options) {
  try {
    return await file.createSyncAccessHandle?.(options) ?? null;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'NoModificationAllowedError') return null;
    throw error;
  }
}

const root = async () => navigator.storage?.getDirectory().catch(() => null);

/** How many bytes of bundle files this origin keeps. */
export async function cachedBytes() {
  /** @type {any} */
  const folder = await (await root())?.getDirectoryHandle(FOLDER).catch(() => null);
  let sum = 0;
  for await (const file of folder?.values() ?? []) sum += (await file.getFile()).size;
  return sum;
}

/** Forgets every bundle file; returns how many bytes there were. */
export async function clearCache() {
  const bytes = await cachedBytes();
  await (await root())?.removeEntry(FOLDER, { recursive: true }).catch(() => {});
  return bytes;
}

// Bundle files that this origin keeps in its private file system (OPFS), named by content digest.  A failing store (private mode, quota) is
// never an error: it notes the problem and turns itself off.

export const FOLDER = 'tilewright-v2';
/** The temporary name of the file being written: one at a time in all tabs, under a lock. */
const PART = 'part';
/** Milliseconds to wait for other tabs' writes. */
const TIMEOUT = 30_000;
/** @returns {Promise<T.Store>} */
export async function openStore() {
  /** @type {FileSystemDirectoryHandle | null} */
  let folder = null;
  let problem = '';

  /** @param {unknown} error */
  function fail(error) {
    folder = null;
    problem = String(error);
  }

  /** @param {string} name */
  const handle = async (name) => await folder?.getFileHandle(name).catch(() => null) ?? null;

  /** @type {T.Store['drop']} */
  const drop = async (name) => folder?.removeEntry(name).catch(() => {});

  /** @type {T.Store['find']} */
  const find = async (name) => (await handle(name))?.getFile().then(bytesOf).catch(() => null) ?? null;

  /** Follows digests in the text of files: a pointer names its manifest, and the manifest all other files. @type {T.Store['reach']} */
  async function reach(name, found = new Set(), depth = 2) {
    found.add(name);
    const text = new TextDecoder().decode(depth && await find(name) || undefined);
    for (const [digest] of text.matchAll(/\b[0-9a-f]{64}\b/g)) if (!found.has(digest)) await reach(digest, found, depth - 1);
    return found;
  }

  try {
    folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch (error) {
    fail(error);
  }

  return {
    get on() {
      return folder !== null;
    },

    get problem() {
      return problem;
    },

    drop,
    find,
    has: async (name) => await handle(name) !== null,

    async read(name, region) {
      const file = await handle(name);
      if (!file) return false;
      // Sync access handles exist only in workers, and in some browsers only one reader at a time has one.
      const access = await openAccess(file, { mode: 'read-only' }).catch(() => null);
      try {
        if (access) return access.getSize() === region.length && access.read(region, { at: 0 }) === region.length;
        const bytes = await bytesOf(await file.getFile());
        if (bytes.length === region.length) region.set(bytes);
        return bytes.length === region.length;
      } catch {
        return false;
      } finally {
        access?.close();
      }
    },

    async keep(name, bytes) {
      const into = folder;
      if (!into) return;
      try {
        await navigator.locks.request(FOLDER, { signal: AbortSignal.timeout(TIMEOUT) }, async () => {
          const file = await into.getFileHandle(PART, { create: true });
          try {
            /** @type {any} A stream outside of workers. */
            const access = await openAccess(file) ?? await file.createWritable();
            try {
              await access.truncate(0);
              await access.write(bytes, { at: 0 });
              await access.flush?.();
            } finally {
              await access.close();
            }
            // Renamed only once it is complete on disk.
            await /** @type {any} */ (file).move(name);
          } finally {
            await into.removeEntry(PART).catch(() => {});
          }
        });
      } catch (error) {
        // Another tab is reading this very file, so it is stored already.
        if (!isTaken(error)) fail(error);
      }
    },

    reach,

    // Needed only after an update of a bundle.  A failure is left to the next time: another tab may be deleting, too.
    tidy: (old) => import('./cache_eviction.js').then(({ tidy }) => tidy(folder, PART, reach, drop, old)).catch(() => {}),
  };
}

/** @param {Blob} file */
const bytesOf = async (file) => new Uint8Array(await file.arrayBuffer());

/** @param {any} error */
const isTaken = (error) => error?.name === 'NoModificationAllowedError';

/** @type {T.OpenAccess} */
async function openAccess(file, options) {
  try {
    return await file.createSyncAccessHandle?.(options) ?? null;
  } catch (error) {
    if (isTaken(error)) return null;
    throw error;
  }
}

/** The folder of this origin, if the browser has one. */
export const root = async () => navigator.storage?.getDirectory().catch(() => null);

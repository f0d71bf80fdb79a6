// What this origin keeps of bundles, in its private file system, named by content digest.
// A store that fails (private mode, quota) is never an error: it notes the problem and is off.

const FOLDER = 'tilewright-v2';

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
  async function handle(name) {
    try {
      return await folder?.getFileHandle(name) ?? null;
    } catch (error) {
      if (!isNamed(error, 'NotFoundError')) fail(error);
      return null;
    }
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

    has: async (name) => await handle(name) !== null,

    async drop(name) {
      await folder?.removeEntry(name).catch(() => {});
    },

    async read(name, region) {
      const file = await handle(name);
      if (!file) return false;
      // Only workers have access handles, and in some browsers only one reader at a time.
      const access = await openAccess(file, { mode: 'read-only' });
      try {
        if (access) return access.getSize() === region.length && access.read(region, { at: 0 }) === region.length;
        const bytes = await bytesOf(file);
        if (bytes.length === region.length) region.set(bytes);
        return bytes.length === region.length;
      } catch {
        return false;
      } finally {
        access?.close();
      }
    },

    async keep(name, bytes) {
      if (!folder) return;
      try {
        const file = await folder.getFileHandle(`${name}.part`, { create: true });
        const access = await openAccess(file);
        if (!access) return; // another tab is keeping the same file, or this is no worker
        try {
          access.truncate(0);
          access.write(bytes, { at: 0 });
          access.flush();
        } finally {
          access.close();
        }
        // It gets its name only when all of it is on the disk.
        await /** @type {any} */ (file).move(name);
      } catch (error) {
        await folder?.removeEntry(`${name}.part`).catch(() => {});
        fail(error);
      }
    },

    async find(name) {
      const file = await handle(name);
      return file && bytesOf(file);
    },
  };
}

/** @param {FileSystemFileHandle} file */
const bytesOf = async (file) => new Uint8Array(await (await file.getFile()).arrayBuffer());

/** @type {T.IsNamed} */
const isNamed = (error, name) => error instanceof DOMException && error.name === name;

/** @type {T.OpenAccess} */
async function openAccess(file, options) {
  try {
    return await file.createSyncAccessHandle?.(options) ?? null;
  } catch (error) {
    if (isNamed(error, 'NoModificationAllowedError')) return null;
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

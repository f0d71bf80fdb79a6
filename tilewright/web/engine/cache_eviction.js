// Deletes files of bundles that no pointer names any more, or that were not loaded for a long time.
// Input: the store's folder and tools, the files of a replaced bundle.  Loaded on demand.  It imports nothing, since bundlers cannot make
// workers with shared parts.

/** Milliseconds that a bundle is kept after its last load. */
const KEPT_FOR = 30 * 86_400_000;

/** @type {T.Tidy} */
export async function tidy(folder, part, reach, drop, old) {
  const now = Date.now();
  const live = new Set();
  const gone = [];
  for await (const [name, file] of folder?.entries() ?? []) {
    if (name === part) continue;
    const stale = now - (await file.getFile()).lastModified > KEPT_FOR;
    if (name.startsWith('pointer') && !stale) await reach(name, live);
    else if (stale || old.has(name)) gone.push(name);
  }
  for (const name of gone) if (!live.has(name)) await drop(name);
}

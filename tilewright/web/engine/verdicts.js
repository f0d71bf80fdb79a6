// What this device remembers of measurements: the last verdict for each bundle, with what it rests on.
// Input: a bundle's URL, a text of all that the verdict rests on.  Output: the verdict, if nothing of that has changed.
// A browser without storage is no error: the next visit measures again.

import { DEVICES } from './race.js';

/** Its number changes with what is measured. */
const CACHE = 'tilewright-chosen-1';

/** @param {string} url */
const keyOf = (url) => `${new URL('/_tilewright/chosen', url).href}?${new URLSearchParams({ bundle: url })}`;

/** @type {T.Recalled} */
export async function recalled(url, basis) {
  try {
    const found = await (await caches.open(CACHE)).match(keyOf(url));
    const kept = await found?.json();
    return kept?.basis === basis && DEVICES.includes(kept.choice.chosen) ? kept.choice : null;
  } catch {
    return null;
  }
}

/** @type {T.Remembered} */
export async function remember(url, basis, choice) {
  try {
    await (await caches.open(CACHE)).put(keyOf(url), new Response(JSON.stringify({ basis, choice })));
  } catch {
    // Private mode, or storage is full.
  }
}

/** Forgets all verdicts: the next loads measure again. */
export const forgetVerdicts = async () => void await globalThis.caches?.delete(CACHE).catch(() => {});

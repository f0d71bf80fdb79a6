// Counts bytes of a load and reports them, not more often than the eye can follow.
// A file that is read again gives its bytes back first, so that the sum stays honest.

/** @import * as T from './types.js' */

const INTERVAL = 80;

/** @param {(progress: T.Progress) => void} report @returns {T.Meter} */
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
      last = 0;
      this.count(0, false);
    },

    count(bytes, fromCache) {
      this.loaded += bytes;
      if (fromCache) this.cached += bytes;
      if (performance.now() - last < INTERVAL) return;
      last = performance.now();
      // The pointer's own few bytes are not in the manifest; the sum must never pass the total.
      report({ phase, loadedBytes: this.loaded, totalBytes: Math.max(this.total, this.loaded), cachedBytes: this.cached });
    },
  };
}

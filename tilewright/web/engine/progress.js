// Counts bytes of a load and reports them, not more often than the eye can follow.
// Input: bytes as they arrive, per file, from cache or network.  Output: calls of `report`.
// A file that has to be read again gives its bytes back first, so that the sum stays honest.

/** @import {Phase, Progress} from './types.js' */

const INTERVAL = 80;

export class Meter {
  #report;
  #last = 0;
  /** @type {Phase} */
  #phase = 'manifest';
  loaded = 0;
  cached = 0;
  total = 0;

  /** @param {(progress: Progress) => void} report */
  constructor(report) {
    this.#report = report;
  }

  /** @param {Phase} phase */
  enter(phase) {
    this.#phase = phase;
    this.#tell();
  }

  /** @param {number} bytes negative to take back @param {boolean} fromCache */
  count(bytes, fromCache) {
    this.loaded += bytes;
    if (fromCache) this.cached += bytes;
    if (performance.now() - this.#last >= INTERVAL) this.#tell();
  }

  #tell() {
    this.#last = performance.now();
    this.#report({
      phase: this.#phase,
      loadedBytes: this.loaded,
      // The pointer's own few bytes are not in the manifest; the sum must never pass the total.
      totalBytes: Math.max(this.total, this.loaded),
      cachedBytes: this.cached,
    });
  }
}

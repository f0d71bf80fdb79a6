// Turns the bytes of one token after the other into text that can be shown: whole characters, and no part of a stop string.
// It knows no model.  Python's is tilewright/language/stream.py.

export class TextStream {
  #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  #held = '';
  /** @type {string[]} */
  #stops;
  /** Whether one of the stop strings came; the text ends before it. */
  stopped = false;

  /** @param {string[]} stops */
  constructor(stops) {
    this.#stops = stops.filter(Boolean);
  }

  /** What can be shown after these bytes. @param {Uint8Array} piece */
  add(piece) {
    return this.#shown(this.#decoder.decode(piece, { stream: true }), false);
  }

  /** All that is held back. */
  end() {
    return this.#shown(this.#decoder.decode(), true);
  }

  /** @param {string} more @param {boolean} last */
  #shown(more, last) {
    if (this.stopped) return '';
    const text = this.#held + more;
    const found = this.#stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    this.stopped = found.length > 0;
    const end = this.stopped ? Math.min(...found) : last ? text.length : text.length - Math.max(0, ...this.#stops.map((stop) => begun(text, stop)));
    this.#held = this.stopped ? '' : text.slice(end);
    return text.slice(0, end);
  }
}

/** How many characters at the end of the text begin the stop string. @param {string} text @param {string} stop */
function begun(text, stop) {
  let count = Math.min(text.length, stop.length - 1);
  while (count && !text.endsWith(stop.slice(0, count))) count--;
  return count;
}

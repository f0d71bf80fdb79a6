// Vets a WebAssembly module before it is instantiated: it may contain only what Tilewright's linker writes (targets/wasm/module.py).
// Input: the module's bytes, the functions that it must export.  Output: the objection (with the number of a section, 0 for the whole
// module), or ''. It reads sections, not instructions; the browser validates the module as well.

/** The most bytes of a module, for each function that it exports and once more. */
const MOST_BYTES = 1 << 18;
/** The most functions for each exported one. */
const MOST_FUNCTIONS = 64;
/** A slot function, (args, first, last): its entry in the type section, in hexadecimal digits. */
const KERNEL = '60037f7f7f00';
const DRIVER = { abort: '60017f017f', run: '60047f7f7f7f017f', serve: '60017f00' };
/** Imports from `env`: kind and type in hexadecimal digits, and the number of limits that follow. @type {Record<string, [string, number]>} */
const IMPORTS = { memory: ['0203', 2], table: ['017000', 1], scratch: ['037f00', 0] };
/** Magic number and version. */
const HEADER = '0061736d01000000';
/** One active segment, for table 0 from entry 0 on. */
const SEGMENT = '010041000b';

/** Exports of a module with `count` kernels, which also fill the table. @param {number} count */
export const kernelsOf = (count) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, KERNEL]));

/** Exports of the plan driver of a bundle with this number of run-time extents. @param {number} extents */
export const driverOf = (extents) => (extents ? { ...DRIVER, resize: KERNEL } : DRIVER);

/** Two hexadecimal digits for each. @param {Uint8Array} bytes */
export const digitsOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

/** @type {T.ObjectionTo} */
export function objectionTo(bytes, exported) {
  const names = Object.keys(exported);
  let [at, id] = [0, 0];
  /** @param {unknown} condition */
  const need = (condition) => {
    if (!condition) throw id;
  };
  function number() {
    let value = 0;
    for (let factor = 1, byte = 128; byte > 127; factor *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * factor;
    }
    return value;
  }
  const taken = (/** @type {number} */ length) => bytes.subarray(at, at += length);
  const digits = (/** @type {number} */ length) => digitsOf(taken(length));
  // Not as UTF-8: decoders drop byte-order marks, so two different names could look alike.
  const text = () => String.fromCharCode(...taken(number()));
  /** @type {T.EachEntry} */
  const each = (read) => {
    const items = [];
    for (let left = number(); left > 0; left--) {
      need(at < bytes.length);
      items.push(read());
    }
    return items;
  };

  function type() {
    const from = at;
    need(bytes[at++] === 96);
    // Only numbers and vectors are allowed.
    const plain = () => need(bytes[at] > 122 && bytes[at++] < 128);
    each(plain);
    each(plain);
    const length = at - from;
    at = from;
    return digits(length);
  }

  function imported() {
    const [from, what] = [text(), text()];
    need(from === 'env' && Object.hasOwn(IMPORTS, what));
    const [kind, limits] = IMPORTS[what];
    need(digits(kind.length / 2) === kind);
    for (let left = limits; left > 0; left--) number();
    return what;
  }

  /** The contents of each section, by its number. @type {Record<number, any[]>} */
  const found = { 1: [], 2: [], 3: [], 7: [], 9: [] };
  /** @type {Record<number, () => any[]>} */
  const readers = {
    1: () => each(type),
    2: () => each(imported),
    3: () => each(number),
    7: () => each(() => [text(), bytes[at++], number()]),
    9: () => (need(digits(5) === SEGMENT), each(number)),
    10: () => each(() => void taken(number())),
  };
  try {
    need(bytes.length <= MOST_BYTES * (1 + names.length) && digits(8) === HEADER);
    for (let last = 0; at < bytes.length; last = id) {
      id = bytes[at++];
      const end = number() + at;
      need(id > last);
      found[id] = readers[id]();
      need(at === end);
    }
    const { 1: types, 2: imports, 3: functions, 7: exports, 9: entries } = found;
    id = 2;
    need(new Set(imports).size === imports.length);
    id = 3;
    need(functions.length <= MOST_FUNCTIONS * names.length);
    id = 7;
    need(exports.length === names.length);
    for (const [name, kind, index] of exports) need(kind === 0 && Object.hasOwn(exported, name) && exported[name] === types[functions[index]]);
    id = 9;
    need(entries.join() === exports.filter(([name]) => name in kernelsOf(names.length)).map(([,, index]) => index).join());
    return '';
  } catch {
    return `unexpected section ${id}`;
  }
}

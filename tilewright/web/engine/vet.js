// Vets a WebAssembly module before it is instantiated: it may hold only what Tilewright's linker writes (targets/wasm/module.py).
// Input: the module's bytes, the functions that it must export.  Output: the objection to it, or ''.
// It reads sections, not instructions; the browser's own validation comes on top.

/** Maximum bytes and functions of a module, for each function that it exports. */
const [MOST_BYTES, MOST_FUNCTIONS] = [1 << 18, 64];
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

/** @type {T.ObjectionTo} */
export function objectionTo(bytes, exported) {
  let [at, last] = [0, 0];
  /** @type {T.Need} */
  const need = (condition, objection) => {
    if (!condition) throw objection;
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
  const digits = (/** @type {number} */ length) => Array.from(taken(length), (byte) => byte.toString(16).padStart(2, '0')).join('');
  const text = () => new TextDecoder().decode(taken(number()));
  /** @type {T.EachEntry} */
  const each = (read) => {
    const items = [];
    for (let left = number(); left > 0; left--) {
      need(at < bytes.length, 'cut off');
      items.push(read());
    }
    return items;
  };

  function type() {
    const from = at++;
    const plain = () => need(bytes[at] > 122 && bytes[at++] < 128, 'unexpected types');
    each(plain);
    each(plain);
    const length = at - from;
    at = from;
    return digits(length);
  }

  function imported() {
    const [from, what] = [text(), text()];
    const [kind, limits] = from === 'env' && Object.hasOwn(IMPORTS, what) ? IMPORTS[what] : [' ', 0];
    need(digits(kind.length / 2) === kind, `unexpected import ${from}.${what}`);
    for (let left = limits; left > 0; left--) number();
    return what;
  }

  /** @type {Record<number, any[]>} */
  const found = { 1: [], 2: [], 3: [], 7: [], 9: [] };
  /** How to read what is in a section, by its number. @type {Record<number, () => any[]>} */
  const readers = {
    1: () => each(type),
    2: () => each(imported),
    3: () => each(number),
    7: () => each(() => [text(), bytes[at++], number()]),
    9: () => (need(digits(5) === SEGMENT, 'unexpected table entries'), each(number)),
    10: () => each(() => void taken(number())),
  };

  const names = Object.keys(exported);
  try {
    need(bytes.length <= MOST_BYTES * names.length, 'too large');
    need(digits(8) === HEADER, 'no module');
    while (at < bytes.length) {
      const id = bytes[at++];
      const end = number() + at;
      need(readers[id] && id > last, `unexpected section ${id}`);
      last = id;
      found[id] = readers[id]();
      need(at === end, `malformed section ${id}`);
    }
    const { 1: types, 2: imports, 3: functions, 7: exports, 9: entries } = found;
    need(new Set(imports).size === imports.length, 'repeated imports');
    need(functions.length <= MOST_FUNCTIONS * names.length, 'too many functions');
    need(exports.length === names.length, 'unexpected exports');
    for (const [name, kind, index] of exports) need(kind === 0 && Object.hasOwn(exported, name) && exported[name] === types[functions[index]], `unexpected export ${name}`);
    need(entries.join() === exports.filter(([name]) => name in kernelsOf(names.length)).map(([,, index]) => index).join(), 'unexpected table entries');
    return '';
  } catch (objection) {
    return String(objection);
  }
}

// Freezes JavaScript's built-in objects in the worker that judges candidates, before the first candidate arrives.  Even if a defect lets a
// candidate run code, it cannot redefine functions that compute its verdict.  Errors are not frozen: their subclasses assign `name`, which
// a frozen prototype would refuse.

/** @type {any[]} */
const BUILT_IN = [
  Object, Function, Boolean, Symbol, Number, BigInt, Math, String, RegExp, Date, Array, Map, Set, WeakMap, WeakSet, Promise, Proxy, Reflect,
  JSON, Atomics, ArrayBuffer, DataView, Object.getPrototypeOf(Uint8Array), Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array,
  Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array, TextDecoder, TextEncoder,
  WebAssembly, WebAssembly.Module, WebAssembly.Instance, WebAssembly.Memory, WebAssembly.Table, WebAssembly.Global,
  Object.getPrototypeOf([][Symbol.iterator]()), Object.getPrototypeOf(new Map()[Symbol.iterator]()),
  // Browsers may hide it without isolation.
  ...(globalThis.SharedArrayBuffer ? [SharedArrayBuffer] : []),
];

export function freezeBuiltIns() {
  for (const known of BUILT_IN) {
    Object.freeze(known);
    if (known.prototype) Object.freeze(known.prototype);
  }
  Object.freeze(Object.getPrototypeOf(performance));
  for (const name of ['performance', 'WebAssembly', 'Math', 'Number', 'Object', 'Array', 'Atomics', 'postMessage']) {
    Object.defineProperty(globalThis, name, { value: globalThis[/** @type {'Math'} */ (name)], writable: false, configurable: false });
  }
}

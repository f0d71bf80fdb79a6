// Adds up the WebAssembly memories that this page makes, by itself or inside instances.
// Input: nothing; called before any engine loads.  Output: `bytes()`.
// Memories made inside workers are not seen: an engine that has such says so itself.

/** @returns {{bytes(): number}} */
export function watchMemories() {
  /** @type {Set<WeakRef<WebAssembly.Memory>>} */
  const known = new Set();
  const seen = new WeakSet();
  const note = (/** @type {unknown} */ value) => {
    if (!(value instanceof Memory) || seen.has(value)) return;
    seen.add(value);
    known.add(new WeakRef(value));
  };
  const noteAll = (/** @type {WebAssembly.Instance} */ instance) => Object.values(instance.exports).forEach(note);
  const { Memory, Instance, instantiate, instantiateStreaming } = WebAssembly;

  WebAssembly.Memory = new Proxy(Memory, {
    construct(target, args) {
      const made = Reflect.construct(target, args);
      note(made);
      return made;
    },
  });
  WebAssembly.Instance = new Proxy(Instance, {
    construct(target, args) {
      const made = Reflect.construct(target, args);
      noteAll(made);
      return made;
    },
  });
  const noting = (/** @type {Function} */ original) => async (/** @type {unknown[]} */ ...args) => {
    const made = await original.apply(WebAssembly, args);
    noteAll(made.instance ?? made);
    return made;
  };
  WebAssembly.instantiate = noting(instantiate);
  WebAssembly.instantiateStreaming = noting(instantiateStreaming);

  return {
    bytes: () => [...known].reduce((sum, ref) => sum + (ref.deref()?.buffer.byteLength ?? 0), 0),
  };
}

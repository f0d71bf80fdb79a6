// Adds up the WebAssembly memories that this page makes, by itself or inside instances.
// Input: nothing; called before any engine loads.  Output: `bytes()`, `sharedBytes()`.
// Memories made inside workers are not seen: such an engine reports them itself.

/** @returns {{bytes(): number, sharedBytes(): number}} */
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

  const buffers = () => [...known].map((ref) => ref.deref()?.buffer).filter((buffer) => buffer !== undefined);
  const total = (/** @type {ArrayBufferLike[]} */ list) => list.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return {
    bytes: () => total(buffers()),
    sharedBytes: () => total(buffers().filter((buffer) => !(buffer instanceof ArrayBuffer))),
  };
}

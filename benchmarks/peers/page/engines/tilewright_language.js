// Tilewright's language models: the engine's own loop on a bundle, the likeliest token.
// Input: the bundle of a case.  Output: ids with the time of each.

/**
 * @param {number} threads
 * @param {string | null} device
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads, device) {
  /** @type {any} */
  const { load } = await import('/engine/engine.js');
  /** @type {any} */
  const { generate } = await import('/engine/generate.js');
  /** @type {Record<string, unknown>} */
  const about = {};
  return {
    about,
    async open({ name }) {
      const engine = await load(`/bundles/${name}/`, { threads, device: device ?? 'wasm' });
      Object.assign(about, { threads: engine.info.features.threads, variant: engine.info.variant.name });
      return {
        run: () => Promise.reject(new Error('a language model speaks')),
        async speak({ ids, most }) {
          const start = performance.now();
          const times = [];
          const made = [];
          for await (const id of generate(engine, ids, { most })) {
            times.push(performance.now() - start);
            made.push(id);
          }
          return { times, ids: made };
        },
        memoryBytes: () => engine.info.memoryBytes,
        dispose: () => engine.dispose(),
      };
    },
  };
}

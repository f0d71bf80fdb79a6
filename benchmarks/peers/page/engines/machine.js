// The limits of the machine: a bundle whose driver call alone is timed.

/**
 * @param {number} threads
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads) {
  /** @type {any} */
  const { load } = await import('/engine/engine.js');
  /** @type {Record<string, unknown>} */
  const about = {};
  return {
    about,
    async open({ name }) {
      const engine = await load(`/bundles/${name}/`, { threads });
      about.threads = engine.info.features.threads;
      let inside = 0;
      return {
        async run() {
          const { milliseconds } = await engine.time({ runs: 1, warmup: 0 });
          inside = milliseconds[0];
          return [];
        },
        inside: () => inside,
        dispose: () => engine.dispose(),
      };
    },
  };
}

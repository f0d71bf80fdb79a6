// Tilewright, loaded as a page would load it: engine from /engine/, bundle from /bundles/.

import { fetchAll } from '../tensors.js';

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
    async open({ name, base, inputs }) {
      const engine = await load(`/bundles/${name}/`, { threads });
      const feeds = Object.fromEntries((await fetchAll(base, inputs)).map(({ name: key, data, shape }) => [key, { data, shape }]));
      Object.assign(about, { threads: engine.info.features.threads, variant: engine.info.variant, lost: engine.info.lost });
      let inside = 0;
      return {
        async run() {
          const { outputs, milliseconds } = await engine.run(feeds);
          inside = milliseconds;
          return Object.entries(outputs).map(([key, tensor]) => ({ name: key, ...tensor }));
        },
        inside: () => inside,
        memoryBytes: () => engine.info.memoryBytes,
        dispose: () => engine.dispose(),
      };
    },
  };
}

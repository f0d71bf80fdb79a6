// Tilewright, loaded as a page would load it: engine from /engine/, bundle from /bundles/.

import { fetchAll, widened } from '../tensors.js';

/**
 * @param {number} threads
 * @param {string | null} device
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads, device) {
  /** @type {any} */
  const { load } = await import('/engine/engine.js');
  /** @type {Record<string, unknown>} */
  const about = {};
  return {
    about,
    async open({ name, base, inputs }) {
      const engine = await load(`/bundles/${name}/`, { threads, device: device ?? 'wasm' });
      const given = (await fetchAll(base, inputs)).map(widened);
      // In place, as a page would write them there; runs leave them alone.  The bundle has this one size.  A GPU's memory is not the page's.
      const feeds = Object.fromEntries(given.map(({ name: key, data, shape }) => {
        if (device) return [key, { data, shape }];
        const place = engine.input(key);
        place.set(data);
        return [key, { data: place, shape }];
      }));
      Object.assign(about, { threads: engine.info.features.threads, variant: engine.info.variant.name, lost: engine.info.lost });
      let inside = 0;
      /** The arrays of the first run take the outputs of all others. @type {Record<string, any>} */
      let into = {};
      return {
        async run() {
          const { outputs, milliseconds } = await engine.run(feeds, { into });
          inside = milliseconds;
          into = Object.fromEntries(Object.entries(outputs).map(([key, { data }]) => [key, data]));
          return Object.entries(outputs).map(([key, tensor]) => ({ name: key, ...tensor }));
        },
        async stream(runs) {
          // What the last run wrote there stays.
          engine.parts.lent.add(0);
          await engine.time({ runs: 1, warmup: 0, repeat: runs });
        },
        inside: () => inside,
        memoryBytes: () => engine.info.memoryBytes,
        dispose: () => engine.dispose(),
      };
    },
  };
}

// The limits of the machine: a bundle whose driver call alone is timed.

/** @param {number} threads */
export async function start(threads) {
  const { load } = await import('/engine/engine.js');
  return {
    about: {},
    async open({ name }) {
      const engine = await load(`/bundles/${name}/`, { threads });
      this.about = { threads: engine.info.threads ?? 1 };
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

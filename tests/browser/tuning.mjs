// Scenarios of swapping and tuning, for page.mjs.  They judge nothing: pytest does.

/** What scenarios share, in the page: kernels as they come in JSON, a source of them, events. */
export function tuningSpy() {
  /** @type {any} */
  const scope = globalThis;
  const bytesOf = (/** @type {string} */ text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  scope.tuning = {
    bytesOf,

    /** @param {any} sent */
    async changeOf({ spec, module, tiles, grains, scratch }) {
      return { spec, module: module && await WebAssembly.compile(bytesOf(module)), tiles, grains, scratch };
    },

    /** @param {any} outputs */
    plain: (outputs) => Object.values(outputs).map((/** @type {any} */ { data }) => Array.from(data, Number)),

    /**
     * Gives these kernels, one after the other; `lose` says after how many the connection is lost, once each.
     * @param {any[]} kernels @param {number[]} lose
     */
    listSource(kernels, lose = []) {
      const log = { opened: 0, results: [], reports: [], hello: null, closed: false };
      let left = [];
      let given = 0;
      return {
        log,
        async open(hello) {
          log.opened++;
          log.hello = hello;
          if (lose.includes(-log.opened)) throw new scope.tuning.EngineError('network', 'lost while opening');
          left = kernels.filter(({ spec, candidate }) => hello.specs.includes(spec) && !hello.tried[spec]?.includes(candidate));
          const specs = [...new Set(left.map(({ spec }) => spec))];
          return { compiler: 'test', kernels: specs.map((spec) => ({ spec, kind: 'kind', shape: 'shape', checksum: '0'.repeat(16), count: 9, default: 0, gold: null })) };
        },
        async next() {
          if (lose.includes(given)) {
            lose.splice(lose.indexOf(given), 1);
            throw new scope.tuning.EngineError('network', 'lost');
          }
          const header = left.shift();
          if (!header) return null;
          given++;
          return { header, module: bytesOf(header.module) };
        },
        result: async (result) => log.results.push(result),
        report: async (report) => log.reports.push(report),
        close: () => (log.closed = true),
      };
    },
  };
}

/** @type {Record<string, (tab: any, params: any) => Promise<unknown>>} */
export const TUNING = {
  /**
   * Loads a bundle, and after each round of changes runs it with every input; what goes wrong is told.
   */
  swaps: ({ page }, { url, inputs, rounds, options = {} }) => page.evaluate(async (url, inputs, rounds, options) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const engine = await load(url, options);
    globalThis.engine = engine;
    const run = async () => {
      const found = [];
      // Twice: short plans run in the worker first, then in the page.
      for (const given of [...inputs, ...inputs]) found.push(tuning.plain((await engine.run(spied.filled(given))).outputs));
      return found;
    };
    const results = [{ outputs: await run(), error: null }];
    for (const round of rounds) {
      const changes = await Promise.all(round.map(tuning.changeOf));
      const error = await engine.swap(changes).then(() => null, (thrown) => JSON.parse(JSON.stringify(thrown)));
      results.push({ outputs: await run(), error });
    }
    return { results, variant: engine.info.variant.name, threads: engine.info.features.threads };
  }, url, inputs, rounds, options),

  /** Which code variant the browser takes. */
  variant: ({ page }, { url }) => page.evaluate(async (url) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const engine = await load(url);
    const { name } = engine.info.variant;
    engine.dispose();
    return name;
  }, url),

  /** Asks for a swap while runs are queued; gives the first element of each result, in the order of the calls. */
  swapInQueue: ({ page }, { url, inputs, change, options = {} }) => page.evaluate(async (url, given, change, options) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const engine = await load(url, options);
    const inputs = spied.filled(given);
    const changes = [await tuning.changeOf(change)];
    const runs = Array.from({ length: 6 }, () => engine.run(inputs));
    const swapped = engine.swap(changes);
    // The page looks for the swap's code first; what is asked for after that comes later.
    await new Promise((resolve) => setTimeout(resolve, 0));
    await swapped;
    runs.push(...Array.from({ length: 6 }, () => engine.run(inputs)));
    const back = engine.swap([{ spec: change.spec, module: null }]);
    await back;
    runs.push(engine.run(inputs));
    return (await Promise.all(runs)).map(({ outputs }) => tuning.plain(outputs)[0]).map((data) => [data[0], data.at(-1)]);
  }, url, inputs, change, options),

  /** Swaps, then a worker of the pool dies; gives whether all of the results after that are the swapped kernel's. */
  swapThenDeath: ({ page }, { url, inputs, change, mark }) => page.evaluate(async (url, given, change, mark) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const { workers, outcome } = spied;
    const inputs = spied.filled(given);
    const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const engine = await load(url, { threads: 3 });
    await engine.run(inputs);
    await engine.swap([await tuning.changeOf(change)]);
    const count = workers.length;
    workers.at(-1).terminate();
    while (workers.length === count || !workers.at(-1).heard) {
      await outcome(engine.run(inputs));
      await sleep(20);
    }
    await sleep(300);
    const all = [];
    for (let time = 0; time < 10; time++) {
      const [data] = tuning.plain((await engine.run(inputs)).outputs);
      all.push(data.every((value) => value === mark));
    }
    await engine.swap([{ spec: change.spec, module: null }]);
    const [data] = tuning.plain((await engine.run(inputs)).outputs);
    return { all, back: data.every((value) => value !== mark), workers: workers.length - count };
  }, url, inputs, change, mark),
};

// Scenarios of engines on WebGPU, for page.mjs.

/** @type {import('./scenario.mjs').Scenarios} */
export const GPUS = {
  /** Exchanges kernels by their text, each alone; gives results before, with each and after, and what was refused. */
  gpuSwaps: ({ page }, { url, inputs, changes }) => page.evaluate(async (url, given, changes) => {
    const { tuning, spied } = globalThis;
    const engine = await spied.load(url, { device: 'webgpu' });
    const run = async () => tuning.plain((await engine.run(spied.filled(given))).outputs);
    const found = [{ outputs: await run(), error: null }];
    for (const { spec, module, tiles } of [...changes, { spec: changes[0].spec, module: null }]) {
      const code = module && atob(module);
      const error = await engine.swap([{ spec, module: code, tiles }]).then(() => null, (thrown) => JSON.parse(JSON.stringify(thrown)));
      found.push({ outputs: await run(), error });
    }
    engine.dispose();
    return found;
  }, url, inputs, changes),

  /** Runs a model so often, one run after the other; what each gives. */
  gpuRuns: ({ page }, { url, inputs, times, options = {} }) => page.evaluate(async (url, given, times, options) => {
    const { tuning, spied } = globalThis;
    const engine = await spied.load(url, { device: 'webgpu', ...options });
    const found = [];
    for (let time = 0; time < times; time++) {
      found.push(await engine.run(spied.filled(given)).then(
        (/** @type {any} */ { outputs }) => ({ outputs: tuning.plain(outputs) }),
        (/** @type {any} */ error) => ({ error: JSON.parse(JSON.stringify(error)) }),
      ));
    }
    engine.dispose();
    return found;
  }, url, inputs, times, options),

  /** Runs a model once, and then twice so that the second begins before the first came back; `told`: and after the device said that it refused the first. */
  gpuOverlapping: ({ page }, { url, inputs, told }) => page.evaluate(async (url, given, told) => {
    const { tuning, spied } = globalThis;
    const engine = await spied.load(url, { device: 'webgpu' });
    const run = () => engine.run(spied.filled(given)).then(
      (/** @type {any} */ { outputs }) => ({ outputs: tuning.plain(outputs) }),
      (/** @type {any} */ error) => ({ error: JSON.parse(JSON.stringify(error)) }),
    );
    // A channel is not open at once, and hears nothing that was said before.
    const channel = new BroadcastChannel('overlapping');
    const mapped = new Promise((resolve) => (channel.onmessage = resolve));
    const before = await run();
    const first = run();
    if (told) await mapped;
    const second = await run();
    channel.postMessage(null);
    const found = [before, await first, second, await run()];
    engine.dispose();
    return found;
  }, url, inputs, told),

  /** Tunes with the candidates of a static build beside the bundle. */
  gpuFolder: ({ page }, { base, inputs, rounds }) => page.evaluate(async (base, given, rounds) => {
    const [{ load }, { tune }, { folderSource }] = await Promise.all(['engine/engine.js', 'tune/tuner.js', 'tune/sources/folder.js'].map((file) => import(new URL(file, base).href)));
    const engine = await load(base, { device: 'webgpu' });
    const events = [];
    await engine.run(globalThis.spied.filled(given));
    const source = folderSource(new URL('tuning/', base));
    const summary = await tune(engine, { source, budget: 1, rounds, onEvent: (/** @type {any} */ event) => events.push(event) });
    engine.dispose();
    return { summary, events };
  }, base, inputs, rounds),

  /** What states are before and after the engine was timed; the results of runs around that. */
  gpuStates: ({ page }, { url, inputs }) => page.evaluate(async (url, given) => {
    const { tuning, spied } = globalThis;
    const engine = await spied.load(url, { device: 'webgpu' });
    const run = async () => tuning.plain((await engine.run(spied.filled(given))).outputs);
    const states = async () => Promise.all(engine.states.names.map(async (/** @type {string} */ name) => Array.from(await engine.states.read(name))));
    await run();
    const before = await states();
    await engine.time({ runs: 3 });
    const { steps } = await engine.profile({ runs: 2 });
    const after = await states();
    const next = await run();
    await engine.states.reset();
    await run();
    const wanted = await run();
    engine.dispose();
    return { before, after, steps: steps.length, next, wanted };
  }, url, inputs),

  /**
   * Loads with device `auto`, twice; `plant`: the verdict that the second load finds, which may differ from what was measured.
   * The second engine stays as `engine`; `told` has what its `onlost` was called with.
   */
  autoTwice: ({ page }, { url, inputs, plant }) => page.evaluate(async (url, given, plant) => {
    const { tuning, spied } = globalThis;
    const opened = async () => {
      const before = spied.workers.length;
      const phases = new Set();
      const engine = await spied.load(url, { device: 'auto', software: true, threads: 1, onProgress: (/** @type {any} */ { phase }) => phases.add(phase) });
      const workers = spied.workers.length - before;
      const states = await Promise.all(engine.states.names.map(async (/** @type {string} */ name) => Array.from(await engine.states.read(name))));
      const { outputs } = await engine.run(spied.filled(given));
      return { engine, found: { info: engine.info, outputs: tuning.plain(outputs), workers, states, phases: [...phases] } };
    };
    const first = await opened();
    first.engine.dispose();
    const cache = await caches.open('tilewright-chosen-1');
    for (const request of plant ? await cache.keys() : []) {
      const { basis, choice } = await (await cache.match(request)).json();
      await cache.put(request, new Response(JSON.stringify({ basis, choice: { ...choice, chosen: plant } })));
    }
    const second = await opened();
    globalThis.engine = second.engine;
    globalThis.told = [];
    second.engine.onlost = (/** @type {any} */ info) => globalThis.told.push(info);
    return [first.found, second.found];
  }, url, inputs, plant),

  /** Aborts a load with device `auto` when it is in this phase; how many workers it started, and how many it ended. */
  autoAborted: ({ page }, { url, phase: wanted }) => page.evaluate(async (url, wanted) => {
    const { outcome, load, workers } = globalThis.spied;
    const ended = new Set();
    const { terminate } = Worker.prototype;
    Worker.prototype.terminate = function () {
      ended.add(this);
      terminate.call(this);
    };
    const stop = new AbortController();
    const onProgress = (/** @type {any} */ { phase }) => phase === wanted && stop.abort();
    const found = await outcome(load(url, { device: 'auto', software: true, threads: 1, signal: stop.signal, onProgress }));
    return { outcome: found, started: workers.length, ended: ended.size };
  }, url, wanted),

  /** Ends the browser's GPU process and runs the page's `engine`, so often. */
  async autoLost({ page }, { inputs, times }) {
    const session = await page.browser().target().createCDPSession();
    const found = [];
    for (let time = 0; time < times; time++) {
      await session.send('Browser.crashGpuProcess').catch(() => {});
      found.push(await page.evaluate(async (given) => {
        const { tuning, spied, engine, told } = globalThis;
        const answer = await engine.run(spied.filled(given)).then(
          (/** @type {any} */ { outputs }) => ({ outputs: tuning.plain(outputs) }),
          (/** @type {any} */ error) => ({ error: JSON.parse(JSON.stringify(error)) }),
        );
        return { ...answer, info: engine.info, told: told.length };
      }, inputs));
    }
    return found;
  },

  /**
   * Loads with `recover`, ends the browser's GPU process and runs the model, so often; what the engine says each time.  Two runs at a time.
   */
  async gpuRecovers({ page }, { url, inputs, times }) {
    const session = await page.browser().target().createCDPSession();
    const run = () => page.evaluate(async (given) => {
      const { tuning, spied, engine, told } = globalThis;
      const answer = () => engine.run(spied.filled(given)).then(
        (/** @type {any} */ { outputs }) => ({ outputs: tuning.plain(outputs) }),
        (/** @type {any} */ error) => ({ error: JSON.parse(JSON.stringify(error)) }),
      );
      const [first, second] = await Promise.all([answer(), answer()]);
      const states = await Promise.all(engine.states.names.map(async (/** @type {string} */ name) => Array.from(await engine.states.read(name)))).catch(() => null);
      return { first, second, states, lost: engine.info.lost, told: told.length };
    }, inputs);
    await page.evaluate(async (url) => {
      globalThis.engine = await globalThis.spied.load(url, { device: 'webgpu', recover: true });
      globalThis.told = [];
      globalThis.engine.onlost = (/** @type {any} */ info) => globalThis.told.push(info);
    }, url);
    const found = [await run()];
    for (let time = 0; time < times; time++) {
      await session.send('Browser.crashGpuProcess').catch(() => {});
      found.push(await run());
    }
    return found;
  },

  /** Runs a model, ends the browser's GPU process, runs it again; `guarded`: with the tuner's guard. */
  async gpuLost({ page }, { url, inputs, guarded }) {
    const run = () => page.evaluate(async (given) => {
      const { tuning, spied, engine } = globalThis;
      return engine.run(spied.filled(given)).then(
        (/** @type {any} */ { outputs }) => ({ outputs: tuning.plain(outputs) }),
        (/** @type {any} */ error) => ({ error: JSON.parse(JSON.stringify(error)) }),
      );
    }, inputs);
    await page.evaluate(async (url, guarded) => {
      const { engine, persist } = await globalThis.tuning.open(url, { device: 'webgpu' });
      if (guarded) await persist.restore(engine);
      globalThis.engine = engine;
    }, url, guarded);
    const before = await run();
    const session = await page.browser().target().createCDPSession();
    await session.send('Browser.crashGpuProcess').catch(() => {});
    const after = await run();
    const later = await run();
    return { before, after, later };
  },
};

// Scenarios of loading engines, and of workers that die, for page.mjs.

import { PATIENCE } from './scenario.mjs';

/** @type {import('./scenario.mjs').Scenarios} */
export const ENGINES = {
  /** Loads a bundle on a blank page, runs it once, and leaves the engine there as `engine`; `show` its outputs. */
  engine: ({ page }, { url, inputs, options = {}, show = true }) => page.evaluate(async (url, inputs, options, show) => {
    const { load } = globalThis.spied;
    try {
      const engine = await load(url, options);
      globalThis.engine = engine;
      const { outputs, bucket } = await engine.run(globalThis.spied.filled(inputs));
      const arrays = Object.entries(show ? outputs : {}).map(([key, { data }]) => [key, Array.from(data, Number)]);
      return { info: engine.info, bucket, outputs: Object.fromEntries(arrays), isolated: crossOriginIsolated };
    } catch (error) {
      return { error: JSON.parse(JSON.stringify(error)) };
    }
  }, url, inputs, options, show),

  /**
   * Opens a source of candidates below `base` and takes up to `count` of them; `abort` ends it after so many
   * milliseconds.  A candidate that does not come is noted, and the next one asked for.  `signer`: the key that must have signed them.
   */
  source: ({ page }, { base, kind, given, hello, count, abort = 0, signer = '' }) => page.evaluate(async (base, kind, given, hello, count, abort, signer) => {
    const plain = (/** @type {any} */ error) => (error.name === 'AbortError' ? error.name : JSON.parse(JSON.stringify(error)));
    const stop = new AbortController();
    const { folderSource } = await import(new URL('tune/sources/folder.js', base).href);
    const { signedSource } = await import(new URL('tune/sources/signed.js', base).href);
    const { pyodideSource } = await import(new URL('tune/sources/pyodide.js', base).href);
    /** @type {any[]} */
    const taken = [];
    /** @type {any} */
    let started = null;
    const options = { signal: stop.signal, onProgress: (/** @type {any} */ progress) => (started = progress) };
    const taking = kind === 'folder' ? folderSource(given, options) : pyodideSource({ ...given, ...options });
    const source = signer ? signedSource(taking, signer) : taking;
    if (abort) setTimeout(() => stop.abort(), abort);
    try {
      const classes = await source.classes();
      const welcome = await source.open(hello);
      while (taken.length < count) {
        const start = performance.now();
        try {
          const sent = await source.next();
          if (!sent) break;
          const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', sent.module));
          const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
          taken.push({ ...sent.header, found: hex, valid: WebAssembly.validate(sent.module), milliseconds: performance.now() - start });
        } catch (error) {
          taken.push({ error: plain(error) });
        }
      }
      return { classes: classes.length, welcome, taken, started };
    } catch (error) {
      return { error: plain(error), taken, started };
    } finally {
      await source.close();
    }
  }, base, kind, given, hello, count, abort, signer),

  /** What a page left in `told`, once it is there. */
  told: async ({ page }) => {
    for (let end = Date.now() + PATIENCE; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 50))) {
      const told = await page.evaluate(() => globalThis.told);
      if (told) return told;
    }
    throw new Error('the page told nothing');
  },

  /** The page of a static build, when it has nothing more to do: it may load anew in between. */
  staticPage: async ({ page }) => {
    for (let end = Date.now() + 2 * PATIENCE; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100))) {
      const found = await page.evaluate(() => ({
        state: document.getElementById('state')?.textContent ?? '',
        threads: Number(document.getElementById('threads')?.textContent),
        isolated: crossOriginIsolated,
        trials: Array.from(document.querySelectorAll('#trials tr'), (row) => Array.from(row.children, (cell) => cell.textContent)),
      })).catch(() => null);
      if (found && !/^(starting|loading|tuning|$)/.test(found.state)) return found;
    }
    throw new Error('the page goes on and on');
  },

  /** Tunes a bundle over a server's socket until nothing is left; engine and tuner are below `base`. */
  tuneByServer: ({ page }, { url, base = '/', socket = '/api/tune' }) => page.evaluate(async (url, base, socket) => {
    const [{ load }, { tune }, { socketSource }] = await Promise.all(['engine/engine.js', 'tune/tuner.js', 'tune/sources/socket.js']
      .map((file) => import(new URL(base + file, location.href).href)));
    const engine = await load(url);
    /** @type {any[]} */
    const trials = [];
    const onEvent = (/** @type {any} */ event) => event.type === 'trial' && trials.push(event);
    const summary = await tune(engine, { source: socketSource(socket), budget: 1, onEvent });
    return { trials, summary, isolated: crossOriginIsolated };
  }, url, base, socket),

  /** Kills the engine's worker while it works and others wait; then loads the bundle again. */
  killWorker: ({ page }, { url, inputs }) => page.evaluate(async (url, given) => {
    const { load, outcome, workers, filled } = globalThis.spied;
    const inputs = filled(given);
    const engine = await load(url);
    const open = Array.from({ length: 20 }, () => engine.run(inputs));
    await open[0];
    workers[0].terminate();
    const codes = await Promise.all(open.map(outcome));
    const later = await outcome(engine.run(inputs));
    engine.dispose();
    const again = await load(url);
    return { codes, later, again: await outcome(again.run(inputs)) };
  }, url, inputs),

  /** Kills a worker of the pool in mid-run, again and again, while it holds a tile's place; every time the engine must recover. */
  killHelper: ({ page }, { url, inputs, times }) => page.evaluate(async (url, given, times) => {
    const { load, outcome, workers, filled, soon, until } = globalThis.spied;
    const inputs = filled(given);
    for (const name of Object.keys(inputs)) inputs[name] = inputs[name].map((_, at) => at % 7);
    const LAST = 2;
    const engine = await load(url, { threads: 3 });
    const want = (await engine.run(inputs)).outputs.y.data;
    /** The step that it is in, plus one; more than that before its first. */
    const step = () => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * LAST);
    const during = [];
    let error = null;
    /** Runs that are held back while it is in the first step. */
    async function held() {
      for (;;) {
        let over = false;
        const run = engine.time({ runs: 20, warmup: 0 });
        run.catch((thrown) => (error = thrown)).finally(() => (over = true));
        while (!over && step() !== 1) await soon();
        engine.preempt(true);
        if (step() === 1) return { run };
        engine.preempt(false);
        await run;
      }
    }
    for (let time = 0; time < times; time++) {
      const { run } = await held();
      workers.at(-1).terminate();
      await until(() => workers.length >= 4 + time);
      engine.preempt(false);
      during.push(await outcome(run));
    }
    // The last one, too, takes part again.
    await until(() => workers.at(-1).heard);
    const after = [];
    for (let time = 0; time < 3; time++) after.push(await outcome(engine.run(inputs)));
    const found = (await engine.run(inputs)).outputs.y.data;
    return {
      before: 'done', during, after, error: JSON.parse(JSON.stringify(error)), workers: workers.length,
      same: found.every((value, at) => value === want[at]),
    };
  }, url, inputs, times),

  /** Loads while workers of the pool are dead before their first word; gives how long each was waited for, and which took part. */
  stillborn: ({ page }, { url, inputs, deaths }) => page.evaluate(async (url, given, deaths) => {
    const { load } = globalThis.spied;
    const { setTimeout: later } = globalThis;
    /** @type {number[]} */
    const waits = [];
    globalThis.setTimeout = /** @type {any} */ ((/** @type {() => void} */ work, /** @type {number} */ wait, /** @type {any[]} */ ...given) => {
      if (wait >= 10_000) waits.push(wait);
      return later(work, wait / 20, ...given);
    });
    let left = deaths;
    globalThis.Worker = class extends Worker {
      constructor(/** @type {[any, any]} */ ...parts) {
        super(...parts);
        if (String(parts[0]).endsWith('pool_worker.js') && left-- > 0) this.terminate();
      }
    };
    const engine = await load(url, { threads: 3 });
    const inputs = globalThis.spied.filled(given);
    const tickets = () => [1, 2].map((worker) => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * worker + 1));
    // On a busy machine it may take further successors until one starts within the shortened wait.
    while (!tickets().every(Boolean)) {
      await engine.run(inputs);
      await new Promise((resolve) => later(resolve, 10));
    }
    return { waits, tickets: tickets() };
  }, url, inputs, deaths),

  /** One engine after the other, with another kernel; every second one dies.  The page keeps them all, as some pages do. */
  manyLoads: ({ page }, { url, input, change, times }) => page.evaluate(async (url, input, sent, times) => {
    const { load, outcome, workers } = globalThis.spied;
    const kept = globalThis.kept ??= [];
    const change = await globalThis.tuning.changeOf(sent);
    const outcomes = [];
    for (let time = 0; time < times; time++) {
      const first = workers.length;
      outcomes.push(await outcome(load(url).then(async (/** @type {any} */ engine) => {
        kept.push(engine);
        await engine.swap([change]);
        await engine.run({ [input]: engine.input(input) });
        const ended = new Promise((resolve) => (engine.onjob = (/** @type {number} */ open) => open < 0 && resolve(null)));
        if (time % 2) workers[first].terminate();
        else engine.dispose();
        await ended;
      })));
    }
    return outcomes;
  }, url, input, change, times),

  /** Holds a run of `engine` back for a while. */
  preempt: ({ page }, { inputs }) => page.evaluate(async (given) => {
    const { engine, spied } = globalThis;
    const inputs = spied.filled(given);
    try {
      const want = (await engine.run(inputs)).outputs.y.data;
      engine.preempt(true);
      const run = engine.run(inputs);
      const held = await Promise.race([run.then(() => false), globalThis.spied.aWhile().then(() => true)]);
      engine.preempt(false);
      const { data } = (await run).outputs.y;
      return { held, after: 'done', same: data.every((value, at) => value === want[at]) };
    } catch (error) {
      return { error: error.code };
    }
  }, inputs),

  /** Two engines at work at the same time. */
  twoModels: ({ page }, { first, second, times }) => page.evaluate(async (first, second, times) => {
    const { load, outcome, filled } = globalThis.spied;
    const asked = [first, second];
    const engines = await Promise.all(asked.map(({ url }) => load(url, { threads: 2 })));
    const wants = [];
    for (const [at, engine] of engines.entries()) wants.push((await engine.run(filled(asked[at].inputs))).outputs.y.data);
    const runs = engines.map((engine, at) => Array.from({ length: times }, () => engine.run(filled(asked[at].inputs))));
    const outcomes = await Promise.all(runs.map((each) => Promise.all(each.map(outcome))));
    const results = await Promise.all(runs.map((each) => Promise.all(each)));
    const same = results.every((each, at) => each.every(({ outputs }) => outputs.y.data.every((value, n) => value === wants[at][n])));
    return { first: outcomes[0], second: outcomes[1], same };
  }, first, second, times),

  /** Runs while another tab is in front. */
  async hidden({ page }, { url, inputs }) {
    const other = await page.browserContext().newPage();
    await other.bringToFront();
    return page.evaluate(async (url, given) => {
      const { load, outcome, filled } = globalThis.spied;
      const engine = await load(url, { threads: 2 });
      const outcomes = [];
      for (let time = 0; time < 3; time++) outcomes.push(await outcome(engine.run(filled(given))));
      return { outcomes, visibility: document.visibilityState };
    }, url, inputs);
  },

  /** Ends all workers of the page, as a browser does that needs their memory. */
  endWorkers: ({ page }) => page.evaluate(() => globalThis.spied.workers.forEach((worker) => worker.terminate())),

  /** What the caller's own signals and `dispose` do to loads and runs. */
  signals: ({ page }, { url, inputs }) => page.evaluate(async (url, given) => {
    const { load, outcome, filled } = globalThis.spied;
    const inputs = filled(given);
    const engine = await load(url);
    const stop = new AbortController();
    const first = engine.run(inputs);
    const queued = engine.run(inputs, { signal: stop.signal });
    const last = engine.run(inputs);
    stop.abort();
    const signals = {
      loadAborted: await outcome(load(url, { signal: AbortSignal.abort() })),
      runAborted: await outcome(engine.run(inputs, { signal: AbortSignal.abort() })),
      first: await outcome(first),
      queued: await outcome(queued),
      last: await outcome(last),
    };
    const open = engine.run(inputs);
    engine.dispose();
    engine.dispose();
    return { ...signals, open: await outcome(open), later: await outcome(engine.run(inputs)) };
  }, url, inputs),
};

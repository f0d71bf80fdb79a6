// Scenarios of swapping and tuning, for page.mjs.  They judge nothing: pytest does.

/** What scenarios share, in the page: kernels as they come in JSON, a source of them, events. */
export function tuningSpy() {
  /** @type {any} */
  const scope = globalThis;
  const bytesOf = (/** @type {string} */ text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  scope.tuning = {
    bytesOf,

    /** Engine and tuner of this page; a bundle as it is used. @param {string} url @param {object} [options] */
    async open(url, options) {
      const [{ load, EngineError }, { tune }, persist] = await Promise.all(['/engine/engine.js', '/tune/tuner.js', '/tune/records/persist.js']
        .map((file) => import(new URL(file, location.href).href)));
      scope.tuning.EngineError = EngineError;
      return { load, tune, persist, engine: await load(url, options) };
    },

    /** Resolves when an event says so. @param {any[]} events @param {(event: any) => boolean} test */
    async until(events, test) {
      while (!events.some(test)) await new Promise((resolve) => setTimeout(resolve, 5));
    },

    /** @param {any} sent */
    async changeOf({ spec, module, tiles, grains, scratch }) {
      return { spec, module: module && await WebAssembly.compile(bytesOf(module)), tiles, grains, scratch };
    },

    /** The first trial workers cannot be started, the first swaps of other kernels fail. @param {any} engine */
    spoil(engine, { workers = 0, swaps = 0 }) {
      globalThis.Worker = class extends Worker {
        constructor(/** @type {[any, any]} */ ...parts) {
          if (parts[1]?.name === 'tilewright-trial' && workers-- > 0) throw new Error('no worker today');
          super(...parts);
        }
      };
      const { swap } = engine;
      engine.swap = async (/** @type {any[]} */ changes) => {
        if (changes.some(({ module }) => module) && swaps-- > 0) throw new scope.tuning.EngineError('host', 'no swap today', 'Wait');
        return swap(changes);
      };
    },

    /** In the engine each step and each run takes as long as any other. @param {any} engine */
    steady(engine) {
      const { profile, time } = engine;
      engine.profile = async (/** @type {any} */ ask) => {
        const { steps, ...rest } = await profile(ask);
        return { ...rest, steps: steps.map((/** @type {any} */ step) => ({ ...step, milliseconds: 1 })) };
      };
      engine.time = async (/** @type {any} */ ask) => {
        const { milliseconds, ...rest } = await time(ask);
        return { ...rest, milliseconds: milliseconds.map(() => 1) };
      };
    },

    /** @param {any} outputs */
    plain: (outputs) => Object.values(outputs).map((/** @type {any} */ { data }) => Array.from(data, Number)),

    /**
     * Gives these kernels, one after the other; `lose` says after how many the connection is lost, once each.
     * @param {any[]} kernels @param {number[]} lose
     */
    listSource(kernels, lose = [], offered = {}) {
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
          const specs = [...new Set(kernels.map(({ spec }) => spec))].filter((spec) => hello.specs.includes(spec));
          return { compiler: 'test', kernels: specs.map((spec) => ({ spec, kind: 'kind', shape: 'shape', checksum: '0'.repeat(16), count: 9, default: 0, gold: null, ...offered })) };
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
  swaps: ({ page }, { url, inputs, rounds, options = {}, brief = false }) => page.evaluate(async (url, inputs, rounds, options, brief) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const engine = await load(url, options);
    globalThis.engine = engine;
    const run = async () => {
      const found = [];
      // Twice: short plans run in the worker first, then in the page.
      for (const given of [...inputs, ...inputs]) {
        const filled = spied.filled(given);
        if (brief) for (const name of Object.keys(filled)) filled[name] = filled[name].map((_, at) => at % 7);
        found.push(tuning.plain((await engine.run(filled)).outputs));
      }
      // Of long results some elements and the sum.
      if (brief) return found.map((outputs) => outputs.map((data) => [...data.filter((_, at) => at % 997 === 0), data.reduce((sum, value) => sum + value)]));
      return found;
    };
    const results = [{ outputs: await run(), error: null }];
    for (const round of rounds) {
      const changes = await Promise.all(round.map(tuning.changeOf));
      const error = await engine.swap(changes).then(() => null, (thrown) => JSON.parse(JSON.stringify(thrown)));
      results.push({ outputs: await run(), error });
    }
    return { results, variant: engine.info.variant.name, threads: engine.info.features.threads };
  }, url, inputs, rounds, options, brief),

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
    return (await Promise.all(runs)).map(({ outputs: { y: { data } } }) => [data[0], data.at(-1)]);
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
      const { data } = (await engine.run(inputs)).outputs.y;
      all.push(data.every((value) => value === mark));
    }
    await engine.swap([{ spec: change.spec, module: null }]);
    const { data } = (await engine.run(inputs)).outputs.y;
    return { all, back: data.every((value) => value !== mark), workers: workers.length - count };
  }, url, inputs, change, mark),

  /**
   * Swaps while the last worker of the pool is dead before it said a word (`stillborn`), `dies`, or is `deaf`;
   * gives the outcomes of the swaps, the values of all results, and whether it took part when it had none or all of its messages.
   */
  swapsInTrouble: ({ page }, { url, inputs, changes, how }) => page.evaluate(async (url, given, sent, how) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const { workers, outcome } = spied;
    const LAST = 2;
    const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
    let deaf = false;
    let stillborn = false;
    const held = [];
    // Stands between the engine's worker and the last one of the pool.
    globalThis.Worker = class extends Worker {
      constructor(/** @type {[any, any]} */ ...parts) {
        super(...parts);
        if (stillborn) this.terminate();
      }

      postMessage(/** @type {any} */ message, /** @type {any} */ transfer) {
        if (message.number !== LAST) return super.postMessage(message, transfer);
        const { port1, port2 } = new MessageChannel();
        message.port.onmessage = ({ data }) => {
          if (deaf) held.push(() => port2.postMessage(data));
          else port2.postMessage(data);
        };
        port2.onmessage = ({ data }) => message.port.postMessage(data);
        return super.postMessage({ ...message, port: port1 }, [port1]);
      }
    };
    const inputs = spied.filled(given);
    const [first, second, third] = await Promise.all(sent.map((/** @type {any} */ change) => tuning.changeOf(change)));
    const others = workers.length;
    const engine = await load(url, { threads: LAST + 1 });
    const run = async () => [...new Set((await engine.run(inputs)).outputs.y.data)];
    const tickets = () => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * LAST + 1);
    const outcomes = [await outcome(engine.swap([first]))];
    const values = [await run()];
    if (how === 'stillborn') {
      stillborn = true;
      workers[others + LAST].terminate();
      while (workers.length < others + LAST + 2) await sleep(10);
      stillborn = false;
    } else deaf = true;
    const swapping = outcome(engine.swap([second]));
    if (how === 'dies') {
      await sleep(100);
      workers[others + LAST].terminate();
      deaf = false;
    }
    outcomes.push(await swapping);
    const before = tickets();
    values.push(await run());
    outcomes.push(await outcome(engine.swap([third])));
    values.push(await run());
    const idle = tickets() === before;
    deaf = false;
    held.forEach((hear) => hear());
    let last;
    const seen = tickets();
    do values.push(last = await run());
    while (how !== 'stillborn' && tickets() === seen);
    outcomes.push(await outcome(engine.swap([{ spec: first.spec, module: null }])));
    return { outcomes, values, idle, last, back: await run() };
  }, url, inputs, changes, how),

  /**
   * A swap while the last worker of the pool neither answers nor ends; later it ends after all.  Gives what became
   * of the swap, values before and after, and whether all of the pool took part again.
   */
  swapBesideUndead: ({ page }, { url, inputs, changes }) => page.evaluate(async (url, given, sent) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const LAST = 2;
    let undead = false;
    /** @type {(() => void)[]} */
    const ends = [];
    // Stands between the engine's worker and the last one of the pool.
    globalThis.Worker = class extends Worker {
      terminate() {
        if (undead) ends.push(() => super.terminate());
        else super.terminate();
      }

      postMessage(/** @type {any} */ message, /** @type {any} */ transfer) {
        if (message.number !== LAST) return super.postMessage(message, transfer);
        const { port1, port2 } = new MessageChannel();
        message.port.onmessage = ({ data }) => undead || port2.postMessage(data);
        port2.onmessage = ({ data }) => message.port.postMessage(data);
        return super.postMessage({ ...message, port: port1 }, [port1]);
      }
    };
    const inputs = spied.filled(given);
    const [first, second] = await Promise.all(sent.map((/** @type {any} */ change) => tuning.changeOf(change)));
    const engine = await load(url, { threads: LAST + 1 });
    const run = async () => [...new Set((await engine.run(inputs)).outputs.y.data)];
    const tickets = () => [1, LAST].map((worker) => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * worker + 1));
    const outcomes = [await spied.outcome(engine.swap([first]))];
    const values = [await run()];
    undead = true;
    outcomes.push(await spied.outcome(engine.swap([second])));
    const alone = tickets();
    values.push(await run());
    const idle = tickets().every((count, at) => count === alone[at]);
    undead = false;
    ends.forEach((end) => end());
    const before = tickets();
    const back = () => tickets().every((count, at) => count !== before[at]);
    for (let time = 0; time < 500 && !back(); time++) {
      values.push(await run());
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return { outcomes, values, idle, back: back() };
  }, url, inputs, changes),

  /** Swaps while runs are held back, again and again; gives what came of it, and the values of the runs after each. */
  swapsWhileHeld: ({ page }, { url, inputs, changes }) => page.evaluate(async (url, given, sent) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const inputs = spied.filled(given);
    const others = spied.workers.length;
    const engine = await load(url, { threads: 3 });
    const found = [];
    for (const change of await Promise.all(sent.map((/** @type {any} */ one) => tuning.changeOf(one)))) {
      await engine.run(inputs);
      engine.preempt(true);
      const swapped = await spied.outcome(engine.swap([change]));
      const run = engine.run(inputs);
      const held = await Promise.race([run.then(() => false), new Promise((resolve) => setTimeout(resolve, 50, true))]);
      engine.preempt(false);
      found.push({ swapped, held, values: [...new Set((await run).outputs.y.data)] });
    }
    return { found, workers: spied.workers.length - others };
  }, url, inputs, changes),

  /** Runs with a kernel that traps, then with the bundle's own again. */
  swapInTrap: ({ page }, { url, inputs, change, options = {} }) => page.evaluate(async (url, given, sent, options) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const inputs = spied.filled(given);
    const engine = await load(url, options);
    const before = (await engine.run(inputs)).outputs.y.data;
    await engine.swap([await tuning.changeOf(sent)]);
    const error = await engine.run(inputs).catch((thrown) => JSON.parse(JSON.stringify(thrown)));
    await engine.swap([{ spec: sent.spec, module: null }]);
    const after = (await engine.run(inputs)).outputs.y.data;
    return { error, same: after.every((value, at) => value === before[at]) };
  }, url, inputs, change, options),

  /** Disposes the engine while it swaps, with runs before and after; gives the outcomes. */
  swapThenDispose: ({ page }, { url, inputs, change }) => page.evaluate(async (url, given, sent) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { tuning, spied } = globalThis;
    const inputs = spied.filled(given);
    const change = await tuning.changeOf(sent);
    const found = [];
    for (const wait of [0, 1, 5, 20]) {
      const engine = await load(url, { threads: 2 });
      const jobs = [engine.run(inputs), engine.swap([change])];
      await jobs[0];
      jobs.push(engine.run(inputs));
      await new Promise((resolve) => setTimeout(resolve, wait));
      engine.dispose();
      jobs.push(engine.swap([change]));
      found.push(await Promise.all(jobs.map(spied.outcome)));
    }
    return found;
  }, url, inputs, change),

  /** How often `onjob` says that the engine ended: its worker dies, or it is disposed, or both. */
  endsOf: ({ page }, { url, inputs, how }) => page.evaluate(async (url, given, how) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { workers, outcome, filled } = globalThis.spied;
    const engine = await load(url);
    const told = [];
    let end = () => {};
    const ended = new Promise((resolve) => (end = () => resolve(null)));
    engine.onjob = (open) => {
      told.push(open);
      if (open < 0) end();
    };
    await engine.run(filled(given));
    if (how === 'kill') workers[0].terminate();
    if (how === 'error') workers[0].dispatchEvent(new ErrorEvent('error', { message: 'out of memory', cancelable: true }));
    if (how === 'dispose') engine.dispose();
    await ended;
    const later = await outcome(engine.run(filled(given)));
    engine.dispose();
    engine.dispose();
    return { ends: told.filter((open) => open < 0).length, later };
  }, url, inputs, how),

  /** Tunes with a list of kernels, and runs the model before and after. */
  tune: ({ page }, { url, kernels, inputs, options = {}, limits = {}, lose = [], again = false, offered = {}, broken = {} }) => page.evaluate(async (url, kernels, given, options, limits, lose, again, offered, broken) => {
    const { tuning, spied } = globalThis;
    const { engine, tune, persist, load } = await tuning.open(url, limits);
    const inputs = spied.filled(given);
    const run = async (/** @type {any} */ from = engine) => tuning.plain((await from.run(inputs)).outputs);
    const events = [];
    const source = tuning.listSource(kernels, lose, offered);
    const before = await run();
    tuning.spoil(engine, broken);
    try {
      const summary = await tune(engine, { source, budget: 1, device: 'test', ...options, onEvent: (/** @type {any} */ event) => events.push(event) });
      const after = await run();
      if (!again) return { summary, events, log: source.log, before, after };
      // The next visit: another engine, no source.
      engine.dispose();
      const next = await load(url, limits);
      const restored = await persist.restore(next);
      return { summary, events, log: source.log, before, after, restored, later: await run(next) };
    } catch (error) {
      return { error: JSON.parse(JSON.stringify(error)), text: String(error), events, log: source.log };
    }
  }, url, kernels, inputs, options, limits, lose, again, offered, broken),

  /**
   * A session, then the gain on request; gives which kernels each look at the whole model was of, and how many looks the session took.
   * So many first runs look ten times as slow.
   */
  tuneForGain: ({ page }, { url, kernels, inputs, slow = 0 }) => page.evaluate(async (url, kernels, given, slow) => {
    const { tuning, spied } = globalThis;
    const { engine, tune } = await tuning.open(url);
    const { measureGain } = await import(new URL('/tune/exchange/gain.js', location.href).href);
    await engine.run(spied.filled(given));
    const { swap, time } = engine;
    const looks = [];
    let [inUse, swaps] = ['own', 0];
    engine.swap = async (/** @type {any[]} */ changes) => {
      await swap(changes);
      swaps++;
      for (const { module } of changes) inUse = module ? 'tuned' : 'own';
    };
    engine.time = async (/** @type {any} */ ask) => {
      const { milliseconds, ...rest } = await time(ask);
      looks.push(inUse);
      return { ...rest, milliseconds: milliseconds.map((/** @type {number} */ one) => (slow-- > 0 ? 10 * one : one)) };
    };
    const events = [];
    const { gain } = await tune(engine, { source: tuning.listSource(kernels), budget: 1, device: 'test', onEvent: (/** @type {any} */ event) => events.push(event) });
    const looked = looks.length;
    const asked = await measureGain(engine);
    engine.dispose();
    // Firefox's driver gives an object once, however often it occurs.
    return JSON.parse(JSON.stringify({ gain, asked, events, looks, looked, swaps, inUse }));
  }, url, kernels, inputs, slow),

  /** What this device keeps says that a kernel won; gives the outcome of runs with it, and what the next visit finds. */
  keptWinner: ({ page }, { url, inputs, header, how }) => page.evaluate(async (url, given, header, how) => {
    const { tuning, spied } = globalThis;
    const { engine: first, load, persist } = await tuning.open(url);
    const { keep, recall } = await import(new URL('/tune/records/record.js', location.href).href);
    const inputs = spied.filled(given);
    const run = async (/** @type {any} */ engine) => {
      try {
        return tuning.plain((await engine.run(inputs)).outputs)[0];
      } catch (error) {
        return error.code;
      }
    };
    const before = await run(first);
    const { spec, candidate } = header;
    const record = await recall(first);
    await keep(first, { ...record, winners: [{ ...header, module: tuning.bytesOf(header.module), ratio: 2 }], tried: { [spec]: [candidate] } });
    first.dispose();
    const engine = await load(url);
    const restored = await persist.restore(engine);
    const runs = [await run(engine)];
    if (how === 'forget') await persist.forget(engine);
    runs.push(await run(engine));
    const { winners, bad, tried } = await recall(engine);
    engine.dispose();
    const next = await load(url);
    return { before, restored, runs, winners: winners.length, bad, tried, later: await persist.restore(next), last: await run(next) };
  }, url, inputs, header, how),

  /** Two tuning runs of one engine at once; the page hears of its jobs as before. */
  tuneBoth: ({ page }, { url, kernels, inputs, locks }) => page.evaluate(async (url, kernels, given, locks) => {
    const { tuning, spied } = globalThis;
    const { engine, tune } = await tuning.open(url);
    if (!locks) Object.defineProperty(navigator, 'locks', { value: undefined });
    const heard = [];
    const page = engine.onjob = (/** @type {number} */ open) => heard.push(open);
    const begin = () => {
      const [events, source, stop] = [[], tuning.listSource(kernels), new AbortController()];
      const done = tune(engine, { source, budget: 1, device: 'test', signal: stop.signal, onEvent: (/** @type {any} */ event) => events.push(event) });
      return { events, source, stop, done };
    };
    const all = [begin(), begin(), begin()];
    await tuning.until(all[2].events, ({ type }) => type === 'paused');
    // Who gives up waiting keeps nobody waiting.
    all[1].stop.abort();
    const rounds = (await Promise.all(all.map(({ done }) => done))).map((summary) => summary.rounds);
    const back = engine.onjob === page;
    const count = heard.length;
    await engine.run(spied.filled(given));
    return {
      rounds, back, heard: heard.slice(count), hello: all[2].source.log.hello.tried,
      types: all.map(({ events }) => events.map(({ type }) => type).filter((type) => type !== 'latency')),
    };
  }, url, kernels, inputs, locks),

  /** A hidden tab tunes no more after a while; another one may, and then the first one again. */
  async tuneAway({ page }, { url, kernels }) {
    const begin = (/** @type {any} */ tab, /** @type {any[]} */ sent, /** @type {boolean} */ holds) => tab.evaluate(async (url, kernels, holds) => {
      const { tuning } = globalThis;
      const { engine, tune } = await tuning.open(url);
      let state = 'visible';
      Object.defineProperty(document, 'visibilityState', { get: () => state });
      globalThis.show = (/** @type {string} */ next) => {
        state = next;
        document.dispatchEvent(new Event('visibilitychange'));
      };
      const source = globalThis.source = tuning.listSource(kernels);
      const { next } = source;
      // The first tab is hidden before its second kernel comes: that one waits until the source is opened again.
      source.next = () => (holds && source.log.opened === 1 && source.log.results.length === 1 ? new Promise(() => {}) : next());
      const events = globalThis.events = [];
      globalThis.tuned = tune(engine, { source, budget: 1, device: 'test', absence: 50, onEvent: (/** @type {any} */ event) => events.push(event) });
    }, url, sent, holds);
    await begin(page, kernels, true);
    await page.evaluate(async () => {
      await globalThis.tuning.until(globalThis.events, ({ type }) => type === 'trial');
      globalThis.show('hidden');
    });
    const other = await page.browserContext().newPage();
    await other.evaluateOnNewDocument(tuningSpy);
    await other.goto(page.url());
    await begin(other, kernels.slice(0, 2), false);
    const end = (/** @type {any} */ tab) => tab.evaluate(async () => {
      const { rounds } = await globalThis.tuned;
      const { log } = globalThis.source;
      return { rounds, types: globalThis.events.map(({ type }) => type), tried: log.hello.tried, opened: log.opened, candidates: log.results.map(({ candidate }) => candidate) };
    });
    const second = await end(other);
    await other.close();
    await page.evaluate(() => globalThis.show('visible'));
    return { first: await end(page), second };
  },

  /** Tunes from the folder of a static build; once a trial was made the network is away for some requests. */
  tuneOffline: ({ page }, { base, failures }) => page.evaluate(async (base, failures) => {
    const [{ load }, { tune }, { folderSource }] = await Promise.all(['engine/engine.js', 'tune/tuner.js', 'tune/sources/folder.js'].map((file) => import(new URL(file, base).href)));
    const engine = await load(base);
    const events = [];
    const { fetch } = globalThis;
    let left = failures;
    globalThis.fetch = async (...parts) => {
      if (events.some(({ type }) => type === 'trial') && left-- > 0) throw new TypeError('Failed to fetch');
      return fetch(...parts);
    };
    const summary = await tune(engine, { source: folderSource(new URL('tuning/', base)), budget: 1, onEvent: (/** @type {any} */ event) => events.push(event) });
    return { summary, events };
  }, base, failures),

  /**
   * Candidates one after the other, by the trials themselves: no tuner.  `every`: milliseconds after which a pause
   * begins or ends; `own`: a module in place of the bundle's code.
   */
  trials: ({ page }, { url, kernels, every = 0, own = '', options = {} }) => page.evaluate(async (url, kernels, every, own, options) => {
    const { bytesOf } = globalThis.tuning;
    const [{ load }, { openSpecs }, { openTrials }] = await Promise.all(['engine/engine.js', 'tune/trial/specs.js', 'tune/trial/trials.js']
      .map((file) => import(new URL(`/${file}`, location.href).href)));
    const engine = await load(url);
    const specs = await openSpecs(engine);
    const { program } = engine.parts;
    const trials = openTrials({
      code: own ? bytesOf(own).buffer : await specs.code(), slots: program.slots, bytes: 2 ** 26,
      scratchBytes: program.memory.scratch_bytes, ...options,
    });
    const found = [];
    for (const { spec, digest, tiles, module } of kernels) {
      let on = false;
      const timer = every && setInterval(() => trials.pause(on = !on), every);
      const work = { judge: false, spec, facts: () => specs.facts(spec), bytes: specs.bytesOf(spec), incumbent: null, bar: { margin: 1.01, grant: 1 } };
      const outcome = trials.attempt({ ...work, candidate: { digest, module: bytesOf(module), tiles } });
      found.push(await outcome.then(({ module: _, ...rest }) => rest, (error) => JSON.parse(JSON.stringify(error))));
      clearInterval(timer);
      trials.pause(false);
    }
    trials.close();
    engine.dispose();
    return found;
  }, url, kernels, every, own, options),

  /** Fills an input in place, tunes, and runs with what should still be there. */
  tuneBesideInputs: ({ page }, { url, kernels, inputs, earlier }) => page.evaluate(async (url, kernels, given, earlier) => {
    const { tuning, spied } = globalThis;
    const { engine: first, load, tune } = await tuning.open(url);
    const inputs = spied.filled(given);
    const wanted = tuning.plain((await first.run(inputs)).outputs);
    first.dispose();
    const engine = await load(url);
    const others = Object.fromEntries(Object.entries(inputs).map(([name, { length }]) => [name, new Float32Array(length).fill(3)]));
    if (earlier) await engine.run(others);
    // An array that the page has given away cannot be read any more.
    if (earlier) structuredClone(others, { transfer: Object.values(others).map(({ buffer }) => buffer) });
    const places = Object.fromEntries(Object.keys(inputs).map((name) => [name, engine.input(name)]));
    for (const [name, place] of Object.entries(places)) place.set(inputs[name]);
    await tune(engine, { source: tuning.listSource(kernels), budget: 1, device: 'test' });
    return { wanted, found: tuning.plain((await engine.run(places)).outputs) };
  }, url, kernels, inputs, earlier),

  /** The page asks for the inputs' places of all buckets and fills those of the last, before tuning or in its midst, and runs with them. */
  tuneBesideBuckets: ({ page }, { url, kernels, inputs, amid }) => page.evaluate(async (url, kernels, given, amid) => {
    const { tuning, spied } = globalThis;
    const { engine, tune } = await tuning.open(url);
    const inputs = spied.filled(given);
    const wanted = tuning.plain((await engine.run(inputs)).outputs);
    let places = {};
    function fill() {
      for (const { dims } of engine.info.plans) places = Object.fromEntries(Object.keys(inputs).map((name) => [name, engine.input(name, dims)]));
      for (const [name, place] of Object.entries(places)) place.set(Array.from(inputs[name], (value) => (place instanceof BigInt64Array ? BigInt(value) : value)));
    }
    if (!amid) fill();
    const events = [];
    await tune(engine, { source: tuning.listSource(kernels), budget: 1, device: 'test', onEvent: (/** @type {any} */ { type }) => {
      if (amid && type === 'trial' && !events.includes('trial')) fill();
      events.push(type);
    } });
    return { wanted, found: tuning.plain((await engine.run(places)).outputs), trials: events.filter((type) => type === 'trial').length };
  }, url, kernels, inputs, amid),

  /** Ends the engine, or the tuning run, at some moment of a session; then runs the engine once more. */
  tuneEnds: ({ page }, { url, kernels, inputs, how, after }) => page.evaluate(async (url, kernels, given, how, after) => {
    const { tuning, spied } = globalThis;
    const others = spied.workers.length;
    const { engine, tune } = await tuning.open(url);
    const inputs = spied.filled(given);
    const events = [];
    const source = tuning.listSource(kernels);
    const stop = new AbortController();
    const [before] = tuning.plain((await engine.run(inputs)).outputs);
    const tuned = tune(engine, { source, budget: 1, device: 'test', signal: stop.signal, onEvent: (/** @type {any} */ event) => events.push(event) });
    if (after) await tuning.until(events, ({ type }) => type === after);
    // in the middle of what comes next
    await new Promise((resolve) => setTimeout(resolve, 15));
    if (how === 'dispose') engine.dispose();
    else if (how === 'death') spied.workers[others].terminate();
    else stop.abort();
    const summary = await tuned;
    const ended = { types: events.map(({ type }) => type), rounds: summary.rounds, closed: source.log.closed };
    if (how !== 'abort') return { ...ended, later: await spied.outcome(engine.run(inputs)) };
    const [found] = tuning.plain((await engine.run(inputs)).outputs);
    return { ...ended, later: 'done', before, found };
  }, url, kernels, inputs, how, after),

  /** Hides the page in mid-session, and shows it again. */
  tuneHidden: ({ page }, { url, kernels }) => page.evaluate(async (url, kernels) => {
    const { tuning } = globalThis;
    const { engine, tune } = await tuning.open(url);
    let state = 'visible';
    Object.defineProperty(document, 'visibilityState', { get: () => state });
    const show = (/** @type {string} */ next) => {
      state = next;
      document.dispatchEvent(new Event('visibilitychange'));
    };
    const events = [];
    const source = tuning.listSource(kernels);
    const tuned = tune(engine, { source, budget: 1, device: 'test', onEvent: (/** @type {any} */ event) => events.push(event) });
    await tuning.until(events, ({ type }) => type === 'trial');
    show('hidden');
    await new Promise((resolve) => setTimeout(resolve, 1200));
    show('visible');
    await tuned;
    return events.map(({ type, why }) => (why && type === 'paused' ? `${type}: ${why}` : type));
  }, url, kernels),

  /** Runs the model while candidates are tried; gives what the trial worker was told. */
  tuneWhileRunning: ({ page }, { url, kernels, inputs }) => page.evaluate(async (url, kernels, given) => {
    const { tuning, spied } = globalThis;
    const { engine, tune } = await tuning.open(url);
    const inputs = spied.filled(given);
    const told = [];
    const { postMessage } = Worker.prototype;
    Object.getPrototypeOf(Worker.prototype).postMessage = new Proxy(Object.getPrototypeOf(Worker.prototype).postMessage, {
      apply(target, self, args) {
        if (args[0].pause !== undefined) told.push(Boolean(args[0].pause));
        return Reflect.apply(target, self, args);
      },
    });
    const events = [];
    const source = tuning.listSource(kernels);
    let over = false;
    const tuned = tune(engine, { source, budget: 1, device: 'test', onEvent: (/** @type {any} */ event) => events.push(event) }).finally(() => (over = true));
    await tuning.until(events, ({ type }) => type === 'latency');
    const wrong = [];
    let runs = 0;
    while (!over) {
      const before = told.at(-1);
      const run = engine.run(inputs);
      const left = events.filter(({ type }) => type === 'trial').length < kernels.length;
      if (left && told.length && told.at(-1) !== true) wrong.push({ runs, before });
      await run;
      runs++;
      await new Promise((resolve) => setTimeout(resolve, 80));
    }
    await tuned;
    return { wrong, runs, paused: told.includes(true), trials: events.filter(({ type }) => type === 'trial').length, postMessage: typeof postMessage };
  }, url, kernels, inputs),

  /** Two tabs of one browser tune the same bundle. */
  async tuneTwice({ page }, { url, kernels }) {
    const begin = (/** @type {any} */ tab, /** @type {boolean} */ forever) => tab.evaluate(async (url, kernels, forever) => {
      const { tuning } = globalThis;
      const { engine, tune } = await tuning.open(url);
      const source = tuning.listSource(kernels);
      if (forever) source.next = () => new Promise(() => {});
      const events = globalThis.events = [];
      const stop = globalThis.stop = new AbortController();
      globalThis.tuned = tune(engine, { source, budget: 1, device: 'test', signal: stop.signal, onEvent: (/** @type {any} */ event) => events.push(event) });
      await tuning.until(events, ({ type }) => ['latency', 'paused'].includes(type));
      return events.map(({ type, why }) => why ?? type);
    }, url, kernels, forever);
    const first = await begin(page, true);
    const other = await page.browserContext().newPage();
    await other.evaluateOnNewDocument(tuningSpy);
    await other.goto(page.url());
    const second = await begin(other, false);
    await page.evaluate(() => globalThis.stop.abort());
    const ended = await other.evaluate(async () => {
      const { rounds } = await globalThis.tuned;
      return { rounds, types: globalThis.events.map(({ type }) => type) };
    });
    await other.close();
    return { first, second, ended };
  },

  /** What the device kept is damaged, or of another bundle; gives how many kernels come back each time. */
  spoilWinners: ({ page }, { url, how }) => page.evaluate(async (url, how) => {
    const { tuning } = globalThis;
    const { engine, persist } = await tuning.open(url);
    const [name] = (await caches.keys()).filter((key) => key.startsWith('tilewright-tuned'));
    const cache = await caches.open(name);
    const [request] = await cache.keys();
    const bytes = new Uint8Array(await (await cache.match(request)).arrayBuffer());
    if (how === 'flip') bytes[bytes.length - 40] ^= 1;
    if (how === 'cut') bytes.fill(255, 0, 4);
    await cache.put(request, new Response(bytes));
    const other = /** @type {Record<string, object>} */ ({
      compiler: { tool: 'another' }, relinked: { digest: '0'.repeat(64), url: engine.info.url.replace('/bundles/', '/tuned/a/b/') }, unlike: { digest: '0'.repeat(64) },
    })[how];
    const { manifest } = engine.parts;
    // The same kernel in a plan of another size is another one.
    const parts = how === 'unlike' ? { ...engine.parts, manifest: { ...manifest, plans: manifest.plans.map((plan) => ({ ...plan, dims: { n: 1 } })) } } : engine.parts;
    const view = other ? { ...engine, parts, info: { ...engine.info, ...other } } : engine;
    const restored = await persist.restore(view);
    return { restored, left: (await cache.keys()).length };
  }, url, how),

  /**
   * Tunes with the server's own candidates; closes the socket once in between, if asked to.  With `hold` it
   * answers after so many rounds, and the session goes on: `tunedOnline` waits for its end.
   */
  tuneOnline: ({ page }, { url, inputs, options = {}, cut = false, limits = {}, steady = false, hold = 0 }) => page.evaluate(async (url, given, options, cut, limits, steady, hold) => {
    const { tuning, spied } = globalThis;
    const sockets = [];
    globalThis.WebSocket = class extends WebSocket {
      constructor(/** @type {[any]} */ ...parts) {
        super(...parts);
        sockets.push(this);
      }
    };
    const { engine, tune } = await tuning.open(url, limits);
    const { socketSource } = await import(new URL('/tune/sources/socket.js', location.href).href);
    const inputs = spied.filled(given);
    const events = [];
    const run = async () => tuning.plain((await engine.run(inputs)).outputs);
    const source = socketSource();
    const acks = [];
    const { report } = source;
    source.report = async (/** @type {any} */ vote) => {
      const ack = await report(vote);
      acks.push(ack);
      return ack;
    };
    const before = await run();
    if (steady) tuning.steady(engine);
    const onEvent = (/** @type {any} */ event) => {
      events.push(event);
      if (cut && event.type === 'trial' && event.round === 2) sockets.at(-1).close();
    };
    const whole = async () => {
      try {
        const summary = await tune(engine, { source, budget: 1, ...options, onEvent });
        return { summary, events, before, after: await run(), sockets: sockets.length, acks, threads: engine.info.features.threads };
      } catch (error) {
        return { error: JSON.parse(JSON.stringify(error)), text: String(error), events };
      }
    };
    const tuned = whole();
    if (!hold) return tuned;
    globalThis.online = { tuned, events, run };
    return Promise.race([tuned, tuning.until(events, (/** @type {any} */ { type, round }) => type === 'trial' && round >= hold)]);
  }, url, inputs, options, cut, limits, steady, hold),

  /** Once the held session has said `type`: what the engine computes. */
  runOnline: ({ page }, { type }) => page.evaluate(async (type) => {
    const { tuning, online: { events, run } } = globalThis;
    await tuning.until(events, (/** @type {any} */ event) => event.type === type);
    return run();
  }, type),

  tunedOnline: ({ page }) => page.evaluate(() => globalThis.online.tuned),
};

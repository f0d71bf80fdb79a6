// Scenarios of tuning, for page.mjs.

import { spy } from './spy.mjs';

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
    until: (events, test) => scope.spied.until(() => events.some(test)),

    /** Those that hang on purpose are not waited for as long as others (patient.py). @param {any[]} kernels */
    expectHangs(kernels) {
      scope.hanging = kernels.filter(({ hangs }) => hangs).map(({ digest }) => digest);
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
        origin: offered.origin ?? location.origin,
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
          return { header: { ...header, ...(offered.checksum && { checksum: offered.checksum }) }, module: bytesOf(header.module) };
        },
        result: async (result) => log.results.push(result),
        report: async (report) => log.reports.push(report),
        close: () => (log.closed = true),
      };
    },
  };
}

/** @type {import('./scenario.mjs').Scenarios} */
export const TUNING = {
  /** Tunes with a list of kernels, and runs the model before and after. */
  tune: ({ page }, { url, kernels, inputs, options = {}, limits = {}, lose = [], again = false, offered = {}, broken = {}, steady = false }) => page.evaluate(async (url, kernels, given, options, limits, lose, again, offered, broken, steady) => {
    const { tuning, spied } = globalThis;
    const { engine, tune, persist, load } = await tuning.open(url, limits);
    const { recall } = await import(new URL('/tune/records/device_record.js', location.href).href);
    const inputs = spied.filled(given);
    const run = async (/** @type {any} */ from = engine) => tuning.plain((await from.run(inputs)).outputs);
    const events = [];
    const source = tuning.listSource(kernels, lose, offered);
    tuning.expectHangs(kernels);
    const before = await run();
    tuning.spoil(engine, broken);
    if (steady) tuning.steady(engine);
    try {
      const summary = await tune(engine, { source, budget: 1, device: 'test', ...options, onEvent: (/** @type {any} */ event) => events.push(event) });
      const after = await run();
      const { bad } = await recall(engine);
      if (!again) return { summary, events, log: source.log, before, after, bad };
      // The next visit: another engine, no source.
      engine.dispose();
      const next = await load(url, limits);
      const restored = await persist.restore(next);
      return { summary, events, log: source.log, before, after, restored, later: await run(next) };
    } catch (error) {
      return { error: JSON.parse(JSON.stringify(error)), text: String(error), events, log: source.log };
    }
  }, url, kernels, inputs, options, limits, lose, again, offered, broken, steady),

  /**
   * A page that does not tune runs a bundle once and checks what the crowd chose.
   * `timed`: by real times, and each event has the milliseconds since the end of the first run.
   */
  checkCrowd: ({ page }, { url, inputs, options = {}, timed = false }) => page.evaluate(async (url, given, options, timed) => {
    const { tuning, spied } = globalThis;
    const { engine } = await tuning.open(url);
    const { check } = await import(new URL('/tune/check.js', location.href).href);
    const run = async () => tuning.plain((await engine.run(spied.filled(given))).outputs);
    const [events, sent] = [[], []];
    let from = NaN;
    const note = (/** @type {any} */ event) => events.push(timed ? { ...event, milliseconds: performance.now() - from } : event);
    if (!timed) tuning.steady(engine);
    const done = check(engine, { ...options, onEvent: note, onSend: ({ type }) => sent.push(type) });
    const before = await run();
    from = performance.now();
    await done;
    const again = await check(engine, options);
    return JSON.parse(JSON.stringify({ events, sent, again, before, after: await run() }));
  }, url, inputs, options, timed),

  /**
   * A session, then the gain on request; gives which kernels each look at the whole model was of, and how many looks the session took.
   * Runs with the bundle's own kernels look twice as slow as those with others, so many first ones ten times as slow.
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
      const one = inUse === 'own' ? 2 : 1;
      return { ...rest, milliseconds: milliseconds.map(() => (slow-- > 0 ? 10 * one : one)) };
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
    const { keep, recall } = await import(new URL('/tune/records/device_record.js', location.href).href);
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
    await other.evaluateOnNewDocument(spy);
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
    globalThis.tuning.expectHangs(kernels);
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
};

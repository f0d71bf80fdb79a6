// Scenarios of tuning beside something else, for page.mjs: runs, other tabs, ends, lost lines.

import { spy } from './spy.mjs';
import { tuningSpy } from './tuning.mjs';

/** @type {import('./scenario.mjs').Scenarios} */
export const DISTURBED = {
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
    await spied.soon();
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
    const { tuning, spied } = globalThis;
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
    await tuning.until(events, ({ type, why }) => type === 'paused' && why === 'hidden');
    await spied.aWhile();
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
      // a longer break than the tuner waits for (QUIET in tune/loop/pace.js)
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
    await other.evaluateOnNewDocument(spy);
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
   * answers after so many rounds, or, if it is negative, at once, and the session goes on: `tunedOnline` waits for its end.
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
        const summary = await tune(engine, { source, budget: 1, signal: stop.signal, ...options, onEvent });
        return { summary, events, before, after: await run(), sockets: sockets.length, acks, threads: engine.info.features.threads };
      } catch (error) {
        return { error: JSON.parse(JSON.stringify(error)), text: String(error), events, before, after: await run() };
      }
    };
    const stop = new AbortController();
    const tuned = whole();
    if (!hold) return tuned;
    globalThis.online = { tuned, events, run, stop };
    if (hold < 0) return null;
    return Promise.race([tuned, tuning.until(events, (/** @type {any} */ { type, round }) => type === 'trial' && round >= hold)]);
  }, url, inputs, options, cut, limits, steady, hold),

  /** Once the held session has said `type`: what the engine computes. */
  runOnline: ({ page }, { type }) => page.evaluate(async (type) => {
    const { tuning, online: { events, run } } = globalThis;
    await tuning.until(events, (/** @type {any} */ event) => event.type === type);
    return run();
  }, type),

  /** `most`: milliseconds after which it is ended. */
  tunedOnline: ({ page }, { most = 0 }) => page.evaluate(async (most) => {
    const { tuned, stop } = globalThis.online;
    if (most) setTimeout(() => stop.abort(), most);
    return tuned;
  }, most),
};

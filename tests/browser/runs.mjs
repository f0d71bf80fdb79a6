// Scenarios of runs and of what an origin keeps, for page.mjs.

import { PATIENCE } from './scenario.mjs';

/** @type {import('./scenario.mjs').Scenarios} */
export const RUNS = {
  /** Runs of `engine` whose inputs change after the call, with arrays for the output, right ones and wrong ones. */
  into: ({ page }, { size }) => page.evaluate(async (size) => {
    const { engine, spied } = globalThis;
    const x = new Float32Array(size).fill(1.5);
    const y = new Float32Array(size);
    const open = [engine.run({ x }, { into: { y } }), engine.run({ x })];
    x.fill(9);
    const [into, fresh] = (await Promise.all(open)).map(({ outputs }) => outputs.y.data);
    const right = [into, fresh].map((data) => data.every((value) => value === 3));
    const wrong = [{ y: new Float64Array(size) }, { y: new Float32Array(size - 1) }, { y: Array.from(y) }, { z: y }];
    const codes = await Promise.all(wrong.map((given) => spied.outcome(engine.run({ x }, { into: given }))));
    const stop = new AbortController();
    const aborted = engine.run({ x }, { into: { y }, signal: stop.signal });
    stop.abort();
    const outcomes = [await spied.outcome(aborted), await spied.outcome(engine.time({ runs: 2 }))];
    return { right, same: into === y && fresh !== y, codes, outcomes, kept: y.every((value) => value === 3) };
  }, size),

  /** Runs of `engine`, x + x, with arrays of f16, f32 and f64; null where the page has no arrays of f16. */
  halves: ({ page }, { size }) => page.evaluate(async (size) => {
    const { engine, Float16Array } = /** @type {any} */ (globalThis);
    if (!Float16Array) return null;
    const x = Float16Array.from({ length: size }, (/** @type {any} */ _, /** @type {number} */ at) => at / 100 - 300);
    const [half, single] = await Promise.all([x, Float32Array.from(x)].map(async (x) => (await engine.run({ x })).outputs.y.data));
    const error = await engine.run({ x: new Float64Array(size) }).catch((/** @type {any} */ { message, hint }) => [message, hint]);
    return { type: half.constructor.name, same: single.every((/** @type {number} */ value, /** @type {number} */ at) => value === half[at] && value === 2 * x[at]), error };
  }, size),

  /** Runs of `engine` without and with arrays for its outputs: shapes and bytes of both. */
  outputs: ({ page }, { x }) => page.evaluate(async (given) => {
    const { engine } = globalThis;
    const x = Float32Array.from(given);
    const fresh = (await engine.run({ x })).outputs;
    const each = (outputs, pick) => Object.fromEntries(Object.entries(outputs).map(([name, { data, shape }]) => [name, pick(data, shape, name)]));
    const into = each(fresh, (data) => new data.constructor(data.length).fill(data instanceof BigInt64Array ? 77n : 77));
    const reused = (await engine.run({ x }, { into })).outputs;
    const shown = (outputs) => each(outputs, (data, shape) => ({ shape, bytes: [...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)] }));
    return { fresh: shown(fresh), into: shown(reused), same: each(reused, (data, _, name) => data === into[name]) };
  }, x),

  /** Times `engine` after the array of its last run went to somebody else; then runs it again. */
  givenAway: ({ page }, { size }) => page.evaluate(async (size) => {
    const { engine, spied } = globalThis;
    const x = new Float32Array(size).fill(1.5);
    await engine.run({ x });
    structuredClone(x, { transfer: [x.buffer] });
    const outcomes = [await spied.outcome(engine.time({ runs: 2 })), await spied.outcome(engine.profile({ runs: 1 }))];
    return [...outcomes, await spied.outcome(engine.run({ x: new Float32Array(size) }))];
  }, size),

  /** Runs of `engine`, x - z, with inputs in their own places, in each other's, and held back. */
  inPlace: ({ page }, { isolated }) => page.evaluate(async (isolated) => {
    const { engine, spied } = globalThis;
    const [x, z] = ['x', 'z'].map((name) => engine.input(name));
    const all = (/** @type {Float32Array} */ data, /** @type {number} */ wanted) => data.every((value) => value === wanted);
    const wrong = [];
    const before = spied.workers[0].sent;
    for (let time = 1; time <= 50; time++) {
      x.fill(time);
      z.fill(1);
      const { data } = (await engine.run({ x, z })).outputs.y;
      if (!all(data, time - 1) || !all(x, time) || !all(z, 1)) wrong.push(time);
    }
    const sent = spied.workers[0].sent - before;
    const other = new Float32Array(x.length).fill(4);
    const mixed = (await engine.run({ x, z: other })).outputs.y.data;
    const swapped = (await engine.run({ x: z, z: x })).outputs.y.data;
    const into = isolated ? (await engine.run({ x: other, z: other }, { into: { y: x } })).outputs.y.data : x;
    const found = { wrong, mixed: mixed[7], swapped: swapped[7], into: into === x, place: x.buffer instanceof ArrayBuffer };
    const unknown = await spied.outcome((async () => engine.input('w'))());
    if (!isolated) return { ...found, unknown, sent };
    let late = false;
    setTimeout(() => (late = true), 0);
    for (let runs = 0; !late && runs < 20000; runs++) await engine.run({ x, z });
    const caught = engine.run({ x, z });
    engine.preempt(true);
    engine.preempt(false);
    await caught;
    engine.preempt(true);
    const run = engine.run({ x: other, z });
    const held = await Promise.race([run.then(() => false), spied.aWhile().then(() => true)]);
    engine.preempt(false);
    await run;
    return { ...found, unknown, sent, late, held };
  }, isolated),

  /** Many runs, none of whose results is kept. */
  manyRuns: ({ page }, { count, input, size }) => page.evaluate(async (count, input, size) => {
    const data = new Float32Array(size).fill(1.5);
    let right = 0;
    for (let at = 0; at < count; at++) {
      const { outputs } = await globalThis.engine.run({ [input]: data });
      right += Number(outputs.y.data[size - 1] === 3);
    }
    return right;
  }, count, input, size),

  /** Replaces every kept file but the pointer by other bytes. */
  spoilCache: ({ page }, { bytes }) => page.evaluate(async (bytes) => {
    const root = await navigator.storage.getDirectory();
    let spoilt = 0;
    for await (const file of (await root.getDirectoryHandle('tilewright-v2')).values()) {
      if (file.name.startsWith('pointer')) continue;
      const writing = await file.createWritable({ keepExistingData: true });
      if (bytes === 'cut') await writing.truncate(7);
      else await writing.write({ type: 'write', position: 5, data: new Uint8Array(8) });
      await writing.close();
      spoilt += 1;
    }
    return spoilt;
  }, bytes),

  /** Loads a bundle several times at once, as tabs do that are opened together. */
  together: ({ page }, { url, times }) => page.evaluate(async (url, times) => {
    const { load } = globalThis.spied;
    const engines = await Promise.all(Array.from({ length: times }, () => load(url)));
    engines.forEach((engine) => engine.dispose());
    return engines.map(({ info }) => info.cache);
  }, url, times),

  /** Begins a load, which `abandon` ends. */
  beginLoad: ({ page }, { url }) => page.evaluate(async (url) => {
    const { load } = globalThis.spied;
    const stop = globalThis.stop = new AbortController();
    globalThis.loading = load(url, { signal: stop.signal }).then(() => 'done', (error) => error.name);
  }, url),

  /** Ends it, and gives its outcome. */
  abandon: ({ page }) => page.evaluate(() => {
    globalThis.stop.abort();
    return globalThis.loading;
  }),

  /** Names of the kept files, once there are so many, or all that there are when the time is over. */
  kept: ({ page }, { count, patience = PATIENCE }) => page.evaluate(async (count, patience) => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('tilewright-v2');
    const end = performance.now() + patience;
    for (;;) {
      const names = [];
      for await (const name of folder.keys()) names.push(name);
      if (names.length === count || performance.now() > end) return names;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }, count, patience),

  /** Tidies the store as if so many days had passed. */
  tidyLater: ({ page }, { days }) => page.evaluate(async (days) => {
    const { openStore } = await import(new URL('/engine/opfs_cache.js', location.href).href);
    const { now } = Date;
    Date.now = () => now() + days * 24 * 3600 * 1000;
    await (await openStore()).tidy(new Set());
    Date.now = now;
  }, days),

  /** Limits what this origin may keep; without a number no longer.  Only Chromium can. */
  async quota({ page }, { bytes }) {
    const session = await page.createCDPSession();
    // The limit ends with the session, so that stays open as long as its page.
    await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(page.url()).origin, quotaSize: bytes });
  },

  /** What the engine's probes say of this browser. */
  host: ({ page }) => page.evaluate(async () => (await import(new URL('/engine/engine.js', location.href).href)).probeHost()),

  /** Asks another origin for something, which the content policy must forbid. */
  breakPolicy: ({ page }, { url }) => page.evaluate((url) => fetch(url).then(() => 'allowed', () => 'blocked'), url),

  /** Until the service worker has everything that it keeps. */
  serviceWorker: ({ page }) => page.evaluate(async () => {
    const { active } = await navigator.serviceWorker.ready;
    while (active?.state !== 'activated') await new Promise((resolve) => active?.addEventListener('statechange', resolve, { once: true }));
    return active.state;
  }),
};

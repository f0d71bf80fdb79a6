// Scenarios that need control over a page, in one browser that stays open.
// Input: one JSON line {scenario, params} at a time on stdin.  Output: one JSON line {result} or {error}.
// It judges nothing: pytest does.  The ids of the demo page are listed in page/index.html.

import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';
import { makeProfiles, PROFILES } from './profiles.mjs';
import { TUNING, tuningSpy } from './tuning.mjs';

const PATIENCE = 60_000;
const HEIGHT = 900;

const [name, executablePath] = process.argv.slice(2);
const browser = await puppeteer.launch(name === 'firefox'
  ? { browser: 'firefox', executablePath, protocol: 'webDriverBiDi' }
  : { browser: 'chrome', executablePath, args: ['--no-sandbox', '--disable-quic', '--disable-background-networking', '--disable-dev-shm-usage'] });
const profiles = makeProfiles(browser, name === 'chromium');

/**
 * @typedef {{page: import('puppeteer-core').Page, errors: string[], requests: string[]}} Tab
 * @type {Map<number, Tab>}
 */
const tabs = new Map();

/** Before any script of the page: keep hold of its workers and of all that the status panel says. */
function spy() {
  /** @type {any} */
  const scope = globalThis;
  scope.spied = {
    workers: [],
    texts: [],
    /**
     * Inputs as they come in JSON; a number stands for that many zeros.
     * @param {Record<string, number[] | number>} inputs
     */
    filled: (inputs) => Object.fromEntries(Object.entries(inputs).map(([key, value]) => [key, typeof value === 'number' ? new Float32Array(value) : value])),
    /** @param {Promise<any>} promise */
    outcome: (promise) => promise.then(() => 'done', (error) => (error.name === 'AbortError' ? error.name : error.code)),
  };
  scope.Worker = class extends Worker {
    /**
     * @param {string | URL} url
     * @param {WorkerOptions} options
     */
    constructor(url, options) {
      super(url, options);
      this.heard = false;
      this.sent = 0;
      this.addEventListener('message', () => (this.heard = true), { once: true });
      scope.spied.workers.push(this);
    }

    /** @param {[any, any?]} message */
    postMessage(...message) {
      this.sent++;
      super.postMessage(...message);
    }
  };
  document.addEventListener('DOMContentLoaded', () => {
    const text = document.getElementById('status-text');
    if (!text) return;
    new MutationObserver(() => scope.spied.texts.push(text.textContent)).observe(text, { childList: true });
  });
}

/** @type {Record<string, (tab: Tab, params: any) => Promise<unknown>>} */
const SCENARIOS = {
  close: ({ page, requests }) => profiles.give(page.browserContext(), requests),

  async reload({ page }) {
    await page.reload({ timeout: PATIENCE });
  },

  /** Loads a bundle on a blank page, runs it once, and leaves the engine there as `engine`; `show` its outputs. */
  engine: ({ page }, { url, inputs, options = {}, show = true }) => page.evaluate(async (url, inputs, options, show) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
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
   * milliseconds.  A candidate that does not come is noted, and the next one asked for.
   */
  source: ({ page }, { base, kind, given, hello, count, abort = 0 }) => page.evaluate(async (base, kind, given, hello, count, abort) => {
    const plain = (/** @type {any} */ error) => (error.name === 'AbortError' ? error.name : JSON.parse(JSON.stringify(error)));
    const stop = new AbortController();
    const { folderSource } = await import(new URL('tune/sources/folder.js', base).href);
    const { pyodideSource } = await import(new URL('tune/sources/pyodide.js', base).href);
    /** @type {any[]} */
    const taken = [];
    /** @type {any} */
    let started = null;
    const options = { signal: stop.signal, onProgress: (/** @type {any} */ progress) => (started = progress) };
    const source = kind === 'folder' ? folderSource(given, options) : pyodideSource({ ...given, ...options });
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
  }, base, kind, given, hello, count, abort),

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
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { outcome, workers, filled } = globalThis.spied;
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

  /** Kills a worker of the pool in mid-run, again and again; every time the engine must recover. */
  killHelper: ({ page }, { url, inputs, times }) => page.evaluate(async (url, given, times) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { outcome, workers, filled } = globalThis.spied;
    const inputs = filled(given);
    for (const name of Object.keys(inputs)) inputs[name] = inputs[name].map((_, at) => at % 7);
    const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const engine = await load(url, { threads: 3 });
    const want = (await engine.run(inputs)).outputs.y.data;
    const during = [];
    let error = null;
    for (let time = 0; time < times; time++) {
      const runs = () => {
        const run = engine.time({ runs: 20, warmup: 0 });
        run.catch((thrown) => (error = thrown));
        return run;
      };
      const run = runs();
      await sleep(50);
      workers.at(-1).terminate();
      let said = await outcome(run);
      // Chromium gives a worker two seconds to end by itself, so there must be runs for longer, however short they are.
      while (said === 'done' && workers.length < 4 + time) said = await outcome(runs());
      during.push(said);
      // One that dies before it has said a word was never there: nobody waits for it.
      while (workers.length < 4 + time || !workers.at(-1).heard) await sleep(10);
      await sleep(200);
    }
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
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
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
        if (String(parts[0]).endsWith('serve.js') && left-- > 0) this.terminate();
      }
    };
    const engine = await load(url, { threads: 3 });
    const inputs = globalThis.spied.filled(given);
    const tickets = () => [1, 2].map((worker) => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * worker + 1));
    // On a busy machine it may take further successors until one starts within the shortened wait.
    for (let time = 0; time < 2000 && !tickets().every(Boolean); time++) {
      await engine.run(inputs);
      await new Promise((resolve) => later(resolve, 10));
    }
    return { waits, tickets: tickets() };
  }, url, inputs, deaths),

  /** One engine after the other, with another kernel; every second one dies.  The page keeps them all, as some pages do. */
  manyLoads: ({ page }, { url, input, change, times }) => page.evaluate(async (url, input, sent, times) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { outcome, workers } = globalThis.spied;
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
      const held = await Promise.race([run.then(() => false), new Promise((resolve) => setTimeout(resolve, 700, true))]);
      engine.preempt(false);
      const { data } = (await run).outputs.y;
      return { held, after: 'done', same: data.every((value, at) => value === want[at]) };
    } catch (error) {
      return { error: error.code };
    }
  }, inputs),

  /** Two engines at work at the same time. */
  twoModels: ({ page }, { first, second, times }) => page.evaluate(async (first, second, times) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { outcome, filled } = globalThis.spied;
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
      const { load } = await import(new URL('/engine/engine.js', location.href).href);
      const { outcome, filled } = globalThis.spied;
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
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const { outcome, filled } = globalThis.spied;
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
    setTimeout(() => (late = true), 10);
    for (let runs = 0; !late && runs < 20000; runs++) await engine.run({ x, z });
    const caught = engine.run({ x, z });
    engine.preempt(true);
    engine.preempt(false);
    await caught;
    engine.preempt(true);
    const run = engine.run({ x: other, z });
    const held = await Promise.race([run.then(() => false), new Promise((resolve) => setTimeout(resolve, 100, true))]);
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
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
    const engines = await Promise.all(Array.from({ length: times }, () => load(url)));
    engines.forEach((engine) => engine.dispose());
    return engines.map(({ info }) => info.cache);
  }, url, times),

  /** Begins a load, which `abandon` ends. */
  beginLoad: ({ page }, { url }) => page.evaluate(async (url) => {
    const { load } = await import(new URL('/engine/engine.js', location.href).href);
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
    const { openStore } = await import(new URL('/engine/store.js', location.href).href);
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

  async status({ page }, { states }) {
    const wanted = states.map((/** @type {string} */ state) => `#status[data-state="${state}"]`).join(', ');
    await page.waitForSelector(wanted, { timeout: PATIENCE });
    return page.evaluate(() => {
      const text = (/** @type {string} */ id) => document.getElementById(id).textContent;
      const shown = (/** @type {string} */ id) => document.getElementById(id).checkVisibility();
      const { state, code } = document.getElementById('status').dataset;
      return {
        state, code, text: text('status-text'), hint: text('status-hint'), collection: text('collection-text'),
        cancel: shown('cancel'), retry: shown('retry'), texts: globalThis.spied.texts,
      };
    });
  },

  async ask({ page }, { query }) {
    await page.$eval('#query', (box, text) => {
      // An earlier answer to the same query must not be taken for this one.
      delete document.getElementById('results').dataset.query;
      box.value = text;
      box.dispatchEvent(new Event('input', { bubbles: true }));
    }, query);
    await page.waitForSelector(`#results[data-query=${JSON.stringify(query)}]`, { timeout: PATIENCE });
    return page.$$eval('#results > li', (items) => items.map((item) => ({
      text: item.querySelector('.sentence').textContent, score: Number(item.dataset.score),
    })));
  },

  async click({ page }, { selector }) {
    await page.click(selector);
  },

  async paste({ page }, { text }) {
    await page.$eval('#text', (box, value) => (box.value = value), text);
    await page.click('#collection button[type="submit"]');
  },

  async chooseFile({ page }, { path }) {
    const input = await page.$('#file');
    await input.uploadFile(path);
  },

  /** Waits for text in an element; returns it. */
  async text({ page }, { selector, contains }) {
    await page.waitForFunction(
      (selector, part) => document.querySelector(selector)?.textContent.includes(part),
      { timeout: PATIENCE }, selector, contains,
    );
    return page.$eval(selector, (found) => found.textContent);
  },

  async chart({ page }) {
    await page.waitForSelector('#latency svg rect', { timeout: PATIENCE });
    return page.$eval('#latency', (figure) => ({
      runs: Number(figure.dataset.runs), median: Number(figure.dataset.median),
      bars: figure.querySelectorAll('rect').length,
      height: figure.querySelector('svg').getBoundingClientRect().height,
    }));
  },

  /** Sets a value of a form's element, as a person does. */
  select: ({ page }, { selector, value }) => page.select(selector, value),

  async type({ page }, { selector, text }) {
    await page.$eval(selector, (box, value) => {
      box.value = value;
      box.dispatchEvent(new Event('input', { bubbles: true }));
    }, text);
  },

  /** Sets globals of the page, which stand-ins of the tests look at; gives one back. */
  globals: ({ page }, { values = {}, name = '' }) => page.evaluate((values, name) => {
    Object.assign(globalThis, values);
    return globalThis[name] ?? null;
  }, values, name),

  /** What the tuning panel shows at the moment when it is in one of these states and has so many rounds. */
  async tuning({ page }, { states, rounds = 0 }) {
    const found = await page.waitForFunction((states, rounds) => {
      const { dataset } = document.getElementById('tuning');
      if (!states.includes(dataset.state) || Number(dataset.rounds ?? 0) < rounds) return null;
      const shown = (/** @type {string} */ id) => document.getElementById(id).checkVisibility();
      const canvas = document.querySelector('#tuning-chart canvas');
      const pixels = canvas ? new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer) : [];
      return JSON.stringify({
        ...dataset,
        text: document.getElementById('tuning-text').textContent,
        buttons: ['tune', 'tune-pause', 'tune-stop', 'tune-measure', 'tune-forget'].filter(shown),
        chart: { ...document.getElementById('tuning-chart').dataset, label: document.getElementById('tuning-chart').getAttribute('aria-label') },
        colours: new Set(pixels).size,
        rows: Array.from(document.querySelectorAll('#tuning-rows > tr'), (row) => ({ ...row.dataset, cells: Array.from(row.cells, (cell) => cell.innerText) })),
      });
    }, { timeout: PATIENCE, polling: 20 }, states, rounds);
    return JSON.parse(await found.jsonValue());
  },

  /** From now on the page gets no frame to draw in, as in a tab that is hidden. */
  noFrames: ({ page }) => page.evaluate(() => {
    globalThis.requestAnimationFrame = () => 1;
  }),

  /** The page of device classes, once it has something to say. */
  async classes({ page }, { states = ['ready', 'empty', 'error'] }) {
    await page.waitForSelector(states.map((/** @type {string} */ state) => `#classes[data-state="${state}"]`).join(', '), { timeout: PATIENCE });
    return page.evaluate(() => ({
      state: document.getElementById('classes').dataset.state,
      text: document.getElementById('classes-text').textContent,
      empty: document.getElementById('classes-empty').innerText,
      head: Array.from(document.querySelectorAll('#classes-head th[data-class]'), ({ dataset }) => `${dataset.class} ${dataset.browser}`),
      rows: Array.from(document.querySelectorAll('#classes-rows > tr'), (row) => Array.from(row.cells, (cell) => cell.innerText)),
    }));
  },

  dark: ({ page }) => page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]),

  /** What lies outside of the page's width, but for what its box lets people scroll to. */
  async layout({ page }, { screenshot }) {
    await page.screenshot({ path: screenshot, fullPage: true });
    return page.evaluate(() => {
      const edge = document.documentElement.clientWidth;
      const scrolls = (/** @type {Element | null} */ item) => item !== null && (['auto', 'scroll'].includes(getComputedStyle(item).overflowX) || scrolls(item.parentElement));
      const outside = Array.from(document.body.querySelectorAll('*'))
        .filter((item) => item.checkVisibility() && item.getBoundingClientRect().right > edge + 0.5 && !scrolls(item))
        .map((item) => `${item.tagName}#${item.id}.${item.className}`);
      return { overflow: document.documentElement.scrollWidth > edge, width: edge, outside };
    });
  },

  log: async ({ errors, requests }) => ({ errors, requests }),

  ...PROFILES,
  ...TUNING,
};

/** @param {{key: number, url: string, width: number}} params */
async function open({ key, url, width }) {
  const page = await (await profiles.take()).newPage();
  /** @type {Tab} */
  const tab = { page, errors: [], requests: [] };
  tabs.set(key, tab);
  page.on('console', (message) => {
    if (message.type() === 'error') tab.errors.push(message.text());
  });
  page.on('pageerror', (error) => tab.errors.push(String(error)));
  page.on('request', (request) => tab.requests.push(request.url()));
  await page.setViewport({ width, height: HEIGHT });
  await page.evaluateOnNewDocument(spy);
  await page.evaluateOnNewDocument(tuningSpy);
  await page.goto(url, { timeout: PATIENCE });
}

/** @param {{scenario: string, params: any}} wanted */
async function perform({ scenario, params }) {
  if (scenario === 'process') return browser.process()?.pid;
  if (scenario === 'open') return open(params);
  const tab = tabs.get(params.key);
  if (!tab) throw new Error(`There is no page ${params.key}`);
  if (scenario === 'close') tabs.delete(params.key);
  return SCENARIOS[scenario](tab, params);
}

/**
 * @param {Promise<unknown>} promise
 * @param {number} milliseconds
 */
function limited(promise, milliseconds) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`No answer within ${milliseconds / 1000} s`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

try {
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = { result: (await limited(perform(JSON.parse(line)), 2 * PATIENCE)) ?? null };
    } catch (error) {
      answer = { error: error instanceof Error ? error.stack : String(error) };
    }
    console.log(JSON.stringify(answer));
  }
} finally {
  await browser.close();
}

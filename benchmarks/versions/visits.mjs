// Visits pages of several servers by turns in one browser, each in an empty profile, and times what a page sees.
// Input: a JSON line {browser, path, visits: [{version, url}, …], runs}.  Output: a JSON line of times per visit.

import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';

/**
 * Milliseconds of the load, of the first run, of one run on average when warm, and until the first trial is over.
 * @param {import('puppeteer-core').Page} page @param {number} runs
 */
const visit = (page, runs) => page.evaluate(async (runs) => {
  const from = (/** @type {string} */ path) => import(new URL(path, location.href).href);
  const [{ load }, { tune }, { socketSource }] = await Promise.all(['/engine/engine.js', '/tune/tuner.js', '/tune/sources/socket.js'].map(from));
  const start = performance.now();
  const engine = await load('/bundles/m/', { threads: 1 });
  const loaded = performance.now() - start;
  const inputs = Object.fromEntries(engine.info.inputs.map((/** @type {{name: string, dtype: string, shape: (number | string)[]}} */ { name, dtype, shape }) => {
    const extents = shape.map((extent) => (typeof extent === 'number' ? extent : engine.info.dims[extent][0]));
    const size = extents.reduce((product, extent) => product * extent, 1);
    return [name, dtype === 'i64' ? new BigInt64Array(size).fill(1n) : new Float32Array(size).fill(0.5)];
  }));
  const first = (await engine.run(inputs)).totalMilliseconds;
  const begin = performance.now();
  for (let run = 0; run < runs; run++) await engine.run(inputs);
  const each = (performance.now() - begin) / runs;
  const tuned = performance.now();
  let trial = 0, verdict = '';
  const onEvent = (/** @type {{type: string, verdict: string}} */ event) => {
    if (event.type !== 'trial' || trial) return;
    trial = performance.now() - tuned;
    verdict = event.verdict;
  };
  await tune(engine, { source: socketSource(), budget: 1, rounds: 1, device: 'wasm-x86-relaxed-32k', onEvent });
  await engine.dispose();
  return { loaded, first, each, trial, verdict };
}, runs);

for await (const line of createInterface({ input: process.stdin })) {
  const { browser: name, path, visits, runs } = JSON.parse(line);
  const browser = await puppeteer.launch(name === 'firefox'
    ? { browser: 'firefox', executablePath: path, protocol: 'webDriverBiDi' }
    : { browser: 'chrome', executablePath: path, args: ['--no-sandbox', '--disable-quic', '--disable-background-networking', '--disable-dev-shm-usage'] });
  const found = [];
  for (const { version, url } of visits) {
    const context = await browser.createBrowserContext();
    const page = await context.newPage();
    await page.goto(`${url}/host/host.html`);
    found.push({ version, ...await visit(page, runs) });
    await context.close();
  }
  await browser.close();
  console.log(JSON.stringify(found));
}

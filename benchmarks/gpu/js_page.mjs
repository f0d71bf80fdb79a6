// How long JavaScript works for a run on WebGPU in a browser, in the page and in the engine's worker.
// Input: a JSON line {command, url, bundle, warm, runs}: the browser's command line; the server's worker imports js_worker.mjs.  Output: a JSON line:
// the dispatches of a run, milliseconds of each: the worker's as it tells them, and `page`: from the call to its return, and from the answer to the end.

import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';

const timed = async (/** @type {string} */ bundle, /** @type {number} */ warm, /** @type {number} */ runs) => {
  /** @type {any[]} */
  const spied = [];
  let [arrived, dispatches] = [0, 0];
  globalThis.Worker = class extends Worker {
    constructor(/** @type {string | URL} */ url, /** @type {WorkerOptions | undefined} */ options) {
      super(url, options);
      this.addEventListener('message', (event) => {
        const now = performance.now();
        if (event.data.spied) {
          spied.push(event.data.spied);
          dispatches = event.data.dispatches;
        } else arrived = now;
      });
    }
  };
  const { load } = await import(new URL('/engine/engine.js', location.href).href);
  const engine = await load(bundle, { device: 'webgpu' });
  const { info } = engine;
  const inputs = Object.fromEntries(info.inputs.map((/** @type {any} */ { name, shape }) => [name, { data: new Int32Array(shape[1]).fill(1), shape }]));
  const pages = [];
  for (let run = 0; run < warm + runs; run++) {
    const start = performance.now();
    const running = engine.run(inputs);
    const returned = performance.now();
    await running;
    pages.push(returned - start + performance.now() - arrived);
  }
  while (spied.length < pages.length) await new Promise((resolve) => setTimeout(resolve));
  const found = pages.map((page, run) => ({ ...spied[run], page })).slice(warm);
  return { adapter: info.adapter.name, isolated: globalThis.crossOriginIsolated, dispatches, runs: found };
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command: [executablePath, ...args], url, bundle, warm, runs } = JSON.parse(line);
  const browser = await puppeteer.launch({ browser: 'chrome', executablePath, args: args.filter(Boolean), protocolTimeout: 600_000 });
  const page = await browser.newPage();
  await page.goto(url);
  console.log(JSON.stringify(await page.evaluate(timed, bundle, warm, runs)));
  await browser.close();
}

// Drives the demo pages in a real browser, as a person would, and prints the result as JSON.
// Input: --browser chromium|firefox --url URL --query TEXT [--query …] [--camera] [--screenshot FILE] [--width W].
// Output: {state, rankings, latency, bucket, features, …, seen, errors} on stdout; exit status 1 if it failed.
// The caller checks the rankings, and what /camera saw in its sample.  The ids are listed in page/index.html and camera.html.

import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { parseArgs } from 'node:util';
import puppeteer from 'puppeteer-core';

/** @typedef {import('puppeteer-core').Page} Page */

const COMMANDS = {
  chromium: ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'],
  firefox: ['firefox-esr', 'firefox'],
};
// Chromium's sandbox does not work for root, the usual user in containers.
const SANDBOX = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
const QUIET = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const HEIGHT = 900;

/** @param {string[]} commands */
function findCommand(commands) {
  const folders = (process.env.PATH ?? '').split(delimiter);
  return commands.flatMap((command) => folders.map((folder) => join(folder, command))).find((path) => existsSync(path));
}

/** @param {string} name */
async function openBrowser(name) {
  if (name !== 'chromium' && name !== 'firefox') throw new Error(`--browser must be chromium or firefox, found ${name}`);
  const variable = `TILEWRIGHT_${name.toUpperCase()}`;
  const executablePath = process.env[variable] ?? findCommand(COMMANDS[name]);
  if (!executablePath) throw new Error(`No ${name} found: install it, or name its file in ${variable}`);
  return name === 'firefox'
    ? puppeteer.launch({ browser: 'firefox', executablePath, protocol: 'webDriverBiDi' })
    : puppeteer.launch({ browser: 'chrome', executablePath, args: [...QUIET, ...SANDBOX] });
}

/**
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} url
 * @param {number} width
 */
async function openPage(browser, url, width) {
  const page = await browser.newPage();
  /** @type {string[]} */
  const errors = [];
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.setViewport({ width, height: HEIGHT });
  await page.goto(url);
  return { page, errors };
}

/**
 * @param {Page} page
 * @param {number} timeout
 */
async function waitReady(page, timeout) {
  await page.waitForSelector('#status[data-state="ready"], #status[data-state="error"]', { timeout });
  return page.evaluate(() => {
    const text = (/** @type {string} */ id) => document.getElementById(id)?.textContent ?? '';
    const { state, code } = /** @type {HTMLElement} */ (document.getElementById('status')).dataset;
    return { state, code, text: text('status-text'), hint: text('status-hint') };
  });
}

/**
 * Types a query and reads the ranking that answers it.
 * @param {Page} page
 * @param {string} query
 * @param {number} timeout
 */
async function ask(page, query, timeout) {
  await page.$eval('#query', (box) => {
    /** @type {HTMLInputElement} */ (box).value = '';
  });
  await page.type('#query', query);
  await page.waitForFunction(
    (wanted) => document.getElementById('results')?.dataset.query === wanted,
    { timeout },
    query.trim(),
  );
  const ranking = await page.$$eval('#results > li', (items) => items.map((item) => ({
    text: item.querySelector('.sentence')?.textContent ?? '',
    score: Number(/** @type {HTMLElement} */ (item).dataset.score),
  })));
  return { query, ranking };
}

/** @param {Page} page */
function readFacts(page) {
  return page.evaluate(() => {
    const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
    const { runs, last, median } = element('latency').dataset;
    return {
      latency: { runs: Number(runs), last: Number(last), median: Number(median) },
      bucket: JSON.parse(element('fact-bucket').dataset.bucket ?? 'null'),
      features: element('fact-features').textContent,
      variant: element('fact-variant').textContent,
      model: element('fact-model').textContent,
      memory: element('fact-memory').textContent,
      load: element('fact-load').textContent,
      bytes: element('fact-bytes').textContent,
      lost: Array.from(document.querySelectorAll('#lost li'), (item) => item.textContent),
      overflow: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    };
  });
}

/** What the camera page finds in its sample. @param {Page} page @param {string} url @param {number} timeout */
async function lookAtSample(page, url, timeout) {
  await page.goto(new URL('/camera', url).href, { timeout });
  await page.waitForSelector('#seen:not([data-frames="0"]), #status[data-state="error"]', { timeout });
  return page.evaluate(() => {
    const text = (/** @type {string} */ id) => document.getElementById(id)?.textContent ?? '';
    return { state: document.getElementById('status')?.dataset.state, text: text('seen-text'), time: text('rate'), device: text('device') };
  });
}

async function main() {
  const { values } = parseArgs({
    options: {
      browser: { type: 'string', default: 'chromium' },
      url: { type: 'string' },
      query: { type: 'string', multiple: true, default: [] },
      camera: { type: 'boolean', default: false },
      screenshot: { type: 'string' },
      width: { type: 'string', default: '1280' },
      timeout: { type: 'string', default: '120' },
    },
  });
  if (!values.url) throw new Error('--url is missing');
  if (values.screenshot && existsSync(values.screenshot)) throw new Error(`${values.screenshot} is there already: name another file`);
  const timeout = Number(values.timeout) * 1000;
  const browser = await openBrowser(values.browser);
  try {
    const { page, errors } = await openPage(browser, values.url, Number(values.width));
    const status = await waitReady(page, timeout);
    const rankings = [];
    if (status.state === 'ready') {
      for (const query of values.query) rankings.push(await ask(page, query, timeout));
    }
    // The chart is drawn in the next frame.
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
    const facts = await readFacts(page);
    if (values.screenshot) await page.screenshot({ path: values.screenshot, fullPage: true });
    const seen = values.camera ? await lookAtSample(page, values.url, timeout) : null;
    console.log(JSON.stringify({ browser: await browser.version(), status, rankings, ...facts, seen, errors }, null, 2));
    return status.state === 'ready' && seen?.state !== 'error' && errors.length === 0;
  } finally {
    await browser.close();
  }
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

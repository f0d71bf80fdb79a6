// Scenarios that need control over a page, in one browser that stays open.
// Input: one JSON line {scenario, params} at a time on stdin.  Output: one JSON line {result} or {error}.
// It judges nothing: pytest does.  The ids of the demo page are listed in page/index.html.

import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';
import { BUFFERS } from './buffers.mjs';
import { CAMERA } from './camera.mjs';
import { CHAT } from './chat.mjs';
import { makeProfiles, PROFILES } from './profiles.mjs';
import { DISTURBED } from './disturbed.mjs';
import { ENGINES } from './engines.mjs';
import { FRAMES } from './frames.mjs';
import { GPUS } from './gpus.mjs';
import { LANGUAGE } from './language.mjs';
import { NAMES } from './names.mjs';
import { PATIENCE } from './scenario.mjs';
import { RUNS } from './runs.mjs';
import { spy } from './spy.mjs';
import { SWAPPING } from './swapping.mjs';
import { TUNING, tuningSpy } from './tuning.mjs';

const HEIGHT = 900;

const [name, executablePath, ...flags] = process.argv.slice(2);
// By themselves they give a browser half a minute to start, and three for an answer.
const patient = { timeout: PATIENCE, protocolTimeout: 2 * PATIENCE };
const browser = await puppeteer.launch(name === 'firefox'
  ? { ...patient, browser: 'firefox', executablePath, protocol: 'webDriverBiDi' }
  : { ...patient, browser: 'chrome', executablePath, args: ['--no-sandbox', '--disable-quic', '--disable-background-networking', '--disable-dev-shm-usage', ...flags] });
const profiles = makeProfiles(browser, name !== 'firefox');

/** @typedef {import('./scenario.mjs').Tab} Tab */
/** @type {Map<number, Tab>} */
const tabs = new Map();

/** @type {import('./scenario.mjs').Scenarios} */
const SCENARIOS = {
  close: ({ page, requests }) => profiles.give(page.browserContext(), requests),

  async reload({ page }) {
    await page.reload({ timeout: PATIENCE });
  },

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
    // A click at coordinates misses what moves meanwhile.
    await page.waitForFunction((selector) => {
      const { x, y } = document.querySelector(selector).getBoundingClientRect();
      const place = `${selector} ${x} ${y}`;
      const still = globalThis.clicking === place;
      globalThis.clicking = place;
      return still;
    }, { timeout: PATIENCE, polling: 30 }, selector);
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

  /** The page of co-running, once it has something to say. */
  async corun({ page }, { states = ['ready', 'empty', 'error'] }) {
    await page.waitForSelector(states.map((/** @type {string} */ state) => `#corun[data-state="${state}"]`).join(', '), { timeout: PATIENCE });
    return page.evaluate(() => {
      const shown = (/** @type {string} */ id) => document.getElementById(id).checkVisibility();
      const options = (/** @type {string} */ id) => (shown(id) ? Array.from(document.getElementById(id).options, ({ text }) => text) : null);
      return {
        state: document.getElementById('corun').dataset.state,
        text: document.getElementById('corun-text').textContent,
        problem: document.getElementById('corun-problem').textContent,
        empty: document.getElementById('corun-empty').innerText,
        filters: Object.fromEntries(Array.from(document.querySelectorAll('#filters select'), ({ id }) => [id.replace('filter-', ''), options(id)])),
        marks: Object.fromEntries(Array.from(document.querySelectorAll('#frontier g'), (line) => [line.dataset.policy, Array.from(line.querySelectorAll('title'), ({ textContent }) => textContent)])),
        bound: document.querySelectorAll('#frontier .bound').length,
        width: document.querySelector('#frontier svg')?.getBoundingClientRect().width ?? 0,
        rows: Array.from(document.querySelectorAll('#points > tr'), (row) => Array.from(row.cells, ({ textContent }) => textContent)),
        tasks: Object.fromEntries(Array.from(document.querySelectorAll('#timeline path[data-task]'), ({ dataset }) => [dataset.task, Number(dataset.spans)])),
        traces: options('trace'),
      };
    });
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

  ...BUFFERS,
  ...CAMERA,
  ...CHAT,
  ...PROFILES,
  ...ENGINES,
  ...FRAMES,
  ...GPUS,
  ...LANGUAGE,
  ...NAMES,
  ...RUNS,
  ...SWAPPING,
  ...TUNING,
  ...DISTURBED,
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

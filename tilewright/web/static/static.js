// The page of a static build: loads the bundle beside it, runs it once, and tunes it.
// Input: ?tune=static (default: candidates from a folder) or ?tune=client (the compiler runs in the page);
// &objective=NAME, default: the folder's.
// Output: progress as text.  The loaded engine is `globalThis.engine`.

import { load } from '../engine/engine.js';
import { zeroInputs } from '../engine/zero_inputs.js';
import { folderSource } from '../tune/sources/folder.js';
import { pyodideSource } from '../tune/sources/pyodide.js';

const BUNDLE = new URL('.', location.href);
/** Milliseconds to wait for the service worker that isolates the page. */
const TIMEOUT = 5000;
/** Session storage key that prevents endless reloads. */
const RELOADED = 'tilewright-reloaded';

/** @type {Record<string, (signal: AbortSignal) => Tune.Source>} */
const SOURCES = {
  static: (signal) => folderSource(new URL('tuning/', BUNDLE), { signal }),
  client: (signal) => pyodideSource({ bundle: BUNDLE, signal }),
};

/** @param {string} id */
const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {string} id @param {unknown} text */
const show = (id, text) => {
  element(id).textContent = String(text);
};

/** Threads need cross-origin isolation: if the server sends no such headers, a service worker adds them after one reload. */
async function isolate() {
  if (crossOriginIsolated || !navigator.serviceWorker || sessionStorage.getItem(RELOADED)) return;
  sessionStorage.setItem(RELOADED, 'once');
  const late = new Promise((resolve) => setTimeout(resolve, TIMEOUT));
  const changed = new Promise((resolve) => navigator.serviceWorker.addEventListener('controllerchange', resolve));
  try {
    await navigator.serviceWorker.register('sw.js');
    await Promise.race([late, changed]);
  } catch (error) {
    console.info('one thread: no service worker', error);
    return;
  }
  location.reload();
  await new Promise(() => {});
}

/** @param {any} event */
function note(event) {
  if (event.type === 'latency') show('latency', `${event.milliseconds.toFixed(2)} ms so far`);
  if (event.type !== 'trial') return;
  const row = document.createElement('tr');
  for (const text of [event.spec, event.candidate, event.verdict, event.ratio?.toFixed(3) ?? '', event.schedule]) {
    row.append(Object.assign(document.createElement('td'), { textContent: text }));
  }
  element('trials').prepend(row);
}

async function start() {
  await isolate();
  const stop = new AbortController();
  const asked = new URLSearchParams(location.search);
  show('state', 'loading the bundle');
  const engine = await load(BUNDLE);
  Object.assign(globalThis, { engine });
  show('name', engine.info.name);
  show('threads', engine.info.features.threads);
  await engine.run(zeroInputs(engine.info));
  const source = SOURCES[asked.get('tune') ?? 'static']?.(stop.signal);
  if (!source) return show('state', `ready; ?tune=${Object.keys(SOURCES).join(' or ?tune=')} tunes`);
  const button = /** @type {HTMLButtonElement} */ (element('stop'));
  button.disabled = false;
  button.addEventListener('click', () => stop.abort());
  show('state', 'tuning');
  const { tune } = await import('../tune/tuner.js');
  const objective = asked.get('objective') ?? await source.objective?.();
  const { rounds, gain, latency } = await tune(engine, { source, objective, budget: 1, signal: stop.signal, onEvent: note });
  button.disabled = true;
  show('latency', latency === null ? 'not measured' : `${latency.toFixed(2)} ms`);
  show('gain', gain.text);
  show('state', `done after ${rounds} trials`);
}

start().catch((error) => {
  console.error(error);
  show('state', [error.message ?? error, error.hint].filter(Boolean).join('. '));
});

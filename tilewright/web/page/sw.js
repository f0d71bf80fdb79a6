// The page's service worker: caches the page and the engine, so that a reload works offline.
// Input: requests of the page.  Output: the server's answer, or the cached one if the server cannot be reached.
// It does not cache bundles: the engine stores and verifies them itself.

const CACHE = 'tilewright-page-v3';

const FILES = [
  '/', '/camera', '/classes', '/corun', '/style.css', '/corun.css', '/icon.svg', '/sentences.json', '/api/bundles',
  ...['app', 'camera', 'catalogue', 'classes', 'collection', 'corun', 'corun_results', 'device_view', 'elements', 'findings', 'frontier_view', 'latency_view', 'model', 'picture_model', 'picture_sources', 'picture_view', 'ranking_view', 'status_view', 'timeline_view', 'tuning', 'tuning_chart', 'tuning_log', 'tuning_view', 'words']
    .map((name) => `/${name}.js`),
  ...['abi', 'auto', 'bundle', 'changes', 'devices', 'engine', 'errors', 'exchange', 'features', 'files', 'frames', 'generate', 'gpu_buffers', 'gpu_device', 'gpu_frames', 'gpu_here', 'gpu_kernels', 'gpu_measure', 'gpu_places', 'gpu_plan', 'gpu_runs', 'gpu_upload', 'gpu_vet', 'gpu_worker', 'halves', 'inspect', 'launch', 'link', 'loader', 'machine', 'measure', 'pool', 'renew', 'requests', 'serve', 'signed', 'states', 'store', 'tensors', 'tidy', 'vet', 'wasm', 'webgpu', 'widening', 'worker', 'zeros']
    .map((name) => `/engine/${name}.js`),
  '/tune/check.js',
  '/tune/tuner.js',
  ...['alone', 'candidate', 'forecast', 'latency', 'objective', 'pace', 'summary', 'supply', 'targets', 'tenure']
    .map((name) => `/tune/loop/${name}.js`),
  ...['backend', 'wasm', 'webgpu']
    .map((name) => `/tune/backend/${name}.js`),
  ...['breath', 'checks', 'clock', 'gpu_memory', 'gpu_specs', 'gpu_timing', 'gpu_worker', 'halves', 'inputs', 'judge', 'memory', 'pairs', 'pristine', 'specs', 'statistics', 'timing', 'trials', 'worker']
    .map((name) => `/tune/trial/${name}.js`),
  ...['adopt', 'agree', 'confirm', 'gain', 'guard', 'runs', 'silent', 'turns', 'watch']
    .map((name) => `/tune/exchange/${name}.js`),
  ...['forms', 'frames', 'line', 'signed', 'socket', 'told']
    .map((name) => `/tune/sources/${name}.js`),
  ...['kernels', 'ledger', 'persist', 'record', 'reports', 'tuned']
    .map((name) => `/tune/records/${name}.js`),
  ...['device', 'visit']
    .map((name) => `/tune/device/${name}.js`),
  '/vendor/tokenizers/tokenizers.min.mjs', '/vendor/uplot/uPlot.esm.js', '/vendor/uplot/uPlot.min.css',
];

const scope = /** @type {any} */ (self);

scope.addEventListener('install', (/** @type {any} */ event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => scope.skipWaiting()));
});

scope.addEventListener('activate', (/** @type {any} */ event) => {
  event.waitUntil(forgetOlder().then(() => scope.clients.claim()));
});

scope.addEventListener('fetch', (/** @type {any} */ event) => {
  const { request } = event;
  const { pathname, origin } = new URL(request.url);
  if (request.method !== 'GET' || origin !== location.origin || !FILES.includes(pathname)) return;
  event.respondWith(newest(request, pathname));
});

async function forgetOlder() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith('tilewright-page-') && name !== CACHE)
    .map((name) => caches.delete(name)));
}

/**
 * @param {Request} request
 * @param {string} pathname what it is kept under: links may add any query, and the files ignore it
 */
async function newest(request, pathname) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(pathname, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(pathname);
    if (kept) return kept;
    throw error;
  }
}

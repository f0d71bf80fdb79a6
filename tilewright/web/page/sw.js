// The page's service worker: caches the page and the engine, so that a reload works offline.
// Input: requests of the page.  Output: the server's answer, or the cached one if the server cannot be reached.
// It does not cache bundles: the engine stores and verifies them itself.

const CACHE = 'tilewright-page-v4';

const FILES = [
  '/', '/camera', '/chat', '/classes', '/corun', '/style.css', '/chat.css', '/corun.css', '/icon.svg', '/sentences.json', '/api/bundles',
  ...['camera', 'chat', 'chat_models', 'chat_view', 'classes', 'collection', 'conversation', 'corun', 'corun_results', 'elements', 'find_bundle', 'frontier_view', 'model', 'picture_model', 'picture_sources', 'search', 'status_view', 'timeline_view', 'tuning', 'tuning_chart', 'tuning_log', 'tuning_view']
    .map((name) => `/${name}.js`),
  ...['abi', 'auto', 'bundle', 'cache_eviction', 'changes', 'channel', 'devices', 'engine', 'errors', 'exchange', 'features', 'files', 'float16', 'frames', 'generate', 'gpu_buffers', 'gpu_device', 'gpu_frames', 'gpu_in_thread', 'gpu_measure', 'gpu_plan', 'gpu_runs', 'gpu_tensors', 'gpu_upload', 'gpu_vet', 'gpu_worker', 'inspect', 'loader', 'measure', 'memory_growth', 'opfs_cache', 'plan_runner', 'pool', 'pool_worker', 'requests', 'restart', 'signatures', 'start_worker', 'state_blocks', 'tensors', 'vet', 'wasm', 'webgpu', 'weight_decoding', 'worker', 'zero_inputs']
    .map((name) => `/engine/${name}.js`),
  '/tune/check.js',
  '/tune/tuner.js',
  ...['active_session', 'candidate', 'forecast', 'hot_kernels', 'objective', 'pace', 'session_lock']
    .map((name) => `/tune/loop/${name}.js`),
  ...['backend', 'wasm', 'webgpu']
    .map((name) => `/tune/backend/${name}.js`),
  ...['checks', 'clock', 'gpu_specs', 'gpu_timing', 'gpu_trial_memory', 'gpu_trial_worker', 'judge', 'paired_times', 'specs', 'statistics', 'timing', 'trial_inputs', 'trial_memory', 'trial_worker', 'trials', 'yielding']
    .map((name) => `/tune/trial/${name}.js`),
  ...['adopt', 'gain', 'guard', 'runs', 'unresponsive_gpu']
    .map((name) => `/tune/exchange/${name}.js`),
  ...['answer_checks', 'connection', 'signed', 'socket']
    .map((name) => `/tune/sources/${name}.js`),
  ...['device_record', 'engine_state', 'kernels', 'ledger', 'persist', 'reports']
    .map((name) => `/tune/records/${name}.js`),
  ...['device_class', 'visit']
    .map((name) => `/tune/device/${name}.js`),
  ...['control_tokens', 'from_prompt', 'from_sound', 'json_matcher', 'json_schema', 'language', 'sampling', 'text', 'text_stream', 'text_thread', 'text_worker']
    .map((name) => `/language/${name}.js`),
  '/vendor/jinja/jinja.mjs', '/vendor/tokenizers/tokenizers.min.mjs', '/vendor/uplot/uPlot.esm.js', '/vendor/uplot/uPlot.min.css',
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

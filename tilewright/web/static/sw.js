// Adds the headers that threads need, for file servers that cannot send them (GitHub Pages).
// Input: requests of the page.  Output: the server's answers with these headers.  It caches nothing.

const HEADERS = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'cross-origin-resource-policy': 'same-origin',
};

const scope = /** @type {any} */ (self);

scope.addEventListener('install', () => scope.skipWaiting());

scope.addEventListener('activate', (/** @type {any} */ event) => event.waitUntil(scope.clients.claim()));

scope.addEventListener('fetch', (/** @type {any} */ event) => {
  if (new URL(event.request.url).origin === location.origin) event.respondWith(isolated(event.request));
});

/** @param {Request} request */
async function isolated(request) {
  const response = await fetch(request);
  const { status, statusText } = response;
  // A redirect for the browser to follow is opaque (status 0) and cannot be rebuilt.
  if (!status) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  // A Response with status 304 must not have a body.
  return new Response(response.body && status !== 304 ? response.body : null, { status, statusText, headers });
}

"""The page's service worker, in Node with a cache of maps."""

from __future__ import annotations

from pathlib import Path

from node import run

import tilewright

PAGE = Path(tilewright.__file__).parent / "web" / "page"
SCRIPT = """
import { readFileSync } from 'node:fs';

const stores = new Map([['tilewright-page-v1', new Map()], ['of another', new Map()]]);
const under = (key) => typeof key === 'string' ? key : key.url;
globalThis.caches = {
  keys: async () => [...stores.keys()],
  delete: async (name) => stores.delete(name),
  open: async (name) => {
    if (!stores.has(name)) stores.set(name, new Map());
    const kept = stores.get(name);
    return {
      addAll: async () => {},
      put: async (key, response) => { kept.set(under(key), await response.text()); },
      match: async (key) => kept.has(under(key)) ? new Response(kept.get(under(key))) : undefined,
    };
  },
};
let online = true;
globalThis.fetch = async (request) => {
  if (!online) throw new TypeError('offline');
  return new Response(request.method === 'GET' ? `answer to ${new URL(request.url).pathname}` : '');
};
globalThis.location = { origin: 'http://localhost' };
const listeners = {};
globalThis.self = {
  addEventListener: (type, listener) => { listeners[type] = listener; },
  skipWaiting: async () => {},
  clients: { claim: async () => {} },
};
(0, eval)(readFileSync(<file>, 'utf8'));

async function ask(path, method = 'GET') {
  let answer = null;
  const request = new Request(`http://localhost${path}`, { method });
  listeners.fetch({ request, respondWith: (promise) => { answer = promise; } });
  return answer && (await answer).text();
}
let done;
listeners.activate({ waitUntil: (promise) => { done = promise; } });
await done;
for (let n = 0; n < 100; n += 1) await ask(`/?visit=${n}`);
await ask('/api/bundles?x');
const head = await ask('/', 'HEAD');
online = false;
const told = { head, offline: await ask('/?visit=new'), names: [...stores.keys()] };
told.kept = [...stores.get(told.names.at(-1)).keys()];
console.log(JSON.stringify(told));
"""


def test_a_query_makes_no_entry_and_finds_one() -> None:
    told = run(SCRIPT, file=str(PAGE / "sw.js"))
    assert told["kept"] == ["/", "/api/bundles"]
    assert told["offline"] == "answer to /"
    assert told["head"] is None, "the worker leaves it to the browser"
    assert told["names"][0] == "of another"
    assert len(told["names"]) == 2, "older caches of the page are deleted, no others"

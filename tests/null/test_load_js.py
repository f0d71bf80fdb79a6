"""Loads where there is no page, or not all of one: the error says what lacks (web/engine)."""

from __future__ import annotations

import pytest
from node import run

SCRIPT = """
const page = { navigator: { userAgent: '' }, location: new URL('https://a.example/'), WebAssembly };
for (const name of Object.keys(page)) {
  const value = <without> === name ? undefined : page[name];
  Object.defineProperty(globalThis, name, { value, configurable: true });
}
const { load } = await import('TUNE/../engine/engine.js');
const { name, code, message, hint } = await load('/b/m/').catch((error) => error);
console.log(JSON.stringify([name, code, message, hint]));
"""


@pytest.mark.parametrize(
    ("without", "said", "way"),
    [
        ("navigator", "no navigator", "--host node"),
        ("location", "no location", "--host node"),
        ("WebAssembly", "no WebAssembly", "2023"),
        ("Worker", "starts no worker", "dedicated workers"),
    ],
)
def test_what_a_host_lacks_is_told(without: str, said: str, way: str) -> None:
    name, code, message, hint = run(SCRIPT, without=without)
    assert (name, code) == ("EngineError", "unsupported-host")
    assert said in message
    assert way in hint


ADDRESS = """
globalThis.location = new URL('https://a.example/');
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: 'Browser 1' } });
const kept = JSON.stringify({ device: 'wasm-x86', at: Date.now(), agent: 'Browser 1' });
globalThis.localStorage = { getItem: () => kept, setItem() {} };
const { addressFor } = await import('TUNE/device/visit.js');
console.log(JSON.stringify(await Promise.all(<urls>.map(addressFor))));
"""


def test_tuned_addresses_keep_queries() -> None:
    urls = ["/bundles/m/", "/bundles/m", "/bundles/m?v=2", "/bundles/m/bundle.json?v=2#x"]
    first, second, *queried = run(ADDRESS, urls=urls)
    assert first == second
    assert first.startswith("/tuned/wasm-x86/")
    assert first.endswith("/m/")
    assert queried == [f"{first}?v=2"] * 2

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


OPTIONS = """
globalThis.location = new URL('https://a.example/');
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: '' }, configurable: true });
const { inspect, load } = await import('TUNE/../engine/engine.js');
const { generate } = await import('TUNE/../engine/generate.js');
const { tune } = await import('TUNE/tuner.js');
const asked = [];
const model = { inputs: [], outputs: [], states: [], assets: [] };
const link = {
  memory: null,
  close() {},
  async request(kind) {
    asked.push(kind);
    if (kind !== 'load') return { milliseconds: 1, outputs: [], first: 1, steps: [] };
    const info = { ...model, plans: [{ dims: {} }], features: { threads: 1 }, variant: {} };
    const plans = [{ ...model, dims: {}, extents: [], steps: [] }];
    return { info, manifest: model, program: { plans, states: [] }, setup: null };
  },
};
const opened = (options) => load('/b/', options, () => link);
const engine = await opened({ threads: 1 });
await engine.run({}, { signal: new AbortController().signal });
await engine.run({});
await engine.time({ runs: 1 });
await engine.profile({ runs: 1, bucket: {} });
const before = asked.length;
const calls = {
  load: () => opened({ treads: 2 }),
  inspect: () => inspect('/b/', { treads: 2 }),
  run: () => engine.run({}, { treads: 2 }),
  time: () => engine.time({ treads: 2 }),
  profile: () => engine.profile({ runs: 1, treads: 2 }),
  tune: () => tune(engine, { source: { close() {} }, treads: 2 }),
  generate: () => generate(engine, [1], { treads: 2 }).next(),
};
const told = {};
for (const name of Object.keys(calls)) {
  const { code, message, hint } = await calls[name]().catch((error) => error);
  told[name] = [code, message, hint];
}
console.log(JSON.stringify([told, asked.slice(before)]));
"""


def test_unknown_options_are_refused_by_all_who_take_options() -> None:
    told, asked = run(OPTIONS)
    ways = {
        "load": "threads", "inspect": "verify", "run": "into, signal", "time": "warmup",
        "profile": "inOrder", "tune": "budget", "generate": "past",
    }  # fmt: skip
    assert told.keys() == ways.keys()
    for name, (code, message, hint) in told.items():
        assert (code, message) == ("input", f"{name} has no option 'treads'")
        assert ways[name] in hint
    assert not asked

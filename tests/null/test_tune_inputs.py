"""How far results of a trial may be apart (web/tune/trial/memory.js): a kernel that is made up."""

from __future__ import annotations

import pytest
from node import run

SCRIPT = """
globalThis.self = { postMessage() {} };
const { accept, check, doubt, begin, lay, openMemory, use } = await import('TUNE/trial/memory.js');
const { inputsOf } = await import('TUNE/trial/checks.js');
const SIZE = 4096;
const buffer = { dtype: 'f32', size: SIZE, bytes: 4 * SIZE, limit: 0, extent: 0, real: null };
const facts = { spec: 0, buffers: [buffer, buffer], scalars: [], slot: 0, tiles: 1, rounds: true };
// The argument block begins with the addresses of output and input.
let memory;
const { Memory } = WebAssembly;
WebAssembly.Memory = class extends Memory { constructor(...given) { super(...given); memory = this; } };
openMemory(1 << 20, 64);
const state = use({ facts, ...lay(facts), sets: {}, known: new Map() });
const kernel = (f) => ({ tiles: 1, run() {
  const [to, from] = state.addresses.map((address) => new Float32Array(memory.buffer, address, SIZE));
  to.set(from.map(f));
} });
const right = kernel(<right>);
for (const name of ['random', 'edge']) {
  state.sets[name] = { inputs: await inputsOf(facts, name), wanted: null, allowed: 0 };
  await begin(name);
  right.run();
  await accept(state.sets[name]);
  await doubt(state.sets[name], right);
}
console.log(JSON.stringify(await check(kernel(<other>))));
"""  # noqa: E501


@pytest.mark.parametrize(
    ("right", "other", "wrong"),
    [
        ("(x) => 2 * x", "(x) => 2 * x * (1 + 1e-6)", False),
        ("(x) => 2 * x", "(x) => 2 * x + 0.01", True),
        ("(x) => Math.floor(x)", "(x) => x", True),
        ("(x) => Math.round(10 * x) / 10", "(x) => x", True),
        # of 20,000 a last bit is a five-hundredth
        ("(x) => Math.sin(20 * x)", "(x) => Math.sin(20 * x * (1 + 1e-7))", False),
        ("(x) => Math.sin(20 * x)", "(x) => Math.sin(20 * x + 0.1)", True),
        ("(x) => Math.max(0, x)", "() => 0", True),
    ],
)
def test_kernels_that_round_otherwise_are_right_and_others_are_not(
    right: str, other: str, wrong: bool
) -> None:
    script = SCRIPT.replace("<right>", right).replace("<other>", other)
    found = run(script)
    assert bool(found) == wrong, found

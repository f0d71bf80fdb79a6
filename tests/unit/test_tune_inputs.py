"""How far results of a trial may be apart (trial_memory.js): a kernel that is made up."""

from __future__ import annotations

import pytest
from node import run

SCRIPT = """
globalThis.self = { postMessage() {} };
const { accept, check, begin, lay, openMemory, use } = await import('TUNE/trial/trial_memory.js');
const { inputsOf } = await import('TUNE/trial/checks.js');
const SIZE = 4096;
const buffer = { dtype: 'f32', size: SIZE, bytes: 4 * SIZE, limit: 0, extent: 0, real: null };
const facts = { spec: 0, buffers: [buffer, buffer], scalars: [], slot: 0, tiles: 1, rounds: true };
// The argument block begins with the addresses of output and input.
let [memory, ran] = [null, 0];
const { Memory } = WebAssembly;
WebAssembly.Memory = class extends Memory { constructor(...given) { super(...given); memory = this; } };
openMemory(1 << 20, 64);
const state = use({ facts, ...lay(facts), sets: {}, known: new Map() });
const kernel = (f) => ({ tiles: 1, run() {
  ran++;
  const [to, from] = state.addresses.map((address) => new Float32Array(memory.buffer, address, SIZE));
  to.set(from.map(f));
} });
const right = kernel(<right>);
for (const name of ['random', 'edge']) {
  state.sets[name] = { inputs: await inputsOf(facts, name), wanted: null, allowed: 0, doubted: false };
  await begin(name);
  right.run();
  await accept(state.sets[name]);
}
state.reference = right;
ran = 0;
const wrong = await check(kernel(<other>));
console.log(JSON.stringify({ wrong, ran }));
"""  # noqa: E501


@pytest.mark.parametrize(
    ("right", "other", "wrong", "runs"),
    [
        ("(x) => 2 * x", "(x) => 2 * x * (1 + 1e-6)", False, 2),
        ("(x) => 2 * x", "(x) => 2 * x + 0.01", True, 2),
        ("(x) => Math.floor(x)", "(x) => x", True, 1),
        ("(x) => Math.round(10 * x) / 10", "(x) => x", True, 1),
        # of 20,000 a last bit is a five-hundredth
        ("(x) => Math.sin(20 * x)", "(x) => Math.sin(20 * x * (1 + 1e-7))", False, 3),
        ("(x) => Math.sin(20 * x)", "(x) => Math.sin(20 * x + 0.1)", True, 1),
        ("(x) => Math.max(0, x)", "() => 0", True, 1),
    ],
)
def test_kernels_that_round_otherwise_are_right_and_others_are_not(
    right: str, other: str, wrong: bool, runs: int
) -> None:
    """The reference runs again, with other last bits, only where a result is neither as exact as
    most kernels are nor off by more than any rounding."""
    script = SCRIPT.replace("<right>", right).replace("<other>", other)
    found = run(script)
    assert bool(found["wrong"]) == wrong, found
    assert found["ran"] == runs

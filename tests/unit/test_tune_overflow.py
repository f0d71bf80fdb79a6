"""Candidates whose numbers overflow, as halves do beyond 65,504 (web/tune/trial/checks.js), on a
memory that is made up."""

from __future__ import annotations

import pytest
from node import run

SCRIPT = """
globalThis.self = { postMessage() {} };
const { checksOf } = await import('TUNE/trial/checks.js');
const numbers = (list) => Float32Array.from(list, Number);
const set = { wanted: numbers(<wanted>), allowed: 0.5, doubted: false };
let runs = 0;
const { check } = checksOf({
  current: () => ({ facts: { buffers: [{ dtype: 'f32' }] }, sets: { random: set }, reference: {} }),
  begin: async () => {},
  output: async () => numbers(<found>),
  runAll: async () => void runs++,
  changedInput: async () => 0,
  perturb: async () => {},
});
console.log(JSON.stringify({ wrong: await check({}), runs }));
"""


@pytest.mark.parametrize("found", ["Infinity", "-Infinity", "NaN"])
def test_what_overflows_is_wrong(found: str) -> None:
    """However far results may be off: no doubt about the reference excuses it."""
    answer = run(SCRIPT, wanted=["1", "65000", "-3"], found=["1", found, "-3"])
    assert answer["wrong"].startswith("on random inputs")
    assert answer["runs"] == 1


def test_what_overflows_in_the_reference_may_overflow() -> None:
    both = ["1", "Infinity", "-3"]
    assert run(SCRIPT, wanted=both, found=both)["wrong"] == ""

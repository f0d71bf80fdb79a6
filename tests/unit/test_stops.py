"""Indices out of range (hosts/inputs_outputs.py): pages say the same (web/engine/errors.js)."""

from __future__ import annotations

import pytest
from node import run

from tilewright.base.abi import CHECK_BIT
from tilewright.bundle import CheckEntry, StepEntry
from tilewright.hosts.inputs_outputs import of_word, out_of_range

PICK = CheckEntry(node="/words/pick", op="Gather", axis=1, length=50, least=-50)
NAMELESS = CheckEntry(node="rows", op="", axis=0, length=7)
STEPS = (
    StepEntry(spec=0, kernel="map", node="first", flops=0, bytes=0),
    StepEntry(spec=1, kernel="take", node="y", flops=0, bytes=0, checks=(PICK, NAMELESS)),
)

PAGE = """
const { outOfRange } = await import('TUNE/../engine/errors.js');
const { check, index } = <given>;
const [low, high] = new Int32Array(BigInt64Array.of(BigInt(index)).buffer);
console.log(JSON.stringify(outOfRange(check, low, high, { step: 1, kernel: 'take' })));
"""


@pytest.mark.parametrize(("check", "counted", "given"), [
    (0, 50, 50), (0, -1, -51), (0, 2**40, 2**40), (0, -(2**40), -(2**40) - 50),
    (1, 7, 7), (1, -3, -3),
])  # fmt: skip
def test_pages_say_the_same(check: int, counted: int, given: int) -> None:
    known = STEPS[1].checks[check]
    ours = out_of_range(STEPS, 1, check, counted)
    told = {name: getattr(known, name) for name in ("node", "op", "axis", "length", "least")}
    theirs = run(PAGE, given={"check": told, "index": counted})
    assert theirs["message"].lower() == ours.message.lower()
    assert theirs["hint"].startswith(ours.hint)
    facts = {"node": known.node, "axis": known.axis, "length": known.length, "index": given}
    facts |= {"step": 1, "kernel": "take"} | ({"op": known.op} if known.op else {})
    assert ours.facts == facts
    assert {name: fact for name, fact in theirs["facts"].items() if fact != ""} == facts
    assert f"{known.op or 'node'} {known.node}" in ours.message


def test_the_word_of_a_gpu_has_the_step_and_the_check() -> None:
    found = of_word(STEPS, 2 + (1 << CHECK_BIT), 9)
    assert (found.facts["node"], found.facts["step"], found.facts["index"]) == ("rows", 1, 9)


@pytest.mark.parametrize("word", [1, 4, -1, 2 + (2 << CHECK_BIT)])
def test_a_word_that_means_nothing_names_nothing(word: int) -> None:
    """That of an older build is 1, and what follows it is anything."""
    found = of_word(STEPS, word, 12345)
    assert (found.facts, found.code) == ({}, "kernel-trap")
    assert "new build" in found.hint

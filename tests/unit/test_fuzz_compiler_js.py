"""What the compiler in the page hands over is read like what a server sends.

Input: seeds.  Answers of Pyodide's worker with structural damage (helpers/mutations.py).  Output:
the session ends with a typed error, or goes on.
"""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from fuzz_node import outcomes
from helpers.hostile import module
from helpers.mutations import damaged_json
from helpers.seeds import seeds
from test_bundle_fuzz import whole
from test_fuzz_js import CLASSES, HELLO, as_case, candidate, offer, problems

from tilewright.bundle.format import digest

ANSWERS: dict[str, Any] = {
    "start": {"tool": "", "python": 1.5, "compiler": 0.5},
    "classes": CLASSES,
    "open": [offer(spec) | {"order": [1, 2]} for spec in (0, 1)],
    "make": {"header": candidate(0, 1), "milliseconds": 1.5},
}


def case(answers: Any) -> tuple[dict[str, Any], bool]:
    name, text = whole().manifest
    answers["start"]["tool"] = json.loads(text)["tool"]
    if isinstance(answers["make"], dict):
        answers["make"].setdefault("module", b64encode(module()).decode())
    bundle = as_case(whole(), [], isolated=True)
    hello = HELLO | {"digest": digest(whole().files[name]), "variant": "x86-simd"}
    device = {"kind": "wasm", "vendor": "", "architecture": "x86", "features": [], "l1": 49152}
    given = {"hello": hello, "device": device, "frames": [], "key": None, "compiled": answers}
    return bundle | given, False


def damaged(number: int) -> tuple[dict[str, Any], bool]:
    rng = Random(f"compiler {number}")
    answers = deepcopy(ANSWERS)
    kind = rng.choice(("classes", "open", "make", "make"))
    answers[kind] = damaged_json(answers[kind], rng)
    return case(answers)


def session(**parts: Any) -> str:
    (found,) = outcomes("line", [case(deepcopy(ANSWERS) | parts)])
    assert problems(found) == []
    said: str = found["session"]
    return said


def test_a_whole_session_is_right() -> None:
    assert session() == "right"


@pytest.mark.parametrize("batch", seeds(1, nightly=9))
def test_damaged_answers_are_a_typed_error_or_right(batch: int) -> None:
    numbers = range(batch * 60, (batch + 1) * 60)
    found = dict(zip(numbers, outcomes("line", list(map(damaged, numbers))), strict=True))
    assert {number: bad for number, one in found.items() if (bad := problems(one))} == {}


@pytest.mark.parametrize(
    "parts",
    [
        {"open": None},
        {"open": [None]},
        {"open": [{"spec": 0, "checksum": "c"}]},
        {"make": {"header": 1, "milliseconds": 1}},
        {"make": {"header": candidate(0, 1), "milliseconds": None}},
        {"make": {"header": candidate(0, 1) | {"grains": None}, "milliseconds": 1}},
        {"make": {"header": candidate(0, 1), "module": "", "milliseconds": 1}},
    ],
    ids=["no offers", "no offer", "no order", "a number", "no time", "no grains", "no module"],
)
def test_what_was_found(parts: dict[str, Any]) -> None:
    assert session(**parts) == "bundle-corrupt"

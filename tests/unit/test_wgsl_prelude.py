"""The functions that come with a WGSL kernel: those that it calls, and what these need."""

from __future__ import annotations

import re

import pytest

from tilewright.targets.wgsl import calls
from tilewright.targets.wgsl.prelude import prelude

TABLES = (*calls.FLOAT.values(), *calls.LONG.values(), *calls.INTEGER.values())
CALLED = sorted({n for t in TABLES for n in re.findall(r"(?:f32|i64)_\w+", t)})
DECLARED = re.compile(r"^(?:const|var<private>|struct|fn) (\w+)", re.MULTILINE)


def test_a_kernel_that_calls_none_has_none() -> None:
    assert prelude("let x = fma(a, b, c);") == ""


@pytest.mark.parametrize("name", CALLED)
def test_functions_come_with_what_they_need(name: str) -> None:
    text = prelude(f"let x = {name}(a);")
    declared = DECLARED.findall(text)
    assert len(declared) == len(set(declared))
    assert name in declared
    used = set(
        re.findall(r"(?:(?:f32|i64|u32|poly|is|with)_\w+|[A-Z][A-Z0-9_]{2,}|Split|Angle)", text)
    )
    assert used == {n for n in declared if n in used}


def test_nothing_comes_that_is_not_needed() -> None:
    assert DECLARED.findall(prelude("f32_min(a, b)")) == ["is_nan", "f32_min"]

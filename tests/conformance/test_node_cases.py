"""The node tests that come with ONNX: all on wasmtime, a spread sample on every host, both in parts
that runs take by turns.

A case passes or is refused with a typed error while it is compiled; none gives a wrong answer.  How
many are refused, and why, is printed: `pytest -rP` shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import SLOW, TARGETS, RunBundle, options_for
from helpers.node_cases import attempt, cases, inputs_of, operator, wrong_outputs
from helpers.once import made_once

from tilewright.base.errors import TilewrightError
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.hosts.wasmtime import FEATURES, REGISTERS, WasmtimeHost
from tilewright.targets import wasm

PARTS = 8
SAMPLES = 4
#: Every second operator: a page needs a while to load a bundle, and longer to compile shaders.
EVERY = {"wasm": 2, "c": 2, "wgsl": 5, "cuda": 5}
LEAST = {"wasm": 60, "c": 60, "wgsl": 20, "cuda": 20}
REASONS = {"unsupported-op", "unsupported-dtype", "invalid-model"}

#: The variant that wasmtime takes here: making all of them takes longer than running one.
BEST = next(
    t.name for t in wasm.VARIANTS.values() if t.features <= FEATURES and t.registers == REGISTERS
)


def bundle(case: Any, folder: Path, options: Options) -> Path:
    """The case below this folder; TilewrightError if it is refused."""

    def put(to: Path) -> None:
        made = attempt(
            case, lambda m, shapes: compile_model(load(m), replace(options, shapes=shapes))
        )
        write(made.contents, to)

    return made_once(folder / case.name, put)


def is_wrong(case: Any, path: Path, run: RunBundle) -> bool:
    given, left = inputs_of(case), {i.name for i in open_bundle(path).manifest.inputs}
    return bool(wrong_outputs(case, run(path, {n: v for n, v in given.items() if n in left})))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("part", range(PARTS), ids="part{}".format)
def test_no_case_is_wrong_on_wasmtime(part: int, tmp_path: Path) -> None:
    wrong: list[str] = []
    refused: Counter[tuple[str, str]] = Counter()
    for case in cases()[part::PARTS]:
        try:
            path = bundle(case, tmp_path, Options(variants=(BEST,)))
        except TilewrightError as error:
            refused[error.code, error.message] += 1
            continue
        if is_wrong(case, path, lambda p, inputs: WasmtimeHost(p).run(inputs).outputs):
            wrong.append(case.name)
    for (code, message), count in refused.most_common():
        print(f"{count:4d}  {code}: {message}")
    assert wrong == []
    assert {code for code, _ in refused} <= REASONS


@cache
def sample_for(target: str, folder: Path, part: int) -> list[tuple[Any, Path]]:
    """A case of an operator: the first that compiles, from another place for each operator."""
    by_operator: dict[str, list[Any]] = {}
    for case in cases():
        by_operator.setdefault(operator(case), []).append(case)
    made: list[tuple[Any, Path]] = []
    chosen = list(by_operator.values())[:: EVERY[target]]
    for number, found in [*enumerate(chosen)][part::SAMPLES]:
        start = number % len(found)
        made += first_that_compiles([*found[start:], *found[:start]], folder, target)
    assert len(made) >= LEAST[target] / SAMPLES
    return made


def first_that_compiles(found: Iterable[Any], folder: Path, target: str) -> list[tuple[Any, Path]]:
    for case in found:
        try:
            return [(case, bundle(case, folder, options_for(target)))]
        except TilewrightError:
            continue
    return []


@pytest.mark.by_turns
@pytest.mark.one_in(4, *SLOW)
@pytest.mark.one_in(2, *(host for host in TARGETS if host not in SLOW))
@pytest.mark.parametrize("part", range(SAMPLES))
def test_the_sample_on_every_host(
    host_name: str, part: int, root: Path, run_bundle: RunBundle
) -> None:
    target = TARGETS[host_name]
    sample = sample_for(target, root / "cases" / target, part)
    wrong = [case.name for case, path in sample if is_wrong(case, path, run_bundle)]
    assert wrong == []

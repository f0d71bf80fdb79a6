"""Models that ask for too much: typed errors, little memory, and one table of limits.

Input: the crafted files of hostile_models.py.  Output: how each ends.  Time is bounded by a limit
on the processor time of each process, far above what any takes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hostile_models import HOSTILE

from tilewright.base.errors import InvalidModel, ModelLimit, TilewrightError
from tilewright.base.limits import LIMITS, within
from tilewright.compiler import compile_model

HERE = Path(__file__).parent

#: Files that are models after all: their numbers are odd, and mean something.
HARMLESS = """
    filled_1e9 filled_3e8 gather_beyond halves_beyond max_pool_of_1e6 outputs_of_20000
    slice_beyond split_1e8
    squared_number trilu_2_63 without_nodes
""".split()  # noqa: SIM905


@pytest.fixture(scope="module", params=["compile", "check"])
def outcomes(request: pytest.FixtureRequest) -> dict[str, dict[str, object]]:
    command = [sys.executable, str(HERE / "bounded_models.py"), request.param]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE)
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_no_model_kills_the_process(outcomes: dict[str, dict[str, object]]) -> None:
    assert outcomes.keys() == HOSTILE.keys()
    assert [name for name, row in outcomes.items() if row["died"]] == []


def test_every_error_is_typed(outcomes: dict[str, dict[str, object]]) -> None:
    untyped = {n: r["outcome"] for n, r in outcomes.items() if "untyped" in str(r["outcome"])}
    assert untyped == {}
    assert [name for name, row in outcomes.items() if row["outcome"] == "compiler-bug"] == []


def test_only_harmless_models_compile(outcomes: dict[str, dict[str, object]]) -> None:
    accepted = {name for name, row in outcomes.items() if row["outcome"] == "accepted"}
    assert accepted >= set(HARMLESS)
    if "check" not in {row["step"] for row in outcomes.values()}:
        assert accepted == set(HARMLESS)


def test_no_model_takes_more_than_500_megabytes(outcomes: dict[str, dict[str, object]]) -> None:
    assert {n: r["megabytes"] for n, r in outcomes.items() if int(str(r["megabytes"])) > 500} == {}


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("doubled_concat", "elements"),
        ("doubled_shape", "shape_work"),
        ("doubled_rank", "rank"),
        ("functions_doubled", "nodes"),
        ("functions_deep", "nesting"),
        ("filled_and_summed", "constant"),
        ("resize_sizes_1e9", "table"),
        ("loop_1e8", "repeats"),
        ("loops_nested", "repeats"),
        ("input_rank_1000", "rank"),
    ],
)
def test_a_limit_is_named(name: str, limit: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLimit) as caught:
        compile_model(HOSTILE[name](tmp_path))
    assert caught.value.facts["limit"] == limit
    assert caught.value.facts["most"] == asdict(LIMITS)[limit]
    assert caught.value.hint


def test_a_function_that_calls_itself_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="calls itself"):
        compile_model(HOSTILE["functions_of_each_other"](tmp_path))


@pytest.mark.parametrize("name", asdict(LIMITS))
def test_every_limit_has_a_way_out_and_a_line_in_the_docs(name: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        within(name, 2**70, "this")
    assert caught.value.hint
    docs = (HERE.parents[1] / "docs" / "limits.md").read_text()
    row = re.search(rf"^\| `{name}` \| ([\d,]+|2\^\d+) \|", docs, re.MULTILINE)
    assert row is not None
    text = row[1].replace(",", "")
    power = text.partition("^")[2]
    assert (2 ** int(power) if power else int(text)) == asdict(LIMITS)[name]

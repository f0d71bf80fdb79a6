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
from tilewright.base.model_limits import LIMITS, check_limit
from tilewright.compiler import compile_model

HERE = Path(__file__).parent
#: Of the models, which runs take by turns.
PARTS = 4

#: Files that are models after all: their numbers are odd, and mean something.
HARMLESS = """
    filled_1e9 filled_3e8 halves_beyond max_pool_of_1e6 outputs_of_20000
    slice_beyond split_1e8
    squared_number trilu_2_63 without_nodes
""".split()  # noqa: SIM905


@pytest.mark.parametrize("part", range(PARTS), ids="part{}".format)
@pytest.mark.parametrize("step", ["compile", "check"])
def test_hostile_models_end_as_they_must(step: str, part: int) -> None:
    """No process dies or takes more than 500 megabytes; errors are typed; only harmless models
    compile."""
    names = sorted(HOSTILE)[part::PARTS]
    command = [sys.executable, str(HERE / "bounded_models.py"), step, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == names
    assert [row["name"] for row in rows if row["died"]] == []
    wrong = {row["name"]: row["outcome"] for row in rows if "untyped" in row["outcome"]}
    assert wrong == {}
    assert [row["name"] for row in rows if row["outcome"] == "compiler-bug"] == []
    accepted = {row["name"] for row in rows if row["outcome"] == "accepted"}
    assert accepted >= set(HARMLESS) & set(names)
    if step == "compile":
        assert accepted <= set(HARMLESS)
    assert {row["name"]: row["megabytes"] for row in rows if row["megabytes"] > 500} == {}


def test_harmless_models_are_among_them() -> None:
    assert set(HARMLESS) <= HOSTILE.keys()


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
        check_limit(name, 2**70, "this")
    assert caught.value.hint
    docs = (HERE.parents[1] / "docs" / "limits.md").read_text()
    row = re.search(rf"^\| `{name}` \| ([\d,]+|2\^\d+) \|", docs, re.MULTILINE)
    assert row is not None
    text = row[1].replace(",", "")
    power = text.partition("^")[2]
    assert (2 ** int(power) if power else int(text)) == asdict(LIMITS)[name]

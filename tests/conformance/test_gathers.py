"""Operators that read at computed positions, on every host: each index is checked along its axis.

The offset of an index that is out of range may lie in the operand, in another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import BundleOf, RunBundle
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.base.errors import KernelTrap
from tilewright.bundle import Contents
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@dataclass(frozen=True)
class Pick:
    """An operator that picks from X; indices that it takes, and what they pick; one beyond, and
    along which axis."""

    op: str
    right: Sequence[Any]
    wrong: Sequence[Any]
    picked: Sequence[Any]
    axis: int
    attributes: dict[str, int] = field(default_factory=dict)

    @property
    def bad(self) -> int:
        """The one index that is out of range."""
        size = X.shape[self.axis]
        return next(int(i) for i in np.ravel(self.wrong) if not -size <= i < size)

    def model(self) -> ModelProto:
        at = np.shape(self.right)
        return helper.make_model(
            helper.make_graph(
                [helper.make_node(self.op, ["x", "i"], ["y"], name="pick", **self.attributes)],
                self.op,
                [helper.make_tensor_value_info("i", TensorProto.INT64, at)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [numpy_helper.from_array(X, "x")],
            ),
            opset_imports=[helper.make_opsetid("", 21)],
            ir_version=9,
        )


PICKS = {
    "Gather": Pick("Gather", [2, -3], [3, 0], X[:, [2, 0]], 1, {"axis": 1}),
    "Gather-before": Pick("Gather", [2, -3], [-4, 0], X[:, [2, 0]], 1, {"axis": 1}),
    "GatherElements": Pick(
        "GatherElements", [[[3, -4]], [[0, 1]]], [[[4, 0]], [[0, 0]]],
        [[[X[0, 0, 3], X[0, 0, 0]]], [[X[1, 0, 0], X[1, 0, 1]]]], 2, {"axis": 2},
    ),
    "GatherElements-before": Pick(
        "GatherElements", [[[2]], [[-2]]], [[[0]], [[-4]]],
        [[[X[0, 2, 0]]], [[X[1, 1, 0]]]], 1, {"axis": 1},
    ),
    "GatherND": Pick("GatherND", [[1, -1], [0, 2]], [[0, 3], [0, 0]], X[[1, 0], [2, 2]], 1),
    "GatherND-before": Pick("GatherND", [[1, -3, 0]], [[1, -4, 0]], [X[1, 0, 0]], 1),
    "GatherND-batches": Pick(
        "GatherND", [[2], [-3]], [[3], [0]], X[[0, 1], [2, 0]], 1, {"batch_dims": 1}
    ),
}  # fmt: skip


@pytest.mark.by_turns
@pytest.mark.parametrize("name", PICKS)
def test_indices_out_of_range_stop_the_run(
    name: str, run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    pick = PICKS[name]
    path = bundle_of(name, lambda options: compile_model(load(pick.model()), options).contents)
    found = run_bundle(path, {"i": np.array(pick.right)})["y"]
    np.testing.assert_array_equal(found, np.array(pick.picked))
    with pytest.raises(KernelTrap) as caught:
        run_bundle(path, {"i": np.array(pick.wrong)})
    facts, length = caught.value.facts, X.shape[pick.axis]
    told = {"node": "pick", "op": pick.op, "axis": pick.axis, "length": length, "index": pick.bad}
    assert {name: facts.get(name) for name in told} == told
    assert f"axis {pick.axis} has {length} elements" in str(caught.value)


@pytest.mark.by_turns
def test_a_bundle_of_an_older_build_says_nothing_that_it_does_not_know(
    run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    """Its manifest has no `checks`."""
    pick = PICKS["Gather"]

    def older(options: Options) -> Contents:
        contents = compile_model(load(pick.model()), options).contents
        plans = tuple(
            msgspec.structs.replace(
                plan, steps=tuple(msgspec.structs.replace(step, checks=()) for step in plan.steps)
            )
            for plan in contents.manifest.plans
        )
        return replace(contents, manifest=msgspec.structs.replace(contents.manifest, plans=plans))

    path = bundle_of("older", older)
    with pytest.raises(KernelTrap) as caught:
        run_bundle(path, {"i": np.array(pick.wrong)})
    assert caught.value.hint
    assert caught.value.facts.get("node", "pick") == "pick"
    assert not any(word in str(caught.value) for word in ("undefined", "NaN", "None"))


def two_tables() -> ModelProto:
    """Rows of two tables, added by one kernel."""
    nodes = [
        helper.make_node("Gather", ["words", "i"], ["a"], name="word"),
        helper.make_node("Gather", ["places", "j"], ["b"], name="place"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    tables = {"words": (50, 4), "places": (7, 4)}
    graph = helper.make_graph(
        nodes,
        "tables",
        [helper.make_tensor_value_info(name, TensorProto.INT64, (3,)) for name in "ij"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 4))],
        [numpy_helper.from_array(np.ones(tables[name], np.float32), name) for name in tables],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.mark.by_turns
def test_of_several_lookups_in_one_kernel_the_right_one_is_named(
    run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    path = bundle_of(
        "two-tables", lambda options: compile_model(load(two_tables()), options).contents
    )
    fine = np.zeros(3, np.int64)
    for name, node, length, index in (("j", "place", 7, -8), ("i", "word", 50, 2**40)):
        wrong = {"i": fine, "j": fine, name: np.array([0, index, 0])}
        with pytest.raises(KernelTrap) as caught:
            run_bundle(path, wrong)
        facts = caught.value.facts
        assert (facts["node"], facts["op"], facts["axis"]) == (node, "Gather", 0)
        assert (facts["length"], facts["index"]) == (length, index)

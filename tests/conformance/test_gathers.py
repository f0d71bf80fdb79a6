"""Operators that read at computed positions, on every host: each index is checked along its axis.

The offset of an index that is out of range may lie in the operand, in another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from conftest import BundleOf, RunBundle
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.base.errors import KernelTrap
from tilewright.compiler import compile_model
from tilewright.frontend import load

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@dataclass(frozen=True)
class Pick:
    """An operator that picks from X; indices that it takes, and what they pick; some beyond."""

    op: str
    right: Sequence[Any]
    wrong: Sequence[Any]
    picked: Sequence[Any]
    attributes: dict[str, int] = field(default_factory=dict)

    def model(self) -> ModelProto:
        at = np.shape(self.right)
        return helper.make_model(
            helper.make_graph(
                [helper.make_node(self.op, ["x", "i"], ["y"], **self.attributes)],
                self.op,
                [helper.make_tensor_value_info("i", TensorProto.INT64, at)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [numpy_helper.from_array(X, "x")],
            ),
            opset_imports=[helper.make_opsetid("", 21)],
            ir_version=9,
        )


PICKS = {
    "Gather": Pick("Gather", [2, -3], [3, 0], X[:, [2, 0]], {"axis": 1}),
    "Gather-before": Pick("Gather", [2, -3], [-4, 0], X[:, [2, 0]], {"axis": 1}),
    "GatherElements": Pick(
        "GatherElements", [[[3, -4]], [[0, 1]]], [[[4, 0]], [[0, 0]]],
        [[[X[0, 0, 3], X[0, 0, 0]]], [[X[1, 0, 0], X[1, 0, 1]]]], {"axis": 2},
    ),
    "GatherElements-before": Pick(
        "GatherElements", [[[2]], [[-2]]], [[[0]], [[-4]]],
        [[[X[0, 2, 0]]], [[X[1, 1, 0]]]], {"axis": 1},
    ),
    "GatherND": Pick("GatherND", [[1, -1], [0, 2]], [[0, 3], [0, 0]], X[[1, 0], [2, 2]]),
    "GatherND-before": Pick("GatherND", [[1, -3, 0]], [[1, -4, 0]], [X[1, 0, 0]]),
    "GatherND-batches": Pick(
        "GatherND", [[2], [-3]], [[3], [0]], X[[0, 1], [2, 0]], {"batch_dims": 1}
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
    with pytest.raises(KernelTrap):
        run_bundle(path, {"i": np.array(pick.wrong)})

"""The node tests that come with ONNX: what each gives, wants, and how an answer is judged.

Input: `onnx.backend.test`, in memory.  Output: the cases; for each its model, once more with the
operands that decide shapes as weights if we need that; which outputs of an answer are wrong.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from helpers.once import made_once
from tilewright.base.errors import UnsupportedOp

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = dict[str, tuple[int, ...]]
Made = TypeVar("Made")

#: The last place of numbers from 1 to 2.
HALF = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


#: The collected cases, for all processes: collecting takes seconds, reading none.
KEPT = Path(__file__).parents[2] / "build" / f"node-cases-{onnx.__version__}-{np.__version__}"


@cache
def cases() -> tuple[Any, ...]:
    """Every case (onnx.backend.test.case.test_case.TestCase), in ONNX's order."""
    found: tuple[Any, ...] = pickle.loads((made_once(KEPT, _collect) / "cases").read_bytes())
    return found


def _collect(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes some expected values with overflow
        from onnx.backend.test.case.node import collect_testcases

        (folder / "cases").write_bytes(pickle.dumps(tuple(collect_testcases(None))))


def operator(case: Any) -> str:
    """What the case is about; a case that ONNX expanded is about its first node."""
    return str(case.model.graph.node[0].op_type)


def attempt(case: Any, make: Callable[[onnx.ModelProto, Shapes], Made]) -> Made:
    """`make` of the case's model; TilewrightError if it is refused."""
    values = _tensors(case.data_sets[0][0])
    _tensors(case.data_sets[0][1])
    try:
        return make(case.model, _shapes(case.model, case, values))
    except UnsupportedOp as error:
        if "at run time" not in error.message:
            raise
        fixed = _frozen(case.model, values)
        return make(fixed, _shapes(fixed, case, values))


def inputs_of(case: Any) -> dict[str, Array]:
    """All inputs by name."""
    values = _tensors(case.data_sets[0][0])
    return {i.name: v for i, v in zip(case.model.graph.input, values, strict=True)}


def wrong_outputs(case: Any, found: Mapping[str, Array]) -> list[str]:
    """The outputs that are missing, too many, or not as wanted: values, dtype and shape."""
    names = [o.name for o in case.model.graph.output]
    wanted = dict(zip(names, _tensors(case.data_sets[0][1]), strict=True))
    wrong = [n for n in names if n not in found or not _agrees(found[n], wanted[n], case)]
    return [*wrong, *(set(found) - set(names))]


def _tensors(values: Sequence[Any]) -> list[Array]:
    if any(isinstance(v, (list, tuple)) or v is None for v in values):
        raise UnsupportedOp("sequences and optional values")
    return [
        numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else np.asarray(v)
        for v in values
    ]


def _shapes(model: onnx.ModelProto, case: Any, values: Sequence[Array]) -> Shapes:
    left = {i.name for i in model.graph.input}
    named = zip(case.model.graph.input, values, strict=True)
    return {i.name: v.shape for i, v in named if i.name in left}


def _frozen(proto: onnx.ModelProto, values: Sequence[Array]) -> onnx.ModelProto:
    """Operands that decide shapes as weights, as they come in real models."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.input[:]
    for i, (info, value) in enumerate(zip(proto.graph.input, values, strict=True)):
        if value.dtype.kind in "iub" or (value.size <= 16 and (i or not value.ndim)):
            made.graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            made.graph.input.append(info)
    return made


def _agrees(ours: Array, theirs: Array, case: Any) -> bool:
    """ONNX computes some wanted halves with a rounding after each step, some without any: results
    may differ by two units in the last place."""
    unit = HALF.get(theirs.dtype.name, 0.0)
    rtol, atol = max(case.rtol, 2 * unit), max(case.atol, unit / 8)
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return False
    return np.allclose(
        ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True
    )

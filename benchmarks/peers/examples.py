"""Where the models of a case lie, and inputs that look like real ones.

Input: a case's work, the folder of models.  Output: its ONNX file, example inputs, sizes of named
dimensions.  Needs NumPy and onnx only, so that exporters can read it in environments of their own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.peers.cases import Model
from benchmarks.peers.operands import Arrays

EXPORTERS = ("", "-dynamo", "-sdpa-dynamo", "-torchscript", "-sdpa-torchscript")
#: Smaller than every vocabulary among the models.
TOKENS = (3, 20_000)


def model_file(work: Model, models: Path) -> Path | None:
    """The ONNX file, whichever exporter made it; None if there is none."""
    paths = (models / f"{work.stem}{exporter}.onnx" for exporter in EXPORTERS)
    return next((path for path in paths if path.exists()), None)


def example(model: onnx.ModelProto, length: int) -> Arrays:
    """Inputs that look like real ones: tokens, masks of ones, normally distributed values."""
    source = np.random.default_rng(7)
    constants = {i.name for i in model.graph.initializer}
    made = {}
    for info in model.graph.input:
        if info.name in constants:
            continue
        kind = info.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = tuple(_size(d, length) for d in kind.shape.dim)
        if dtype.kind == "f":
            made[info.name] = source.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b" or "mask" in info.name:
            made[info.name] = np.ones(shape, dtype)
        elif "position" in info.name:
            made[info.name] = np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
        elif "type" in info.name:
            made[info.name] = np.zeros(shape, dtype)
        else:
            made[info.name] = source.integers(*TOKENS, shape).astype(dtype)
    return made


def named_sizes(model: onnx.ModelProto, length: int) -> dict[str, int]:
    """The sizes of the dimensions that the file only names."""
    dims = [d for info in model.graph.input for d in info.type.tensor_type.shape.dim]
    return {d.dim_param: _size(d, length) for d in dims if d.dim_param}


def _size(dim: onnx.TensorShapeProto.Dimension, length: int) -> int:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return 1 if "batch" in dim.dim_param else length

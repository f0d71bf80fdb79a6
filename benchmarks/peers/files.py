"""The files of a case: ONNX, Tilewright's bundle, operands as raw bytes, onnxruntime's answer.

Input: a case, the folder of models.  Output: a folder that the server gives to the pages, and the
expected outputs.  Bundles are made anew only when the compiler or the model has changed.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.dtypes import BY_NUMPY
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model

from .cases import Add, Case, Conv, Matmul, Model
from .operands import Array, Arrays, operands

BUILD = Path(__file__).parents[2] / "build" / "peers"
EXPORTERS = ("", "-dynamo", "-sdpa-dynamo", "-torchscript", "-sdpa-torchscript")
OPSET = 17
#: Smaller than every vocabulary among the models.
TOKENS = (3, 20_000)


class Absent(Exception):
    """Why a case cannot be measured here."""


@dataclass
class Files:
    """What was made for a case.

    folder:   the served folder; onnx: the model inside it or elsewhere
    task:     what a page needs to know, less the addresses
    expected: onnxruntime's outputs
    missing:  per kind of file ("bundle", "tflite") why it is not there
    """

    case: Case
    folder: Path
    onnx: Path
    inputs: Arrays
    expected: Arrays
    task: dict[str, Any]
    flops: int
    missing: dict[str, str] = field(default_factory=dict)


def prepared(case: Case, models: Path) -> Files:
    """Everything that the engines need for `case`; Absent if its model is not there."""
    folder = BUILD / case.name
    folder.mkdir(parents=True, exist_ok=True)
    work = case.work
    if isinstance(work, Model):
        path, constants = _model_file(work, models), {}
        model = onnx.load(path, load_external_data=False)
        inputs, dims = example(model, work.length), named_sizes(model, work.length)
    else:
        (inputs, constants), dims = operands(work), {}
        path = folder / "case.onnx"
        onnx.save(onnx_of(case.name, work, constants), path)
    made = Files(case, folder, path, inputs, {}, {}, case.flops)
    made.expected = _expected(path, inputs)
    _bundle(made)
    tflite = _tflite(case, models)
    if tflite is None:
        made.missing["tflite"] = f"no {_tflite_name(case)} (benchmarks/export/tflite.py makes it)"
    made.task = {
        "name": case.name,
        "op": work.op,
        "conv": vars(work) if isinstance(work, Conv) else None,
        "dims": dims,
        "inputs": [_described(folder, name, value) for name, value in inputs.items()],
        "constants": [_described(folder, name, value) for name, value in constants.items()],
        "outputs": list(made.expected),
    }
    _link(folder / "model.onnx", path)
    if tflite is not None:
        _link(folder / "model.tflite", tflite)
    return made


# ---- kernels -------------------------------------------------------------------------------------


def onnx_of(name: str, work: Matmul | Conv | Add, constants: Arrays) -> onnx.ModelProto:
    """One node, as ONNX."""
    names = ["x", "w", *(["b"] if "b" in constants else [])]
    if isinstance(work, Conv):
        node = helper.make_node(
            "Conv", names, ["y"], strides=[work.stride] * 2, pads=[work.pad] * 4, group=work.groups
        )
    else:
        node = helper.make_node({"matmul": "MatMul", "add": "Add"}[work.op], names, ["y"])
    shapes = {"x": work.x, "w": work.w}
    graph = helper.make_graph(
        [node],
        name,
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
            for n, shape in shapes.items()
            if n not in constants
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, work.y)],
        [numpy_helper.from_array(value, n) for n, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


# ---- models --------------------------------------------------------------------------------------


def _model_file(work: Model, models: Path) -> Path:
    for exporter in EXPORTERS:
        path = models / f"{work.stem}{exporter}.onnx"
        if path.exists():
            return path
    raise Absent(f"no {work.stem}.onnx in the folder of models")


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


# ---- what the engines read -----------------------------------------------------------------------


def _expected(path: Path, inputs: Arrays) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@cache
def _compiler() -> str:
    """A digest of the compiler's source."""
    root = Path(tilewright.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def _bundle(made: Files) -> None:
    """Tilewright's bundle for exactly these shapes; its flops count for all engines."""
    folder, stamp = made.folder / "bundle", made.folder / "bundle.stamp"
    status = made.onnx.stat()
    wanted = f"{_compiler()} {status.st_size} {status.st_mtime_ns}"
    if made.onnx.parent == made.folder:
        wanted = f"{_compiler()} {hashlib.sha256(made.onnx.read_bytes()).hexdigest()}"
    try:
        if not (stamp.exists() and stamp.read_text() == wanted):
            shutil.rmtree(folder, ignore_errors=True)
            shapes = {name: value.shape for name, value in made.inputs.items()}
            write(compile_model(made.onnx, Options(shapes=shapes)).contents, folder)
            stamp.write_text(wanted)
        plan = open_bundle(folder).manifest.plans[-1]
        made.flops = made.case.flops or sum(step.flops for step in plan.steps)
    except Exception as error:
        # The other engines are measured all the same; the table says what is missing here.
        stamp.unlink(missing_ok=True)
        made.missing["bundle"] = f"{type(error).__name__}: {error}"


def _tflite_name(case: Case) -> str:
    return f"{case.work.stem if isinstance(case.work, Model) else case.name}.tflite"


def _tflite(case: Case, models: Path) -> Path | None:
    path = models / "tflite" / _tflite_name(case)
    return path if path.exists() else None


def _described(folder: Path, name: str, value: Array) -> dict[str, Any]:
    """The tensor as raw bytes in the folder: as it is, and channels-last if it is a picture."""
    file = f"{name.replace('/', '_').replace(':', '_')}.bin"
    _store(folder / file, value)
    facts = {"name": name, "dtype": BY_NUMPY[value.dtype.name].name, "shape": list(value.shape)}
    if value.ndim == 4:
        # activations NCHW to NHWC, filters OIHW to HWIO
        last = value.transpose((2, 3, 1, 0) if name == "w" else (0, 2, 3, 1))
        _store(folder / f"last_{file}", last)
        facts |= {"last": {"file": f"last_{file}", "shape": list(last.shape)}}
    return facts | {"file": file}


def _store(path: Path, value: Array) -> None:
    path.write_bytes(np.ascontiguousarray(value).tobytes())


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target.resolve())

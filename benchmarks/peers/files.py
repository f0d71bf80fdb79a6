"""The files of a case: ONNX, Tilewright's bundle, operands as raw bytes, onnxruntime's answer.

Input: a case, the folder of models.  Output: a folder that the server gives to the pages, and the
expected outputs.  Bundles are made again only when the compiler or the model has changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright
from benchmarks.common import BUILD
from benchmarks.peers import attention, fixed
from benchmarks.peers.cases import Attention, Case, Conv, Kernel, Matmul, Model
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.examples import example, model_file, named_sizes
from benchmarks.peers.operands import Array, Arrays, operands
from benchmarks.records import Row
from tilewright.base.dtypes import BY_NUMPY
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.targets import DEFAULT

MADE = BUILD / "peers"
OPSET = 17
TFJS_FILES = ("model.json", "weights.bin")


class Absent(Exception):
    """Why a case cannot be measured here."""


@dataclass
class Files:
    """What was made for a case.

    folder:   the served folder; onnx: the model inside it or elsewhere
    task:     what a page needs to know, less the addresses
    expected: onnxruntime's outputs
    missing:  per kind of file ("bundle", "tflite", "tfjs", "fixed.onnx") why it is not there
    dims:     sizes of the dimensions that the model only names
    """

    case: Case
    folder: Path
    onnx: Path
    inputs: Arrays
    expected: Arrays
    task: Row
    flops: int
    missing: dict[str, str] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)

    def tolerance(self, engine: str) -> float:
        own = engine in ENGINES and ENGINES[engine].needs == "tflite"
        return self.case.requantised if own and self.case.requantised else self.case.tolerance


def prepared(
    case: Case, models: Path, kinds: Collection[str], targets: Sequence[str] = DEFAULT
) -> Files:
    """What `kinds` of engines need for `case`; Absent if its model is not there."""
    folder = MADE / "-".join(targets) / case.name
    folder.mkdir(parents=True, exist_ok=True)
    work, constants, served = case.work, Arrays(), folder / "model.onnx"
    if isinstance(work, Model):
        found = model_file(work, models)
        if found is None:
            raise Absent(f"no {work.stem}.onnx in the folder of models")
        path = found
        model = onnx.load(path, load_external_data=False)
        inputs, dims = example(model, work.length), named_sizes(model, work.length)
    else:
        (inputs, constants), dims = operands(work), {}
        path = folder / "case.onnx"
        onnx.save(onnx_of(case.name, work, constants), path)
    served.unlink(missing_ok=True)
    if isinstance(work, Attention) and work.node:
        onnx.save(attention.as_one_node(work), served)
    else:
        _link(served, path)
    made = Files(case, folder, path, inputs, {}, {}, case.flops, dims=dims)
    made.expected = _expected(path, inputs)
    stamped(made, "bundle", _compiler(), partial(_write_bundle, targets))
    if "bundle" not in made.missing:
        plan = open_bundle(folder / "bundle").manifest.plans[-1]
        made.flops = case.flops or sum(step.flops for step in plan.steps)
    if isinstance(work, Model) and "fixed.onnx" in kinds:
        stamped(made, "fixed.onnx", source(Path(fixed.__file__)), _write_fixed)
    if isinstance(work, Model):
        _links(made, "tfjs", {n: models / "tfjs" / work.stem / n for n in TFJS_FILES})
    name = f"{work.stem if isinstance(work, Model) else case.name}.tflite"
    _links(made, "tflite", {"model.tflite": models / "tflite" / name})
    made.task = {
        "name": case.name,
        "op": work.op,
        "sizes": vars(work) if isinstance(work, Conv | Attention) else None,
        "dims": dims,
        "inputs": [_described(folder, name, value) for name, value in inputs.items()],
        "constants": [_described(folder, name, value) for name, value in constants.items()],
        "outputs": list(made.expected),
        "results": [_facts(name, value) for name, value in made.expected.items()],
    }
    return made


# ---- kernels -------------------------------------------------------------------------------------


def onnx_of(name: str, work: Kernel, constants: Arrays) -> onnx.ModelProto:
    """One node as ONNX, or the nodes of an attention."""
    if isinstance(work, Attention):
        return attention.written_out(work)
    names = ["x", "w", *(["b"] if "b" in constants else [])]
    if isinstance(work, Conv):
        node = helper.make_node(
            "Conv", names, ["y"], strides=[work.stride] * 2, pads=[work.pad] * 4, group=work.groups
        )
    else:
        node = helper.make_node({"matmul": "MatMul", "add": "Add"}[work.op], names, ["y"])
    shapes = {"x": work.x, "w": work.w}
    halves = isinstance(work, Matmul) and work.halves
    kind = TensorProto.FLOAT16 if halves else TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        name,
        [
            helper.make_tensor_value_info(n, kind, shape)
            for n, shape in shapes.items()
            if n not in constants
        ],
        [helper.make_tensor_value_info("y", kind, work.y)],
        [numpy_helper.from_array(value, n) for n, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


# ---- what the engines read -----------------------------------------------------------------------


def _expected(path: Path, inputs: Arrays) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@cache
def source(*paths: Path) -> str:
    """A digest of source files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()


def _compiler() -> str:
    return source(*sorted(Path(tilewright.__file__).parent.rglob("*.py")))


def stamped(made: Files, name: str, by: str, make: Callable[[Files, Path], None]) -> None:
    """A file or folder of the case, made again if model, sizes or maker `by` has changed."""
    target, stamp = made.folder / name, made.folder / f"{name}.stamp"
    status = made.onnx.stat()
    wanted = f"{by} {status.st_size} {status.st_mtime_ns} {_sizes(made)}"
    if made.onnx.parent == made.folder:  # a kernel's, which has fixed sizes
        wanted = f"{by} {hashlib.sha256(made.onnx.read_bytes()).hexdigest()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    try:
        make(made, target)
        stamp.write_text(wanted)
    except Exception as error:
        # The other engines are still measured; the table shows what is missing.
        stamp.unlink(missing_ok=True)
        made.missing[name] = f"{type(error).__name__}: {error}"


def _sizes(made: Files) -> str:
    """The sizes of a model: the shapes of its inputs, and its named dimensions."""
    shapes = {name: value.shape for name, value in made.inputs.items()}
    return json.dumps([shapes, made.dims], sort_keys=True)


def _write_bundle(targets: Sequence[str], made: Files, folder: Path) -> None:
    """Tilewright's bundle for exactly these shapes; its flops count for all engines."""
    shutil.rmtree(folder, ignore_errors=True)
    shapes = {name: value.shape for name, value in made.inputs.items()}
    options = Options(shapes=shapes, targets=tuple(targets))
    write(compile_model(made.onnx, options).contents, folder)


def _write_fixed(made: Files, target: Path) -> None:
    fixed.write_fixed(made.onnx, target, made.dims)


def _links(made: Files, kind: str, files: Mapping[str, Path]) -> None:
    """Files that an exporter made, under the names that the page asks for."""
    if absent := [path for path in files.values() if not path.exists()]:
        made.missing[kind] = f"no {absent[0].name} of that model: see benchmarks/export/README.md"
        return
    for name, target in files.items():
        _link(made.folder / name, target)


def _described(folder: Path, name: str, value: Array) -> Row:
    """Writes the tensor as raw bytes: as it is, and channels-last if it is an image."""
    file = f"{name.replace('/', '_').replace(':', '_')}.bin"
    _store(folder / file, value)
    facts = _facts(name, value)
    if value.ndim == 4:
        # activations NCHW to NHWC, filters OIHW to HWIO
        last = value.transpose((2, 3, 1, 0) if name == "w" else (0, 2, 3, 1))
        _store(folder / f"last_{file}", last)
        facts |= {"last": {"file": f"last_{file}", "shape": list(last.shape)}}
    return facts | {"file": file}


def _facts(name: str, value: Array) -> Row:
    dtype = "f16" if value.dtype == np.float16 else BY_NUMPY[value.dtype.name].name
    return {"name": name, "dtype": dtype, "shape": list(value.shape)}


def _store(path: Path, value: Array) -> None:
    path.write_bytes(np.ascontiguousarray(value).tobytes())


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target.resolve())

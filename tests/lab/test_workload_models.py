"""Models of the workloads: as large as published, and right as CUDA kernels, in small.

Kernels run on the CPU, as the target makes them and as simple ones on purpose, against onnxruntime.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from test_cuda_elastic import Case

from lab.naive import naive
from lab.workloads.models import MODELS, model
from tilewright.base.errors import InputError, UsageError
from tilewright.bundle import write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.targets import target

PLAIN, SIMPLE = (Options(targets=("cuda",), schedule=s) for s in (None, naive(target("cuda"))))
#: Of the largest output: sums of a few thousand products of f32, in another order.
TOLERANCE = 1e-5

#: Millions of parameters as their authors or torchvision and transformers have them.
PARAMETERS = {
    "SqueezeNet": 1.235, "ResNet-18": 11.69, "ResNet-50": 25.56, "DenseNet-121": 7.98,
    "Inception-v3": 23.83, "MobileNetV2": 3.50,
}  # fmt: skip
LARGE = {
    "AlexNet": 61.10, "VGG-16": 138.36, "VGG-19": 143.67, "ResNet-152": 60.19,
    "DenseNet-201": 20.01, "BERT-base": 109.5, "DistilBERT": 66.4,
}  # fmt: skip

#: By day these, which have every kind of layer but depthwise ones and inception blocks.
BY_DAY = ("CifarNet", "VGG-16", "ResNet-50", "GRU", "LSTM", "BERT-base")
SIMPLE_BY_DAY = ("CifarNet", "LSTM")


def _marked(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(n, marks=() if n in names else pytest.mark.nightly) for n in MODELS]


def _parameters(proto: onnx.ModelProto) -> float:
    return sum(prod(w.dims) for w in proto.graph.initializer) / 1e6


@pytest.mark.parametrize(
    "name", [*PARAMETERS, *(pytest.param(n, marks=pytest.mark.nightly) for n in LARGE)]
)
def test_as_large_as_published(name: str) -> None:
    # folded normalizations have one number less per channel, those that stay two more
    assert _parameters(model(name)) == pytest.approx((PARAMETERS | LARGE)[name], rel=0.015)


@pytest.mark.parametrize("name", MODELS)
def test_shapes_are_those_that_onnx_infers(name: str) -> None:
    proto = MODELS[name].build_small()
    onnx.checker.check_model(proto)
    (said,) = proto.graph.output
    silent = onnx.ModelProto()
    silent.CopyFrom(proto)
    silent.graph.output[0].type.tensor_type.ClearField("shape")
    (found,) = onnx.shape_inference.infer_shapes(silent, strict_mode=True).graph.output
    assert said == found


def test_the_same_name_gives_the_same_bytes() -> None:
    for name in ("SqueezeNet", "GRU"):
        first, second = (MODELS[name].build_small() for _ in range(2))
        assert first.SerializeToString() == second.SerializeToString()
    with pytest.raises(UsageError, match="SqueezeNet"):
        model("SqueezeNet-9")


def _agrees(name: str, options: Options, folder: Path) -> Compiled:
    proto = MODELS[name].build_small()
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (given,) = session.get_inputs()
    rng = np.random.default_rng(1)
    x = (
        rng.integers(0, 50, given.shape)
        if "int64" in given.type
        else rng.standard_normal(given.shape).astype(np.float32)
    )
    (want,) = session.run(None, {given.name: x})
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    compiled = compile_model(path, options)
    write(compiled.contents, folder / "bundle")
    (got,) = CudaHost(folder / "bundle", CpuDevice(1)).run({given.name: x}).outputs.values()
    largest = np.abs(want).max()
    assert largest > 0.05, "the output says nothing"
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * largest)
    return compiled


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", _marked(BY_DAY))
def test_as_cuda_kernels(name: str, tmp_path: Path) -> None:
    _agrees(name, PLAIN, tmp_path)


@pytest.mark.parametrize("name", _marked(SIMPLE_BY_DAY))
def test_as_simple_kernels(name: str, tmp_path: Path) -> None:
    """One thread for each output, nothing staged."""
    compiled = _agrees(name, SIMPLE, tmp_path)
    for code in compiled.codes:
        assert code.loops.threads == 1
        assert not code.loops.thread


@pytest.mark.nightly
def test_simple_kernels_leave_and_are_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(MODELS["CifarNet"].build_small().SerializeToString())
    write(compile_model(path, SIMPLE).contents, tmp_path / "bundle")
    case = Case(tmp_path / "bundle", CpuDevice(2))
    assert case.run(lambda _: 19) > 1


def test_long_reductions_are_one_thread_s_too(tmp_path: Path) -> None:
    """Which the target's default shares out."""
    path = tmp_path / "model.onnx"
    path.write_bytes(MODELS["SqueezeNet"].make(size=79, shrink=8).SerializeToString())
    assert max(c.loops.threads for c in compile_model(path, PLAIN).codes) > 1
    assert {c.loops.threads for c in compile_model(path, SIMPLE).codes} == {1}


def test_targets_without_such_kernels_say_so() -> None:
    for name in ("wasm", "c"):
        with pytest.raises(InputError):
            naive(target(name))
    assert naive(target("wgsl"))

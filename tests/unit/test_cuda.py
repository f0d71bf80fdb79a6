"""CUDA: NVIDIA's own compiler takes every kind of kernel, and the host says what is missing.

What kernels compute is checked on the CPU by the conformance suite (host `cuda-cpu`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_call import Called
from helpers.attention import VARIANTS
from helpers.blocks import CASES, made
from helpers.graphs import steps_of
from helpers.integers import quantised_graph
from onnx import TensorProto
from test_cli_models import WEIGHT, save_inputs, save_model
from test_gpu_halves import a_product

from lab.subjects import matmul, product_kernel
from tilewright.base.errors import HostError, MemoryLimit
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.graph.passes import optimise
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import SETTLE, CpuDevice, DeviceMemory, NvidiaDevice
from tilewright.hosts.cuda_driver import compiled
from tilewright.kernel.spec import Kernel
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.cuda.strategies import TENSOR_CORES
from tilewright.targets.cuda.target import Cuda
from tilewright.targets.gpu.product.schedule import RegisterGemmSchedule
from tilewright.targets.gpu.product.strategies import FEW_ROWS, INTEGER_GEMM
from tilewright.targets.protocol import PACKING

CUDA = Cuda()
Capture = pytest.CaptureFixture[str]


def _of_bits(bits: int) -> Kernel:
    name = next(n for n, c in CASES.items() if c.bits == bits and min(c.rows, c.columns) >= 4)
    *_, step = steps_of(optimise(made(name)[0], PACKING))
    return step.kernel


def _of_bytes() -> Kernel:
    for seed in range(40):
        for step in steps_of(optimise(quantised_graph(seed)[0], PACKING)):
            if INTEGER_GEMM.suits(step.kernel):
                return step.kernel
    raise AssertionError("no seed has a product of bytes")


def _attention() -> Kernel:
    steps = steps_of(optimise(VARIANTS["bert"](), PACKING))
    return next(s.kernel for s in steps if CUDA.strategy_of(s.kernel) not in (None, FEW_ROWS))


KERNELS: dict[str, Callable[[], Kernel]] = {
    "product": lambda: product_kernel("mk,kn->mn", (70, 40), (40, 50), weight=True),
    "few rows": lambda: product_kernel("mk,kn->mn", (2, 512), (512, 96), weight=True),
    "batches": lambda: product_kernel("bmk,bkn->bmn", (3, 20, 24), (3, 24, 28), weight=False),
    "4 bits": lambda: _of_bits(4),
    "8 bits": lambda: _of_bits(8),
    "bytes": _of_bytes,
    "attention": _attention,
}


@pytest.fixture(scope="module")
def nvrtc() -> Callable[[str, str], bytes]:
    """NVIDIA's compiler."""
    try:
        compiled('extern "C" __global__ void k() {}', ["--gpu-architecture=compute_75"])
    except HostError as error:
        pytest.skip(str(error))
    return lambda text, architecture: compiled(text, [f"--gpu-architecture={architecture}"])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("architecture", ["compute_75", "sm_90"])
def test_nvidias_compiler_takes_the_text(
    nvrtc: Callable[[str, str], bytes], name: str, architecture: str
) -> None:
    kernel = KERNELS[name]()
    code = CUDA.code(kernel, CUDA.default(kernel, CUDA.variant.name))
    assert code.loops.thread, "it was to be computed by a group"
    assert b"k" in nvrtc(prelude() + str(code.body), architecture)


@pytest.mark.parametrize("architecture", ["compute_75", "sm_90"])
def test_nvidias_compiler_takes_the_kernel_that_sets_budgets(
    nvrtc: Callable[[str, str], bytes], architecture: str
) -> None:
    assert b"k" in nvrtc(SETTLE, architecture)


def test_a_wrong_text_is_an_error(nvrtc: Callable[[str, str], bytes]) -> None:
    with pytest.raises(HostError, match="missing"):
        nvrtc("__global__ void k() { missing(); }", "sm_90")


def test_where_there_is_no_gpu_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(HostError, match=r"CUDA|bindings") as raised:
        NvidiaDevice()
    assert raised.value.hint


@pytest.mark.seldom(4)
def test_run(capsys: Capture, tmp_path: Path) -> None:
    model = save_model(tmp_path / "tiny.onnx")
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    files = ("--inputs", save_inputs(tmp_path / "in.npz", x=x), "--outputs", tmp_path / "out.npz")
    called = Called(capsys, "run", model, "--host", "cuda-cpu", "--buckets", "n=4,16", *files)
    assert called.code == 0, called.err
    found = np.load(tmp_path / "out.npz")["y"]
    np.testing.assert_allclose(found, np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)


class _Small(CpuDevice):
    """A GPU without room."""

    def memory(self, size: int) -> DeviceMemory:
        raise MemoryLimit("no room", bytes=size)


def _bundle(folder: Path) -> Path:
    write(matmul(40, 24, 48, Options(targets=("cuda",))).contents, folder)
    return folder


def test_a_model_larger_than_the_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemoryLimit):
        CudaHost(_bundle(tmp_path), _Small())


def test_a_schedule_of_another_target_is_refused() -> None:
    kernel = KERNELS["product"]()
    assert not CUDA.objection(kernel, RegisterGemmSchedule())
    assert CUDA.objection(kernel, RegisterGemmSchedule(x1=1024, y1=1024))


def test_recordings_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = CudaHost(_bundle(tmp_path), CpuDevice())
    made: list[int] = []
    record = host.device.record
    monkeypatch.setattr(host.device, "record", lambda x: made.append(len(x)) or record(x))
    name = host.bundle.manifest.inputs[0].name
    x = np.ones((40, 24), np.float32)
    first, second = (host.run({name: x}).outputs for _ in range(2))
    assert made == [1]
    for one, other in zip(first.values(), second.values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("asked", [False, True])
def test_f32_by_matrix_units_is_asked_for(asked: bool) -> None:
    model = load(a_product(TensorProto.FLOAT, np.ones((64, 64), np.float32)))
    made = compile_model(model, Options(targets=("cuda",), tf32=asked))
    assert [TENSOR_CORES.suits(kernel) for kernel in made.program.kernels] == [asked]

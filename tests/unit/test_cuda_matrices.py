"""Matrix units of NVIDIA's GPUs: copies ahead, the texts on the CPU, their second form, the choice.

Random products; float64 is the judge of what may be rounded, and whole numbers of what may not.
NVIDIA's compiler takes all texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers.gpu import on_cpu
from helpers.graphs import interpret, run_steps, steps_of
from helpers.looks import growing
from helpers.loop_check import check_loops
from helpers.seeds import seeds
from test_cli_models import save_model
from test_cuda import CUDA
from test_cuda import nvrtc as nvrtc
from test_cuda_elastic import Case

from lab.subjects import compile_graph, weight_of
from tilewright.base.dtypes import F32, I8, I16, U8
from tilewright.base.errors import CompilerBug, UsageError
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.fusion.f16_operands import reading_f16
from tilewright.graph import ops
from tilewright.graph.node import Graph, cast, contract, evaluate, graph_input, node
from tilewright.graph.passes import optimise
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.kernel.layout import Packing
from tilewright.kernel.loops import Barrier, EndProducts, For, If, Stmt, WaitForCopies
from tilewright.kernel.spec import Kernel
from tilewright.targets.cuda import clock_model
from tilewright.targets.cuda.elastic import elastic
from tilewright.targets.cuda.features import MMA_SIZES
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.cuda.strategies import TENSOR_CORES
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.tile.addressing import operands
from tilewright.targets.protocol import PACKING, Variant
from tilewright.targets.schedule import Schedule
from tilewright.targets.ticket_protocol import TURNS
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()

#: Rows, steps and columns: whole tiles, and tiles that reach beyond the ends.
SIZES = [(32, 64, 32), (37, 48, 40), (18, 144, 16)]
TYPES = ("f16-f32", "tf32-f32", "u8-i32")


def product_of(types: str, m: int, k: int, n: int) -> Graph:
    if types in ("u8-i32", "i8-i32"):
        x = graph_input("x", (m, k), U8)
        value = np.random.default_rng(0).integers(-128, 128, (k, n), np.int8)
        weight = node(ops.Weight("w", (k, n), I8, lambda: value))
        y = contract("mk,kn->mn", cast(x, I16), cast(weight, I16))
        return Graph("product", (("x", x),), (("y", y),))
    x = graph_input("x", (m, k), F32)
    bits, loose = (16, "") if types == "f16-f32" else (32, "tf32")
    y = contract("mk,kn->mn", x, weight_of((k, n), 0, bits, loose=loose))
    return Graph("product", (("x", x),), (("y", y),))


def inputs_of(types: str, m: int, k: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if types in ("u8-i32", "i8-i32"):
        return rng.integers(0, 256, (m, k), np.uint8)
    return rng.standard_normal((m, k), np.float32)


def check(types: str, graph: Graph, x: np.ndarray, got: np.ndarray) -> None:
    """Both operands have 11 bits; bytes are exact."""
    ((_, y),) = graph.outputs
    (weight,) = evaluate([y.inputs[1]])
    want = x.astype(np.float64) @ weight.astype(np.float64)
    if types in ("u8-i32", "i8-i32"):
        np.testing.assert_array_equal(got, want)
        return
    size = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64))
    assert (np.abs(got - want) <= 2.0**-10 * size + 1e-6).all()
    assert types == "f16-f32" or (got != (x @ weight)).any(), "nothing was rounded"


def kernel_of(graph: Graph) -> Kernel:
    """The product; of halves its rows lie as such."""
    (step,) = steps_of(optimise(graph, PACKING))
    return _halved(step.kernel)


def _halved(kernel: Kernel) -> Kernel:
    found = operands(kernel)
    weights = kernel.buffers[found.col.buffer]
    return reading_f16(kernel, found.row.buffer) if weights.as_f16 else kernel


def pick(rng: Random, types: str, kernel: Kernel, stages: tuple[int, ...]) -> MatrixGemmSchedule:
    """Any schedule of so many stages."""
    for _ in range(1000):
        m, n, k = map(int, rng.choice(MMA_SIZES[types]).split("x"))
        rows, columns, down, along, slices = (rng.choice((1, 1, 2)) for _ in range(5))
        s = MatrixGemmSchedule(
            types, m, n, k, 32, rows, columns, down, along, slices * rng.choice((1, 2)),
            slices=slices, stages=rng.choice(stages),
        )  # fmt: skip
        if not CUDA.objection(kernel, s):
            return s
    raise AssertionError(CUDA.objection(kernel, s))


Buffers = list[np.ndarray[Any, Any]]


def by_loops(kernel: Kernel, schedule: MatrixGemmSchedule, buffers: Buffers) -> None:
    """In the interpreter, which knows what has not come yet."""
    fn = CUDA.lower(kernel, schedule)
    check_loops(fn)
    interpret(fn, buffers)


def by_text(kernel: Kernel, schedule: MatrixGemmSchedule, buffers: Buffers) -> None:
    """By the system's compiler of C++."""
    on_cpu(CUDA.code(kernel, schedule), buffers)


def computed(
    run: Callable[[Kernel, MatrixGemmSchedule, Buffers], None],
    types: str,
    sizes: tuple[int, int, int],
    choose: Callable[[Kernel], MatrixGemmSchedule],
    packing: Packing = PACKING,
    turned: bool = False,
) -> None:
    """A product, run and compared.  turned: its rows lie side by side in memory"""
    m, k, n = sizes
    graph, x = product_of(types, m, k, n), inputs_of(types, m, k)
    given = graph
    if turned:
        rows = graph_input("x", (k, m), F32)
        y = contract("km,kn->mn", rows, graph.outputs[0][1].inputs[1])
        given = Graph("turned", (("x", rows),), (("y", y),))

    def execute(kernel: Kernel, buffers: Buffers) -> None:
        made = _halved(kernel)
        run(made, choose(made), buffers)

    packed = optimise(given, packing)
    values = {"x": np.ascontiguousarray(x.T) if turned else x}
    (got,) = run_steps(packed, steps_of(packed), values, execute)
    check(types, graph, x, got)


RUNS = pytest.mark.parametrize("run", [by_loops, by_text])


@pytest.mark.one_in(3)
@RUNS
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("seed", seeds(2, nightly=20))
def test_copied_ahead(run: Any, types: str, seed: int) -> None:
    rng, sizes = Random(f"ahead {types} {seed}"), SIZES[seed % len(SIZES)]
    computed(run, types, sizes, lambda kernel: pick(rng, types, kernel, (2, 3, 4)))


@RUNS
@pytest.mark.parametrize("types", ["f16-f32", "i8-i32"])
def test_by_way_of_registers(run: Any, types: str) -> None:
    rng = Random(f"registers {types}")
    computed(run, types, (37, 48, 40), lambda kernel: pick(rng, types, kernel, (1,)))


def changed(stmts: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...]]) -> Any:
    """Statements, each replaced by others."""
    made: list[Stmt] = []
    for s in stmts:
        match s:
            case For():
                made.append(replace(s, body=changed(s.body, change)))
            case If():
                then, orelse = changed(s.then, change), changed(s.orelse, change)
                made.append(replace(s, then=then, orelse=orelse))
            case _:
                made += change(s)
    return tuple(made)


MISTAKES: dict[str, Callable[[Stmt], tuple[Stmt, ...]]] = {
    "is not there yet": lambda s: () if isinstance(s, WaitForCopies) else (s,),
    "races with": lambda s: (Barrier(near=True),) if isinstance(s, Barrier) else (s,),
    "stored before": lambda s: () if isinstance(s, EndProducts) else (s,),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_the_interpreter_sees_mistakes(said: str) -> None:
    """A wait that is missing, a barrier that not all wait at, results that are not there."""
    kernel = kernel_of(product_of("f16-f32", 64, 128, 64))
    groups = said == "stored before"
    schedule = MatrixGemmSchedule("f16-f32", 16, 16, 16, 32, 1, 1, 2, 2, 1, stages=2)
    if groups:
        schedule = MatrixGemmSchedule("f16-f32", 64, 64, 16, 128, 1, 1, 1, 1, 4, stages=2)
    fn = CUDA.lower(kernel, schedule)
    buffers = [np.zeros(b.size, b.dtype.numpy) for b in kernel.buffers]
    interpret(fn, buffers, [0])
    with pytest.raises(CompilerBug, match=said):
        interpret(replace(fn, body=changed(fn.body, MISTAKES[said])), buffers, [0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("types", MMA_SIZES)
@pytest.mark.parametrize("architecture", ["compute_75", "sm_80", "sm_86", "sm_90"])
def test_nvidias_compiler_takes_the_texts(
    nvrtc: Callable[[str, str], bytes], types: str, architecture: str
) -> None:
    kernel = kernel_of(product_of(types, 64, 128, 64))
    able = {"f16-f32": (1, 3), "i8-i32": (1,)}.get(types, (2,))
    for stages in able if architecture != "compute_75" else set(able) - {2, 3}:
        code = CUDA.code(kernel, pick(Random(stages), types, kernel, (stages,)))
        assert nvrtc(prelude() + str(code.body), architecture)
        assert nvrtc(prelude() + TURNS + elastic(code.loops).text, architecture)


#: Rows, steps and columns of a bundle's product: rows of halves are copied from so many on.
LARGER = {"f16-f32": (64, 128, 1024), "tf32-f32": (64, 128, 64), "u8-i32": (64, 1024, 64)}


def bundle(folder: Path, types: str) -> Path:
    made = compile_graph(product_of(types, *LARGER[types]), Options(targets=("cuda",)))
    write(made.contents, folder)
    return folder


class Compiling(CpuDevice):
    """Keeps the texts that it compiles."""

    texts: tuple[str, ...] = ()

    def compile(self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()) -> Any:
        self.texts += tuple(texts)
        return super().compile(prelude, texts, shared)


@pytest.mark.seldom(4)
@pytest.mark.parametrize("types", TYPES)
def test_the_host_takes_what_the_device_has(types: str, tmp_path: Path) -> None:
    """An old device computes the same without; each of them compiles what it runs alone."""
    path, x = bundle(tmp_path, types), inputs_of(types, *LARGER[types][:2])
    graph, found = product_of(types, *LARGER[types]), dict[tuple[int, int], int]()
    for capability in ((7, 0), (7, 5), (8, 0), (9, 0)):
        host = CudaHost(path, device := Compiling(capability=capability))
        (name,) = (i.name for i in host.bundle.manifest.inputs)
        (got,) = host.run({name: x}).outputs.values()
        (_, launch) = host.steps(-1, [])[-1]
        found[capability] = launch.shared
        text = "".join(device.texts)
        assert ("multiply<" in text) == (capability >= ((8, 0) if types == "tf32-f32" else (7, 5)))
        assert ("copy_ahead" in text) == (capability >= (8, 0))
        if "multiply<" in text:
            check(types, graph, x, got)
    assert found[7, 0] == found[7, 5] == 0


#: With copies ahead, by way of registers, by slices of the depth, by warp groups.
LEFT = (
    MatrixGemmSchedule("f16-f32", 16, 16, 16, 32, 2, 4, 2, 2, 2, stages=3),
    MatrixGemmSchedule("f16-f32", 64, 128, 16, 128, 1, 1, 1, 2, 4, stages=2),
    MatrixGemmSchedule("tf32-f32", 16, 8, 8, 32, 1, 2, 2, 2, 2, stages=4, slices=2),
    MatrixGemmSchedule("u8-i32", 16, 16, 32, 32, 2, 2, 2, 1, 1, stages=2),
    MatrixGemmSchedule("i8-i32", 16, 16, 32, 32, 1, 2, 1, 2, 1),
)
#: Rows, steps and columns: rows of halves are copied from so many columns on.
SEVERAL = {"f16-f32": (64, 320, 1024), "tf32-f32": (64, 320, 64), "u8-i32": (64, 640, 64)}


@pytest.mark.seldom(4)
@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(s, marks=pytest.mark.nightly if n in (0, 2) else (), id=f"{s.types} {s.width}")
        for n, s in enumerate(LEFT)
    ],
)
def test_left_with_sums_in_matrices(
    schedule: MatrixGemmSchedule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who goes on has the same bits, and copies what the next pass needs once more."""
    # of the one with u8 a chunk has two passes, in a loop of its own
    monkeypatch.setattr(
        clock_model, "CLOCKS", 900 if schedule.types == "u8-i32" else clock_model.LATENCY
    )

    def choose(kernel: Kernel, variant: Variant) -> Schedule:
        objection = CUDA.objection(kernel, schedule)
        return CUDA.default(kernel, variant.name) if objection else schedule

    graph = product_of(schedule.types, *SEVERAL.get(schedule.types, (64, 512, 64)))
    options = Options(targets=("cuda",), schedule=choose)
    write(compile_graph(graph, options).contents, tmp_path)
    case = Case(tmp_path, CpuDevice(2))
    (slot, launch) = case.host.steps(-1, [])[-1]
    assert (case.host.forms[slot].chunks, launch.group) >= (5, schedule.threads)
    assert "Part<" in case.host.forms[slot].text
    assert case.run(lambda _: 0) == 1
    for looks in (4, 11):
        assert case.run(growing(looks)) > 1


def test_nobody_rounds_f32_unasked() -> None:
    x = graph_input("x", (64, 64), F32)
    y = contract("mk,kn->mn", x, weight_of((64, 64), 0))
    kernel = kernel_of(Graph("product", (("x", x),), (("y", y),)))
    assert not TENSOR_CORES.suits(kernel)
    schedule = MatrixGemmSchedule("tf32-f32", 16, 16, 8, stages=2)
    assert CUDA.objection(kernel, schedule)
    loose = kernel_of(product_of("tf32-f32", 64, 64, 64))
    assert not CUDA.objection(loose, schedule)
    assert WGSL.objection(loose, schedule)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stages": 1}, "2 to 4 stages"),
        ({"stages": 5}, "2 to 4 stages"),
        ({"rows": 4, "columns": 4, "down": 2, "along": 4, "r1": 16, "stages": 4}, "shares at most"),
        ({"types": "f16-f32", "k": 16}, "cannot be f16-f32"),
    ],
)
def test_objections(change: dict[str, Any], words: str) -> None:
    kernel = kernel_of(product_of("tf32-f32", 64, 64, 64))
    schedule = replace(MatrixGemmSchedule("tf32-f32", 16, 16, 8, stages=2), **change)
    assert words in CUDA.objection(kernel, schedule)


def test_operands_that_lie_otherwise_are_not_copied() -> None:
    """An odd number of steps; rows that are to be rounded on their way."""
    kernel = kernel_of(product_of("tf32-f32", 64, 63, 64))
    schedule = MatrixGemmSchedule("tf32-f32", 16, 16, 8, stages=2)
    assert "16-byte pieces" in CUDA.objection(kernel, schedule)
    (step,) = steps_of(optimise(product_of("f16-f32", 64, 64, 64), PACKING))
    schedule = MatrixGemmSchedule("f16-f32", 16, 16, 16, stages=2)
    assert "16-byte pieces" in CUDA.objection(step.kernel, schedule)
    assert not CUDA.objection(step.kernel, replace(schedule, stages=1))


def test_the_space_has_what_the_class_has() -> None:
    kernel = kernel_of(product_of("f16-f32", 512, 512, 512))
    found = {
        name: [
            s
            for s in space_of(kernel, CLASSES[name]).schedules
            if isinstance(s, MatrixGemmSchedule)
        ]
        for name in ("cuda", "cuda-sm-75", "cuda-sm-90")
    }
    assert not found["cuda"]
    assert {s.stages for s in found["cuda-sm-75"]} == {1}
    assert {2, 3, 4} & {s.stages for s in found["cuda-sm-90"]}
    for s in (*found["cuda-sm-75"], *found["cuda-sm-90"]):
        assert not CUDA.objection(kernel, s)
        assert CUDA.schedule(s.to_json()) == s


def test_what_is_allowed_is_said_once(tmp_path: Path) -> None:
    model = save_model(tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="TF32"):
        compile_model(model, Options(targets=("cuda",), tf32=True, bytes=True))

"""What a compilation does once: what no bucket changes, and code that no variant changes.

Input: small ONNX models made here.  Output: nodes, counts and code, compared; nothing is run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import onnx
import pytest
from helpers.graphs import steps_of
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.dtypes import F32
from tilewright.compiler import Options, compile_model, paused
from tilewright.frontend import Importer, initializers, load
from tilewright.graph.node import Graph, Node, elementwise, graph_input
from tilewright.graph.passes import Passes
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import PACKING
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower
from tilewright.targets.wasm import VARIANTS, emit
from tilewright.targets.wasm.emit import compile_tiles
from tilewright.targets.wasm.lower import Lowered
from tilewright.targets.wasm.lower import lower as lower_trees
from tilewright.targets.wasm.variant import WasmVariant

NODES = [
    helper.make_node("Tanh", ["w"], ["t"]),
    helper.make_node("MatMul", ["x", "t"], ["product"]),
    helper.make_node("Exp", ["z"], ["alone"]),
    helper.make_node("Add", ["product", "alone"], ["y"]),
]


@pytest.fixture
def model() -> onnx.ModelProto:
    """y[n, 20] = x[n, 24] @ tanh(w) + exp(z): of its operands only x depends on n."""
    shapes: dict[str, Sequence[int | str]] = {"x": ("n", 24), "z": (20,)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.linspace(-1, 1, 480, dtype=np.float32).reshape(24, 20), "w")
    graph = helper.make_graph(NODES, "g", inputs, [output], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_graphs_of_several_sizes_share_what_no_size_changes(model: onnx.ModelProto) -> None:
    importer, passes = Importer(load(model)), Passes(PACKING)
    one, other = (passes.run(importer.graph({"n": n})).nodes() for n in (8, 64))
    fixed = [n for n in one if n.constant]
    assert len(fixed) > 3  # the weight, its tanh, and how the panels are made
    assert fixed == [n for n in other if n.constant]
    computed = {n.source.node for n in {*one} & {*other} if not n.constant}
    assert "alone" in computed
    assert "product" not in computed


def test_a_weight_is_read_as_often_for_many_buckets_as_for_one(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(tensor: onnx.TensorProto, *rest: object) -> np.ndarray:
        read.append(tensor.name)
        return of_file(tensor, *rest)  # type: ignore[arg-type]

    of_file = initializers.read_tensor
    monkeypatch.setattr(initializers, "read_tensor", reading)
    counts = []
    for sizes in ((8,), (8, 16, 24, 32)):
        read.clear()
        contents = compile_model(model, Options(buckets={"n": sizes})).contents
        digested = len(read)
        assert sum(map(len, contents.weights())) >= 4 * 480
        counts.append((digested, len(read)))
    assert counts[0] == counts[1]
    assert counts[0][0] == 1


def test_a_kernel_that_no_bucket_changes_is_made_once(model: onnx.ModelProto) -> None:
    compiled = compile_model(model, Options(buckets={"n": (8, 64)}))
    one, other = ({s.node: s.kernel for s in plan.steps} for plan in compiled.program.plans)
    assert one["alone"] == other["alone"]
    assert one["product"] != other["product"]


@pytest.mark.parametrize(
    ("make", "distinct"),
    [
        (partial(elementwise, "neg"), [0, 0, 0, 0]),
        (partial(elementwise, "exp"), [0, 0, 2, 2]),  # with and without multiply-add
        (lambda x: elementwise("max", x, elementwise("neg", x)), [0, 1, 0, 1]),  # by processor
    ],
)
def test_variants_share_code_that_asks_nothing_in_which_they_differ(
    make: Callable[[Node], Node], distinct: list[int]
) -> None:
    names = ("x86", "arm", "x86-simd", "arm-simd")
    kernel = kernel_of(make(graph_input("x", (64,), F32)))
    fn = lower(kernel, default_schedule(kernel, Machine()))
    made = compile_tiles(fn, [VARIANTS[name] for name in names])
    assert [[*map(id, made)].index(id(code)) for code in made] == distinct
    for name, code in zip(names, made, strict=True):
        assert (code,) == compile_tiles(fn, [VARIANTS[name]])


def test_trees_are_made_once_with_and_without_relaxed_simd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lowered: list[str] = []

    def counted(fn: TileFn, variant: WasmVariant, placed: bool) -> Lowered:
        lowered.append(variant.name)
        return lower_trees(fn, variant, placed)

    monkeypatch.setattr(emit, "lower", counted)
    kernel = kernel_of(elementwise("exp", graph_input("x", (64,), F32)))
    fn = lower(kernel, default_schedule(kernel, Machine()))
    with_fma, without = compile_tiles(fn, [VARIANTS["x86"], VARIANTS["x86-simd"]])
    assert lowered == ["x86"]
    assert "relaxed_simd" in with_fma.needs
    assert without.needs == {"", "simd"}


def kernel_of(n: Node) -> Kernel:
    (step,) = steps_of(Graph("g", (), (("y", n),)))
    return step.kernel


def test_the_collector_runs_again_after_a_pause() -> None:
    assert gc.isenabled()
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with suppress(KeyError), paused():
        raise KeyError
    assert gc.isenabled()

"""Long reductions of few rows in parts (fusion/split_reductions.py): which are cut, in which order
they read, how many tiles each part has.  What they compute: conformance/test_long_rows.py.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from helpers.graphs import steps_of

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.compiler import Compiled, Options
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operators.normalization import group_norm, instance_norm
from tilewright.fusion.split_reductions import MOST_PARTS, parts_of
from tilewright.graph.node import Graph, Node, constant, graph_input, reduce, reshape
from tilewright.graph.passes import optimise
from tilewright.kernel.expr import Load
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.targets import target
from tilewright.targets.protocol import PACKING

#: 4 groups of 358,400 elements.
CHANNELS, GROUPS, SIZE = 32, 4, (280, 160)
LARGE = CHANNELS * prod(SIZE)
#: Tiles that keep 16 workers busy, with some to spare for those that are faster.
ENOUGH = 4 * 16
#: Threads that keep a large GPU busy.
MANY = 1 << 13


def given(last: bool) -> tuple[Node, Node]:
    """An input and the picture that it is: as convolutions store it, or as ONNX has it."""
    if last:
        x = graph_input("x", (1, *SIZE, CHANNELS), F32)
        return x, al.channels_first(x)
    x = graph_input("x", (1, CHANNELS, *SIZE), F32)
    return x, x


def normed(last: bool, groups: int, exported: bool = False) -> Graph:
    """A group norm with an activation and a residual; exported: as PyTorch's exporter writes it."""
    given_as, x = given(last)
    scale, bias = (constant(np.linspace(n, 9, CHANNELS, dtype=np.float32)) for n in (1, 2))
    if exported:
        ones, zeros = (constant(np.full(groups, n, np.float32)) for n in (1, 0))
        made = instance_norm(reshape(x, (1, groups, LARGE // groups)), ones, zeros)
        wide = (al.per_channel(v, 4) for v in (scale, bias))
        made = al.add(al.mul(reshape(made, x.shape), next(wide)), next(wide))
    else:
        made = group_norm(x, scale, bias, num_groups=groups)
    y = al.add(al.mul(made, al.apply("tanh", made)), x)
    return Graph("norm", (("x", given_as),), (("y", al.channels_last(y) if last else y),))


def built(graph: Graph, name: str) -> Compiled:
    return compile_graph(graph, Options(targets=(name,)))


FORMS = [(False, 4, False), (True, 4, False), (True, 4, True), (True, 16, False), (True, 32, False)]


@pytest.mark.parametrize(("last", "groups", "exported"), FORMS)
def test_every_worker_has_tiles_of_all_that_is_large(
    last: bool, groups: int, exported: bool
) -> None:
    made, wasm = built(normed(last, groups, exported), "wasm"), target("wasm")
    large = [c for c in made.codes if c.kernel.bytes > LARGE]
    assert len(large) == 2
    assert all(wasm.tiles(code) >= ENOUGH for code in large)


@pytest.mark.parametrize("name", ["wgsl", "cuda"])
@pytest.mark.parametrize(("last", "groups", "exported"), FORMS)
def test_a_gpu_has_threads_for_all_that_is_large(
    name: str, last: bool, groups: int, exported: bool
) -> None:
    made, gpu = built(normed(last, groups, exported), name), target(name)
    large = [c for c in made.codes if c.kernel.bytes > LARGE]
    assert len(large) == 2
    assert all(gpu.tiles(code) >= MANY for code in large)


@pytest.mark.parametrize(("last", "groups", "exported"), FORMS)
def test_norm_activation_and_residual_read_in_the_order_of_memory(
    last: bool, groups: int, exported: bool
) -> None:
    """Three kernels: partial results, whole ones, and all that is elementwise; no index divides."""
    program = built(normed(last, groups, exported), "wasm").program
    assert len(program.plans[0].steps) == len(program.kernels) == 3
    for kernel in program.kernels:
        values = [*(stage.value for stage in kernel.stages), kernel.value]
        loads = [e for value in values for e in walk(value) if isinstance(e, Load)]
        assert all(e.index.is_affine for e in loads)


def kernel_of(y: Node, x: Node) -> Kernel:
    (step,) = steps_of(optimise(Graph("g", (("x", x),), (("y", y),)), PACKING))
    return step.kernel


def row_sums(*shape: int) -> Kernel:
    x = graph_input("x", shape, F32)
    return kernel_of(reduce("sum", x, [1]), x)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((128, 16384), 2), ((129, 16384), 1), ((1, 16384), 2), ((4, 16383), 1),
        ((1, 2048, 1024), 2), ((1, 2048, 1025), 1), ((1, 2047, 64), 1),
    ],
)  # fmt: skip
def test_only_long_reductions_of_few_rows_are_cut(shape: tuple[int, ...], parts: int) -> None:
    made = parts_of(row_sums(*shape))
    assert len(made) == parts
    if parts == 1:
        assert made[0].kernel == row_sums(*shape)
        assert made[0].reads == (1,)


@pytest.mark.parametrize("length", [1 << 14, 20011, 1 << 22, 16411 * 17])
def test_no_row_has_more_parts_than_one_kernel_adds_up(length: int) -> None:
    first, last = parts_of(row_sums(2, length))
    count = first.kernel.buffers[0].size // 2
    assert 2 <= count <= MOST_PARTS
    assert last.kernel.buffers[1].size == 2 * count


def test_exponentials_that_a_row_needs_again_are_not_computed_twice() -> None:
    x = graph_input("x", (2, 1 << 15), F32)
    top = reduce("max", x, [1])
    powers = al.exp(al.sub(x, top))
    total = al.total(powers, [1])
    assert len(parts_of(kernel_of(al.div(powers, total), x))) == 1
    logarithms = al.sub(al.sub(x, top), al.log(total))
    assert len(parts_of(kernel_of(logarithms, x))) == 5

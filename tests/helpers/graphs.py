"""How to run a graph's kernels, and small real layers to run.

Input: a graph.  Output: its results, by the graph's meaning or by its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from helpers.whole_vectors import wholes
from tilewright.base.dtypes import F32, I64
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_specs import kernel_steps
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    contract,
    elementwise,
    evaluate,
    gather,
    graph_input,
    node,
    pad,
    reduce,
    reshape,
    scalar_like,
    transpose,
    unfold,
)
from tilewright.hosts.reference import run_kernel
from tilewright.kernel import interpreter
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower

Inputs = dict[str, np.ndarray]

# ---- running -------------------------------------------------------------------------------------


def results(graph: Graph, inputs: Inputs) -> list[np.ndarray]:
    return evaluate([n for _, n in graph.outputs], dict(inputs))


def steps_of(graph: Graph) -> tuple[KernelStep, ...]:
    """The kernels of a packed graph."""
    return kernel_steps(graph, fuse(graph))


def run_steps(
    graph: Graph,
    steps: tuple[KernelStep, ...],
    inputs: Inputs,
    execute: Callable[[Kernel, list[np.ndarray]], None] = run_kernel,
) -> list[np.ndarray]:
    """Execute the kernels in order; a kernel may only read what exists by then."""
    memory: dict[Node, np.ndarray] = {n: inputs[name].ravel() for name, n in graph.inputs}

    def stored(n: Node) -> np.ndarray:
        if n not in memory:
            assert n.constant, f"{n} is read before it is stored"
            memory[n] = evaluate([n])[0].ravel()
        return memory[n]

    for step in steps:
        k = step.kernel
        for n in step.inputs:
            stored(n)
        if step.output not in memory:  # other steps may have stored their part of it
            memory[step.output] = np.full(step.output.size, 77, k.dtype.numpy)
        buffers = [
            memory[n][at : at + b.size]
            for n, at, b in zip((step.output, *step.inputs), step.offsets, k.buffers, strict=True)
        ]
        assert [b.size for b in buffers] == [b.size for b in k.buffers]
        execute(k, buffers)
    return [stored(n).reshape(n.shape) for _, n in graph.outputs]


def interpreted(pick: Callable[[Kernel], Schedule]) -> Callable[[Kernel, list[np.ndarray]], None]:
    """Executes kernels by lowering them and running the loops."""

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        interpret(lower(kernel, pick(kernel)), buffers)

    return execute


def interpret(fn: TileFn, buffers: list[np.ndarray], order: Iterable[int] | None = None) -> None:
    """Runs a kernel's loops on arrays; threads that share a tile must not race for vectors."""
    lists = [b.tolist() for b in buffers]
    interpreter.run(fn, lists, order, whole=wholes(fn) if fn.thread else None)
    buffers[0][:] = lists[0]


def default_of(kernel: Kernel) -> Schedule:
    return default_schedule(kernel, Machine())


# ---- real layers ---------------------------------------------------------------------------------


class Weights:
    """Makes weights from one stream of random numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def __call__(self, *shape: int) -> Node:
        value = self.rng.standard_normal(shape).astype("f4") / max(1, shape[0]) ** 0.5
        self.count += 1
        return node(ops.Weight(f"w{self.count}", shape, F32, lambda: value))


def layer_norm(x: Node, scale: Node, bias: Node) -> Node:
    n = scalar_like(x.shape[-1], x)
    mean = elementwise("div", reduce("sum", x, [-1]), n)
    c = elementwise("sub", x, mean)
    var = elementwise("div", reduce("sum", elementwise("mul", c, c), [-1]), n)
    root = elementwise("sqrt", elementwise("add", var, scalar_like(1e-5, x)))
    return elementwise("add", elementwise("mul", elementwise("div", c, root), scale), bias)


def softmax(x: Node) -> Node:
    e = elementwise("exp", elementwise("sub", x, reduce("max", x, [-1])))
    return elementwise("div", e, reduce("sum", e, [-1]))


def gelu(x: Node) -> Node:
    half = elementwise("mul", scalar_like(0.5, x), x)
    inner = elementwise("erf", elementwise("mul", x, scalar_like(math.sqrt(0.5), x)))
    return elementwise("mul", half, elementwise("add", inner, scalar_like(1, x)))


def linear(x: Node, w: Weights, out: int) -> Node:
    return elementwise("add", contract("abk,kn->abn", x, w(x.shape[-1], out)), w(out))


def bert_layer(width: int = 16, length: int = 10, heads: int = 2, batch: int = 1) -> Graph:
    """Embedding, attention and feed-forward of one BERT layer."""
    w = Weights()
    ids = graph_input("ids", (batch, length), I64)
    x = layer_norm(gather(w(50, width), ids, 0), w(width), w(width))

    def split(t: Node) -> Node:
        shape = (batch, length, heads, width // heads)
        return transpose(reshape(t, shape), (0, 2, 1, 3))

    q, k, v = (split(linear(x, w, width)) for _ in range(3))
    scores = contract("abmk,abkn->abmn", q, transpose(k, (0, 1, 3, 2)))
    scores = elementwise("div", scores, scalar_like(math.sqrt(width / heads), scores))
    context = contract("abmk,abkn->abmn", softmax(scores), v)
    merged = reshape(transpose(context, (0, 2, 1, 3)), (batch, length, width))
    x = layer_norm(elementwise("add", linear(merged, w, width), x), w(width), w(width))
    up = gelu(linear(x, w, 4 * width))
    y = layer_norm(elementwise("add", linear(up, w, width), x), w(width), w(width))
    return Graph("bert", (("ids", ids),), (("y", y),))


def conv(x: Node, w: Node, stride: int = 1, padding: int = 0) -> Node:
    """A convolution as the importer writes it: channels last between two transposes."""
    last = transpose(x, (0, 2, 3, 1))
    edge = (0, padding, padding, 0)
    kh, kw = w.shape[2:]
    windows = unfold(unfold(pad(last, edge, edge), 1, kh, stride), 2, kw, stride)
    made = contract("nyxcij,oijc->nyxo", windows, transpose(w, (0, 2, 3, 1)))
    return transpose(made, (0, 3, 1, 2))


def batch_norm(x: Node, w: Weights) -> Node:
    def channel() -> Node:
        return reshape(w(x.shape[1]), (1, x.shape[1], 1, 1))

    return elementwise("add", elementwise("mul", x, channel()), channel())


def relu(x: Node) -> Node:
    return elementwise("max", x, scalar_like(0, x))

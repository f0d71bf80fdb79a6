"""Small bundles to measure: a matmul, chains of steps, the peak of multiply-adds in registers, all
candidates of one kernel.

Input: sizes, and the choices whose effect is measured.  Output: `Subject`: the contents of a
bundle, with the number of floating point operations of one run.  Hosts and commands measure it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from lab.paper_spaces import PAPER
from lab.probes import peak_section, steps_section
from tilewright import TOOL, bundle
from tilewright.base.dtypes import BY_NUMPY, F32
from tilewright.base.numpy_scalars import Array
from tilewright.base.sections import Section
from tilewright.bundle.format import encode
from tilewright.bundle.section_files import store
from tilewright.compiler import Compiled, Options, assemble
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_specs import kernel_steps
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.fusion.program import BucketPlan
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    cast,
    constant,
    contract,
    elementwise,
    graph_input,
    node,
    reduce,
    reshape,
)
from tilewright.graph.ops import Shape
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.plan import Access, Plan, Value, plan_to_data
from tilewright.plan import Step as KernelRun
from tilewright.targets import DEFAULT
from tilewright.targets import target as find_target
from tilewright.targets.protocol import Variant
from tilewright.targets.schedule import Schedule

#: The target whose hosts are measured.
WASM = "wasm"
#: Tiles of the peak kernel per run: about 10 milliseconds on a present machine.
PEAK_TILES = 2048


@dataclass(frozen=True)
class Subject:
    """Something to time: a bundle whose plan does `flops` floating point operations."""

    name: str
    contents: bundle.Contents
    flops: int


def matmul(m: int, k: int, n: int, options: Options | None = None) -> Subject:
    """x[m, k] times a weight [k, n], random data, in f32."""
    compiled = compile_matmul(m, k, n, options)
    return Subject(f"matmul_{m}x{k}x{n}", compiled.contents, 2 * m * k * n)


def compile_matmul(m: int, k: int, n: int, options: Options | None = None) -> Compiled:
    weight = np.random.default_rng(0).standard_normal((k, n), np.float32)
    x = graph_input("x", (m, k), F32)
    w = node(ops.Weight("w", (k, n), F32, lambda: weight))
    y = contract("mk,kn->mn", x, w)
    return compile_graph(Graph("matmul", (("x", x),), (("y", y),)), options)


def product(
    equation: str,
    a: Shape,
    b: Shape,
    *,
    weight: bool,
    times: int = 1,
    bits: int = 32,
    loose: str = "",
    options: Options | None = None,
) -> Subject:
    """A plan of `times` products contract(equation, a, b) of random data.

    With `weight`, b is a weight, and each of the repeated products has its own.  Without it, a and
    b are inputs, and repeated products have one more batch axis.
    bits, loose: of a weight's elements (see `weight_of`)
    """
    dims = dict(zip(equation.split("->")[0].replace(",", ""), (*a, *b), strict=True))
    outputs: list[Node]
    inputs: tuple[tuple[str, Node], ...]
    if weight:
        x = graph_input("a", a, F32)
        weights = [weight_of(b, i, bits, loose=loose) for i in range(times)]
        outputs = [contract(equation, x, w) for w in weights]
        inputs = (("a", x),)
    else:
        (la, lb), out = equation.split("->")[0].split(","), equation.split("->")[1]
        if times > 1:
            equation, a, b = f"z{la},z{lb}->z{out}", (times, *a), (times, *b)
        x, y = graph_input("a", a, F32), graph_input("b", b, F32)
        outputs, inputs = [contract(equation, x, y)], (("a", x), ("b", y))
    named = tuple((f"y{i}", out) for i, out in enumerate(outputs))
    compiled = compile_graph(Graph("product", inputs, named), options)
    return Subject(equation, compiled.contents, 2 * times * prod(dims.values()))


def product_kernel(equation: str, a: Shape, b: Shape, *, weight: bool) -> Kernel:
    """The kernel of contract(equation, a, b) of f32, as in a model; `b` may be a weight."""
    return product_step(equation, a, b, weight=weight).kernel


def product_step(equation: str, a: Shape, b: Shape, *, weight: bool) -> KernelStep:
    """The step of `product_kernel`.  Weights are random numbers, drawn when they are written."""
    x = graph_input("a", a, F32)
    w = node(ops.Weight("b", b, F32, lambda: _scaled(b, 0)))
    y = w if weight else graph_input("b", b, F32)
    inputs = (("a", x),) if weight else (("a", x), ("b", y))
    (step,) = steps_of(Graph("product", inputs, (("y", contract(equation, x, y)),)))
    return step


def matmul_step(m: int, k: int, n: int, *, weight: bool = True) -> KernelStep:
    """x[m, k] times [k, n]: a packed weight, or an input in rows."""
    return product_step("mk,kn->mn", (m, k), (k, n), weight=weight)


def paper_step(name: str) -> KernelStep:
    """K0 to K3 of the nnJIT paper: the first two multiply by a weight, the others two inputs."""
    p = PAPER[name]
    if p.batch == 1:
        return matmul_step(p.m, p.k, p.n)
    return product_step("bmk,bkn->bmn", (p.batch, p.m, p.k), (p.batch, p.k, p.n), weight=False)


def stream(elements: int) -> Subject:
    """The sum of an input, to measure how fast memory can be read; it counts one operation per
    element."""
    x = graph_input("a", (elements,), F32)
    compiled = compile_graph(Graph("stream", (("a", x),), (("y0", reduce("sum", x, [0])),)), None)
    return Subject(f"sum of {elements}", compiled.contents, elements)


def _scaled(shape: Shape, seed: int) -> Array:
    """Random numbers, scaled so that products with them keep the magnitude of the other operand."""
    scale = np.float32(1 / np.sqrt(shape[-2] if len(shape) > 1 else 1))
    return np.random.default_rng(seed).standard_normal(shape, np.float32) * scale


#: Rows of a quantised weight that share a scale.
BLOCK = 32


def weight_of(shape: Shape, seed: int, bits: int = 32, scales: str = "", loose: str = "") -> Node:
    """A weight of random numbers: f32, f16, or [k, n] of 4 or 8 bits, a scale per
    block of 32 rows.

    scales: "f16" if scales are stored so, else ""
    loose:  the type to which products may round their other operand: "i8" for 4-bit weights, "tf32"
            for f32
    """
    if bits == 16:
        return _halves(f"w{seed}", _scaled(shape, seed))
    if bits == 32:
        return _loose(_weight(f"w{seed}", _scaled(shape, seed)), loose)
    k, n = shape
    rng = np.random.default_rng(seed)
    middle = 2.0 ** (bits - 1)
    whole = rng.integers(0, 1 << bits, (k // BLOCK, BLOCK, n), np.uint8)
    scale = (rng.random((k // BLOCK, 1, n), np.float32) + 1) / np.float32(middle * np.sqrt(k))
    centred = elementwise("sub", cast(_weight(f"q{seed}", whole), F32), constant(middle, F32))
    kept = _loose((_halves if scales else _weight)(f"s{seed}", scale), loose)
    return reshape(elementwise("mul", centred, kept), shape)


def _loose(weight: Node, loose: str) -> Node:
    if not loose or not isinstance(weight.op, ops.Weight):
        return weight
    return node(replace(weight.op, loose=loose))


def _halves(name: str, value: Array) -> Node:
    rounded = value.astype(np.float16).astype(np.float32)
    return node(ops.Weight(name, value.shape, F32, lambda: rounded, "f16", "f16"))


def _weight(name: str, value: Array) -> Node:
    return node(ops.Weight(name, value.shape, BY_NUMPY[value.dtype.name], lambda: value))


def compile_graph(graph: Graph, options: Options | None = None) -> Compiled:
    """Compiles a graph that was built by hand: all stages after the import."""
    return assemble(graph.name, [_planned(graph)], options or Options())


def steps_of(graph: Graph) -> tuple[KernelStep, ...]:
    """The kernels of a graph that was built by hand, in order."""
    return _planned(graph).steps


def _planned(graph: Graph) -> BucketPlan:
    packed = optimise(graph, find_target(DEFAULT[0]).facts.packing)
    return BucketPlan({}, packed, kernel_steps(packed, fuse(packed)))


#: The named dimension whose sizes are the numbers of candidates: one plan for each.
CANDIDATE = "candidate"


def candidates(
    step: KernelStep,
    schedules: Sequence[Schedule | Mapping[str, Schedule]],
    options: Options | None = None,
    times: int = 1,
) -> Subject:
    """One kernel with many schedules: plan i runs it `times` times with schedule i, which may
    differ by variant.

    All plans read and write the same memory.  The kernel's operands are inputs, except weights.
    Steps before the kernel (a copy as f16) have the target's default schedule.
    """
    first, *_ = (options or Options()).targets

    def choose(kernel: Kernel, variant: Variant) -> Schedule:
        if not kernel.name.isdecimal():
            made: Schedule = find_target(first).default(kernel, variant.name)
            return made
        chosen = schedules[int(kernel.name)]
        return chosen[variant.name] if isinstance(chosen, Mapping) else chosen

    graph = _around(step)
    plans = [
        BucketPlan(
            {CANDIDATE: i}, graph, (replace(step, kernel=replace(step.kernel, name=str(i))),)
        )
        for i in range(len(schedules))
    ]
    plans = [replace(p, steps=p.steps * times) for p in plans]
    numbered = replace(
        options or Options(),
        buckets={CANDIDATE: tuple(range(len(schedules)))},
        schedule=choose,
    )
    compiled = assemble(step.kernel.name, plans, numbered)
    return Subject(step.kernel.name, compiled.contents, times * step.kernel.flops)


def alone(step: KernelStep, options: Options | None = None, times: int = 1) -> Subject:
    """One kernel of a model as a bundle of its own, which runs it `times` times."""
    plan = BucketPlan({}, _around(step), (step,) * times)
    compiled = assemble(step.kernel.name, [plan], options or Options())
    return Subject(step.kernel.name, compiled.contents, times * step.kernel.flops)


def _around(step: KernelStep) -> Graph:
    """A graph around one kernel: its operands except weights are the inputs "b0", "b1", …, its
    result is the output "y"."""
    read = {n: None for n in step.inputs if not n.constant}
    inputs = tuple((f"b{i}", n) for i, n in enumerate(read))
    return Graph(step.kernel.name, inputs, (("y", step.output),))


def matmul_chain(steps: int, m: int, k: int) -> Subject:
    """x[m, k] times `steps` weights [k, k] in a chain: each step needs the result of the previous
    one."""
    x = y = graph_input("x", (m, k), F32)
    for number in range(steps):
        # orthogonal, so that the numbers keep their magnitude
        rows = np.random.default_rng(number).standard_normal((k, k))
        weight = np.linalg.qr(rows)[0].astype(np.float32)
        y = contract("mk,kn->mn", y, _weight(f"w{number}", weight))
    compiled = compile_graph(Graph("chain", (("x", x),), (("y", y),)))
    return Subject(f"chain_{steps}x{m}x{k}x{k}", compiled.contents, steps * 2 * m * k * k)


def empty_steps(steps: int, tiles: int) -> Subject:
    """Steps that do nothing; each waits for the previous one and has `tiles` tickets.

    With one tile all steps are serial and share one ticket.
    """
    return _probe(f"empty_{steps}x{tiles}", steps, *steps_section(steps, tiles))


def peak(tiles: int = PEAK_TILES) -> Subject:
    """The kernel that only multiplies and adds in registers, as a bundle of one step."""
    return _probe("peak", 1, *peak_section(tiles))


def _probe(name: str, steps: int, section: Section, flops: int) -> Subject:
    """A bundle of a section from lab/probes.py, whose kernels have no specification."""
    blobs: dict[str, bytes | bytearray | memoryview] = {}
    output = Value("output", F32, (4,), "y", last=steps)
    plan = Plan({}, (output,), (KernelRun(0, Access(0), (), node=name),) * steps, (), (0,))
    step = bundle.StepEntry(
        spec=0, kernel=name, node=name, flops=flops // steps, bytes=output.bytes
    )
    manifest = bundle.Manifest(
        tool=TOOL,
        name=name,
        dims={},
        inputs=(),
        outputs=(bundle.TensorInfo(name="y", dtype="f32", shape=output.shape),),
        weights=bundle.Weights(bytes=0),
        kernels=bundle.add(blobs, b"[]", "json"),
        plans=(
            bundle.PlanEntry(
                dims={},
                inputs=(),
                outputs=(output.shape,),
                steps=(step,) * steps,
                file=bundle.add(blobs, encode(plan_to_data(plan)), "json"),
            ),
        ),
        targets={WASM: store(section, (), blobs)},
    )
    return Subject(name, bundle.Contents(manifest, blobs), flops)

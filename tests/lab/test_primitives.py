"""Primitives: each setting changes one variable, findings decide, and what they fix is obeyed.

Nothing is timed: rounds come from made-up clocks.  Any setting of any primitive gives the same
result as the reference host, since a wrong kernel that is fast would fix the wrong setting.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from helpers.attention import VARIANTS
from helpers.graphs import interpreted, results, run_steps, steps_of
from helpers.integers import quantised_graph
from helpers.kernels import ANCHORS, assert_close, expected, interpret, random_case
from helpers.loop_check import check_loops
from helpers.seeds import seeds
from primitives_factory import MACHINES, base

from lab.primitives.table import MATMUL, MEASURED, NAMED, PRIMITIVES, Primitive, untuned
from lab.subjects import CANDIDATE, candidates, matmul_step
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.graph.passes import optimise
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.kernel.collapse import collapse
from tilewright.kernel.form import product
from tilewright.targets import wasm
from tilewright.targets.protocol import PACKING
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower

every_primitive = pytest.mark.parametrize("primitive", MEASURED, ids=lambda p: p.name)
# ---- the table -----------------------------------------------------------------------------------


def test_the_table_has_all_of_the_paper() -> None:
    paper = {"cache_read", "cache_write", "reorder", "bind", "unroll", "vectorize"}
    assert paper | {"tile_registers", "tile_cache"} <= set(NAMED)
    assert {name for name, _ in wasm.PASSES} <= set(NAMED)
    assert len(NAMED) == len(PRIMITIVES)
    assert [p.name for p in PRIMITIVES if p.kind == "none"] == ["bind"]


@every_primitive
@pytest.mark.parametrize("machine", MACHINES, ids=list(wasm.VARIANTS))
def test_one_variable_at_a_time(primitive: Primitive, machine: Machine) -> None:
    _, start = base(primitive, machine)
    before, after = (s.change(start) for s in (primitive.untuned, primitive.tuned))
    changed = {k for k, v in asdict(before).items() if v != asdict(after)[k]}
    code = (primitive.untuned.without, primitive.untuned.variants) != (
        primitive.tuned.without,
        primitive.tuned.variants,
    )
    assert bool(changed) != code, "a primitive changes the schedule or the code, not both"
    assert changed <= {"x0", "y0"} or changed <= {"x1", "y1"} or len(changed) == 1
    assert after == start or primitive.name in ("split", "cache_read_rows"), "the base is tuned"


@every_primitive
def test_has_tells_the_settings_apart(primitive: Primitive) -> None:
    kernel, start = base(primitive)
    roles = product(kernel)
    assert roles is not None
    assert primitive.concerns(roles)
    if primitive.has is not None:
        assert primitive.has(primitive.tuned.change(start))
        assert not primitive.has(primitive.untuned.change(start))


def test_settings_give_equal_results(tmp_path: Path) -> None:
    """All settings in one bundle, one plan each, as they are measured; a small product."""
    shape = (29, 40, 37)
    a = np.random.default_rng(1).integers(-3, 4, (29, 40)).astype("f4")
    for columns in ("packed", "rows"):
        step = matmul_step(*shape, weight=columns == "packed")
        settings = [s for p in MEASURED if p.columns == columns for s in (p.untuned, p.tuned)]
        start = default_schedule(step.kernel, MACHINES[0])
        made = [s.change(start) for s in settings]
        options = Options(variants=("x86",))
        subject = candidates(step, made, options, times=2)
        write(subject.contents, tmp_path / columns)
        host = WasmtimeHost(tmp_path / columns)
        inputs = {i.name: a for i in host.bundle.manifest.inputs[:1]}
        for info in host.bundle.manifest.inputs[1:]:
            inputs[info.name] = np.arange(40 * 37, dtype="f4").reshape(40, 37) % 7
        want = host.run(inputs).outputs["y"]
        assert subject.flops == 2 * step.kernel.flops
        assert len(host.bundle.manifest.plans) == len(settings)
        for number, plan in enumerate(host.bundle.manifest.plans):
            assert plan.dims == {CANDIDATE: number}
            (sides,), (address,) = plan.outputs, host.places[number].outputs
            size = 4 * sides[0] * sides[1]
            host.memory.write(bytes(size), address)
            host.time(1, number)
            got = np.frombuffer(host.memory.read(address, size), "f4").reshape(sides)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


# ---- poor defaults -------------------------------------------------------------------------------


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(15))
def test_untuned_schedules_mean_the_same(seed: int, anchor: str) -> None:
    case = random_case(seed, anchor)
    kernel = collapse(case.kernel)
    fn = lower(kernel, untuned(kernel, Machine()))
    check_loops(fn)
    out = interpret(fn, case.data, [list(range(fn.tiles))])
    assert_close(out, expected(case), case.exact, case.relative)


@pytest.mark.parametrize("seed", seeds(12))
def test_untuned_sums_of_bytes(seed: int) -> None:
    graph, inputs = quantised_graph(seed)
    packed = optimise(graph, PACKING)
    pick = interpreted(lambda kernel: untuned(kernel, Machine()))
    (got,), (want,) = run_steps(packed, steps_of(packed), inputs, pick), results(graph, inputs)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_untuned_attention(name: str) -> None:
    graph = VARIANTS[name]()
    numbers = np.random.default_rng(3)
    inputs = {n: numbers.standard_normal(x.shape).astype("f4") for n, x in graph.inputs}
    packed = optimise(graph, PACKING)
    pick = interpreted(lambda kernel: untuned(kernel, Machine()))
    got = run_steps(packed, steps_of(packed), inputs, pick)
    for found, want in zip(got, results(graph, inputs), strict=True):
        assert np.abs(found - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("weight", [True, False])
def test_untuned_has_nothing_tuned(weight: bool) -> None:
    kernel = matmul_step(*MATMUL, weight=weight).kernel
    roles = product(kernel)
    assert roles is not None
    poor = untuned(kernel, Machine())
    named = [p for p in MEASURED if p.has is not None and p.concerns(roles) and p.name != "split"]
    assert len(named) >= 6
    assert not [p.name for p in named if p.has is not None and p.has(poor)]

"""Kernels whose axes end at run time: loops compute what the shorter kernel means, and do less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from helpers.kernels import ANCHORS, Case, assert_close, random_case
from helpers.lengths import transformer
from helpers.loop_check import check_loops
from helpers.schedules import random_schedule
from helpers.seeds import seeds, shared_out

from tilewright.compiler import Compiled, Options, compile_model
from tilewright.frontend import load
from tilewright.hosts.reference import run_kernel
from tilewright.kernel import interpreter
from tilewright.kernel.collapse import collapse
from tilewright.kernel.extents import at_extents, extent
from tilewright.kernel.index import Var
from tilewright.kernel.loops import TileFn, numbers_at
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import Kernel, Limit, check
from tilewright.kernel.thread_interpreter import ThreadInterpreter
from tilewright.targets.gpu.pointwise.reductions import lower_row_reductions
from tilewright.targets.scalar_lowering import lower as plain
from tilewright.targets.simd.attention import AttentionSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower

Array = np.ndarray[Any, np.dtype[Any]]
POISONS = (77, 78)
MOST = 32


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(load(transformer(most=MOST)), Options(extents={"n": MOST}, targets=("c",)))


def axes_of(kernel: Kernel) -> list[Var]:
    listed = [*kernel.axes, *(v for s in kernel.stages for v in (*s.axes, *s.keep))]
    return list(dict.fromkeys(v for v in listed if v.extent > 1))


def limited(case: Case, rng: Random) -> tuple[Kernel, int] | None:
    """The kernel with one axis, and some that are multiples of it, ended at run time; the bound."""
    axes = axes_of(case.kernel)
    if not axes:
        return None
    first = rng.choice(axes)
    times = rng.choice([t for t in (1, 1, 2, 3) if first.extent % t == 0 and first.extent > t])
    bound = first.extent // times
    others = [v for v in axes if v != first and v.extent % bound == 0 and rng.random() < 0.5]
    scalar = extent(0, bound)
    limits = tuple(sorted(Limit(v, scalar, v.extent // bound) for v in (first, *others)))
    return replace(case.kernel, extents=(scalar,), limits=limits), bound


def meant(kernel: Kernel, n: int, data: tuple[Array, ...]) -> tuple[Array, Array]:
    """What the kernel stores where axes end at n, and which elements it stores."""
    outs = []
    for poison in POISONS:
        out = np.full(kernel.buffers[0].size, poison, kernel.dtype.numpy)
        run_kernel(at_extents(kernel, [n]), [out, *(d.copy() for d in data)])
        outs.append(out)
    if kernel.dtype.kind == "bool":
        return outs[0], np.ones(outs[0].shape, bool)
    return outs[0], np.equal(*outs) | np.isnan(outs[0])


def computed(fn: TileFn, n: int, data: tuple[Array, ...]) -> Array:
    out: list[Any] = [0] * fn.buffers[0].size
    interpreter.run(fn, [out, *(d.tolist() for d in data)], extents=[n])
    return np.asarray(out)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(30))
def test_random_kernels_end_where_they_should(seed: int, anchor: str) -> None:
    case, rng = random_case(seed, anchor), Random(f"extents {anchor}{seed}")
    if case.kernel.dtype.kind == "bool":
        pytest.skip("what was stored cannot be told from what was there")
    found = limited(case, rng)
    if found is None:
        pytest.skip("no axis")
    kernel, bound = found
    collapsed = collapse(kernel)
    check(collapsed)
    schedules = random_schedule(rng, collapsed), default_schedule(collapsed, Machine())
    shared = lower_row_reductions(collapsed, 2)
    made = [plain(collapsed), *(lower(collapsed, s) for s in schedules)]
    made += [shared] if shared is not None else []
    for fn in made:
        if fn.thread is None:
            check_loops(fn)
    for n in sorted({1, rng.randint(1, bound), bound}):
        want, stored = meant(kernel, n, case.data)
        assert stored.any()
        for fn in made:
            got = computed(fn, n, case.data)
            assert_close(got[stored], want[stored], case.exact, case.relative)


@pytest.mark.parametrize("seed", seeds(10))
def test_limits_survive_json(seed: int) -> None:
    found = limited(random_case(seed, "rows"), Random(seed))
    assert found is not None
    data = msgspec.json.decode(msgspec.json.encode(kernel_to_data(found[0])))
    assert kernel_from_data(data) == found[0]


def test_kernels_without_extents_say_nothing_of_them() -> None:
    assert not {"extents", "limits"} & kernel_to_data(random_case(0, "rows").kernel).keys()


def attentions() -> Iterator[AttentionSchedule]:
    rng = Random(5)
    for _ in range(16):
        y0 = rng.choice((4, 8))
        yield AttentionSchedule(
            x0=rng.randint(1, 6), y0=y0, r0=rng.choice((1, 3, 8)), x1=rng.choice((3, 7, 24)),
            y1=rng.choice((8, 12, 24, MOST)), cache=rng.choice(("", "k", "v", "kv")),
        )  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("schedule", list(attentions()), ids=str)
def test_attention_under_every_kind_of_schedule(
    compiled: Compiled, schedule: AttentionSchedule
) -> None:
    (kernel,) = (k for k in compiled.program.kernels if k.anchor == "attention")
    rng = np.random.default_rng(3)
    data = tuple(rng.standard_normal(b.size).astype(np.float32) for b in kernel.buffers[1:])
    fn = lower(kernel, schedule)
    check_loops(fn)
    for n in (1, 17, MOST):
        want, stored = meant(kernel, n, data)
        np.testing.assert_allclose(computed(fn, n, data)[stored], want[stored], 1e-4, 1e-5)


def steps_of(fn: TileFn, n: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Statements that the loops execute."""
    count, once = 0, ThreadInterpreter.stmt

    def counted(self: Any, s: Any) -> None:
        nonlocal count
        count += 1
        once(self, s)

    rng = np.random.default_rng(3)
    data = tuple(
        rng.integers(0, 8, b.size).astype(b.dtype.numpy)
        if b.dtype.kind == "int"
        else rng.standard_normal(b.size).astype(b.dtype.numpy)
        for b in fn.buffers[1:]
    )
    with monkeypatch.context() as patch:
        patch.setattr(ThreadInterpreter, "stmt", counted)
        computed(fn, n, data)
    return count


@pytest.mark.seldom(4)
@pytest.mark.parametrize("part", shared_out(range(3), 3))
@pytest.mark.parametrize("fused", [True, False])
def test_short_runs_do_less(fused: bool, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a quarter of the bound no kernel does more than 0.6 of the work, by any lowering: one
    register tile of 32 tokens is the coarsest there is."""
    bound = 64
    options = Options(extents={"n": bound}, targets=("c",))
    kernels = compile_model(load(transformer(fused)), options).program.kernels
    assert all(k.limits for k in kernels)
    chosen = [k for k in kernels if not fused or k.anchor == "attention"]
    for kernel in chosen[part::3]:
        for fn in (plain(kernel), lower(kernel, default_schedule(kernel, Machine()))):
            short, long = (steps_of(fn, n, monkeypatch) for n in (bound // 4, bound))
            assert short < 0.6 * long, f"{kernel.name}: {short} of {long}"
            tiles = [numbers_at(fn, [n])[0] for n in range(1, bound + 1)]
            assert tiles == sorted(tiles)
            assert tiles[0] >= 1
            assert tiles[-1] == fn.tiles

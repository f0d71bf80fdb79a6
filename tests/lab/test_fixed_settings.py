"""What is fixed in the space is obeyed, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.kernels import random_case
from primitives_factory import MACHINES, base

from lab.primitives.table import MATMUL, MEASURED, NAMED, Primitive
from lab.subjects import matmul_step
from tilewright.kernel.form import product
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import find
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule
from tilewright.targets.wasm import choices
from tilewright.tuning.candidates import space_of


def decide_as(monkeypatch: pytest.MonkeyPatch, decided: dict[str, bool | None]) -> None:
    monkeypatch.setattr(choices, "DECIDED", decided)


PRIMITIVES = [NAMED[name] for name in choices.CHOICES]


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda p: p.name)
def test_consistent_settings_are_fixed(
    primitive: Primitive, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, start = base(primitive)
    decide_as(monkeypatch, {primitive.name: tuned})
    for setting in (primitive.untuned, primitive.tuned):
        made = choices.choices(kernel, setting.change(start))
        assert all(primitive.has(s) is tuned for s in made if primitive.has)
        assert len(made) <= 1
    wanted = primitive.tuned if tuned else primitive.untuned
    assert choices.choices(kernel, wanted.change(start)) == (wanted.change(start),)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda p: p.name)
def test_what_devices_decide_has_both_settings(
    primitive: Primitive, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, start = base(primitive)
    decide_as(monkeypatch, {primitive.name: None})
    made = choices.choices(kernel, start)
    both = {primitive.untuned.change(start), primitive.tuned.change(start)}
    assert set(made) == (both if primitive.kind == "switch" else {start})
    decide_as(monkeypatch, {})
    assert choices.choices(kernel, start) == (start,)


def test_sizes_and_other_kernels_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {p.name for p in MEASURED if p.kind == "size"} & set(choices.DECIDED)
    seen = (random_case(s, "map").kernel for s in range(9))
    kernel = next(k for k in seen if product(k) is None)
    schedule = default_schedule(kernel, Machine())
    decide_as(monkeypatch, {"unroll": True})
    assert choices.choices(kernel, schedule) == (schedule,)


def test_kernels_without_the_choice_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of one step cannot be unrolled; columns in rows are no panels."""
    decide_as(monkeypatch, {"unroll": True})
    single = matmul_step(16, 1, 16).kernel
    small = ContractionSchedule(x0=2, y0=8)
    assert choices.choices(single, small) == (small,)
    decide_as(monkeypatch, {"cache_read": True})
    rows = matmul_step(64, 64, 64, weight=False).kernel
    staged = replace(small, stage=True)
    assert choices.choices(rows, staged) == (staged,)
    assert choices.choices(matmul_step(64, 64, 64).kernel, staged)[0].stage is False


def test_defaults_have_what_is_fixed() -> None:
    for machine in MACHINES:
        for weight in (True, False):
            kernel = matmul_step(*MATMUL, weight=weight).kernel
            start = default_schedule(kernel, machine)
            assert start in choices.choices(kernel, start)


def lite(kernel: Kernel) -> list[ContractionSchedule]:
    space = space_of(kernel, find("wasm-x86-relaxed-32k"))
    found = [s for s, mark in zip(space.schedules, space.marks, strict=True) if mark == "lite"]
    assert all(isinstance(s, ContractionSchedule) for s in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("weight", [True, False])
def test_the_lite_space_obeys(weight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As shipped; and as it would be, were copying found good, bad, or good here and there."""
    kernel = matmul_step(384, 768, 768, weight=weight).kernel
    roles = product(kernel)
    assert roles is not None
    assert choices.DECIDED
    for name, tuned in choices.DECIDED.items():
        choice = choices.CHOICES[name]
        if tuned is not None and choice.concerns(roles):
            assert {choice.has(s) for s in lite(kernel)} == {tuned}
    name = "cache_read" if weight else "cache_read_rows"
    counts = {}
    for verdict, tuned, staged in (
        ("fixed", True, {not weight}),
        ("fixed", False, {weight}),
        ("open", None, {True, False}),
    ):
        decide_as(monkeypatch, {name: tuned})
        found = lite(kernel)
        assert {s.stage for s in found} == staged
        counts[verdict] = len(found)
    assert counts["open"] == 2 * counts["fixed"]


def test_votes_under_other_decisions_are_votes_on_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is fixed is in the space, and its checksum is in the key of the database."""
    kernel, device = matmul_step(384, 768, 768, weight=True).kernel, find("wasm-x86-relaxed-32k")
    checksums = set()
    for tuned in (True, False):
        decide_as(monkeypatch, {"cache_read": tuned})
        checksums.add(space_of(kernel, device).checksum)
    assert len(checksums) == 2

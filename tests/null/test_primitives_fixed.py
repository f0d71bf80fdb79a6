"""What findings fix in the space is obeyed, and only that; the data that is shipped."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from helpers.kernels import random_case
from primitives_factory import MACHINES, base

from tilewright.benchkernel import matmul_step
from tilewright.kernel.form import product
from tilewright.kernel.spec import Kernel
from tilewright.targets import findings
from tilewright.targets.classes import find
from tilewright.targets.primitives import MATMUL, Primitive
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.table import default_schedule
from tilewright.targets.wasm import primitives
from tilewright.targets.wasm.primitives import MEASURED, NAMED
from tilewright.tuning.candidates import space_of


def test_the_data_file_is_as_measured() -> None:
    """Decisions follow from the devices, names are those of the table."""
    data = json.loads(primitives.FINDINGS.read_text())
    document = findings.read(primitives.FINDINGS)
    assert data == json.loads(json.dumps(findings.to_json(document)))
    assert document.matmul == MATMUL
    assert set(data["decisions"]) == ({p.name for p in MEASURED} if document.devices else set())


def fixed() -> dict[str, bool]:
    """Primitives of one better setting on all measured devices: True where it is the tuned one."""
    decided = primitives.decided().items()
    return {name: d.tuned for name, d in decided if d.tuned is not None}


def test_only_choices_are_fixed() -> None:
    assert all(NAMED[name].kind in ("switch", "range") for name in fixed())
    decided = findings.decisions(findings.read(primitives.FINDINGS).devices)
    assert all(decided[name].tuned is tuned for name, tuned in fixed().items())


def decide_as(monkeypatch: pytest.MonkeyPatch, name: str, verdict: str, tuned: bool | None) -> None:
    decision = findings.Decision(verdict, tuned)  # type: ignore[arg-type]
    monkeypatch.setattr(primitives, "decided", lambda: {name: decision})


CHOICES = [p for p in MEASURED if p.has is not None and p.kind != "size"]


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("primitive", CHOICES, ids=lambda p: p.name)
def test_consistent_settings_are_fixed(
    primitive: Primitive, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, start = base(primitive)
    decide_as(monkeypatch, primitive.name, "consistent", tuned)
    assert fixed() == {primitive.name: tuned}
    for setting in (primitive.untuned, primitive.tuned):
        made = primitives.choices(kernel, setting.change(start))
        assert all(primitive.has(s) is tuned for s in made if primitive.has)
        assert len(made) <= 1
    wanted = primitive.tuned if tuned else primitive.untuned
    assert primitives.choices(kernel, wanted.change(start)) == (wanted.change(start),)


@pytest.mark.parametrize("verdict", sorted(primitives.OPEN))
@pytest.mark.parametrize("primitive", CHOICES, ids=lambda p: p.name)
def test_what_devices_decide_has_both_settings(
    primitive: Primitive, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, start = base(primitive)
    decide_as(monkeypatch, primitive.name, verdict, None)
    made = primitives.choices(kernel, start)
    both = {primitive.untuned.change(start), primitive.tuned.change(start)}
    assert set(made) == (both if primitive.kind == "switch" else {start})
    decide_as(monkeypatch, primitive.name, "no effect", None)
    assert primitives.choices(kernel, start) == (start,)


def test_sizes_and_other_kernels_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {p.name for p in MEASURED if p.kind == "size"} & set(primitives.decided())
    seen = (random_case(s, "map").kernel for s in range(9))
    kernel = next(k for k in seen if product(k) is None)
    schedule = default_schedule(kernel, Machine())
    decide_as(monkeypatch, "unroll", "consistent", True)
    assert primitives.choices(kernel, schedule) == (schedule,)


def test_kernels_without_the_choice_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of one step cannot be unrolled; columns in rows are no panels."""
    decide_as(monkeypatch, "unroll", "consistent", True)
    single = matmul_step(16, 1, 16).kernel
    small = ContractionSchedule(x0=2, y0=8)
    assert primitives.choices(single, small) == (small,)
    decide_as(monkeypatch, "cache_read", "consistent", True)
    rows = matmul_step(64, 64, 64, weight=False).kernel
    staged = replace(small, stage=True)
    assert primitives.choices(rows, staged) == (staged,)
    assert primitives.choices(matmul_step(64, 64, 64).kernel, staged)[0].stage is False


def test_defaults_have_what_is_fixed() -> None:
    for machine in MACHINES:
        for weight in (True, False):
            kernel = matmul_step(*MATMUL, weight=weight).kernel
            start = default_schedule(kernel, machine)
            assert start in primitives.choices(kernel, start)


def lite(kernel: Kernel) -> list[Schedule]:
    space = space_of(kernel, find("wasm-x86-relaxed-32k"))
    return [s for s, mark in zip(space.schedules, space.marks, strict=True) if mark == "lite"]


@pytest.mark.parametrize("weight", [True, False])
def test_the_lite_space_obeys(weight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As shipped; and as it would be, were copying found good, bad, or good here and there."""
    kernel = matmul_step(384, 768, 768, weight=weight).kernel
    roles = product(kernel)
    assert roles is not None
    for name, tuned in fixed().items():
        has = NAMED[name].has
        if has is not None and NAMED[name].concerns(roles):
            assert {has(s) for s in lite(kernel)} == {tuned}
    name = "cache_read" if weight else "cache_read_rows"
    counts = {}
    for verdict, tuned, staged in (
        ("consistent", True, {not weight}),
        ("consistent", False, {weight}),
        ("device-dependent", None, {True, False}),
    ):
        decide_as(monkeypatch, name, verdict, tuned)
        found = lite(kernel)
        assert {s.stage for s in found} == staged
        counts[verdict] = len(found)
    assert counts["device-dependent"] == 2 * counts["consistent"]


def test_votes_under_other_decisions_are_votes_on_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is fixed is in the space, and its checksum is in the key of the database."""
    kernel, device = matmul_step(384, 768, 768, weight=True).kernel, find("wasm-x86-relaxed-32k")
    checksums = set()
    for tuned in (True, False):
        decide_as(monkeypatch, "cache_read", "consistent", tuned)
        checksums.add(space_of(kernel, device).checksum)
    assert len(checksums) == 2

"""Spaces of whole kernels: the same everywhere, bounded, and every candidate computes the same."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from helpers.lengths import rows, saved

from lab.subjects import compile_matmul, product_kernel
from tilewright.base.dtypes import F32
from tilewright.base.errors import InputError, NoSpace, UsageError
from tilewright.bundle import StepEntry, open_bundle, write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.graph.node import graph_input
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.protocol import Candidate
from tilewright.targets.simd.strategies import SCRATCH, default_schedule, objection
from tilewright.targets.step_sharing import Work, share
from tilewright.targets.wasm import VARIANTS
from tilewright.tuning import candidates, catalogue
from tilewright.tuning.candidates import build, mixed, space_of
from tilewright.tuning.catalogue import kernels_of

X86 = CLASSES["wasm-x86-relaxed-32k"]
ARM = CLASSES["wasm-arm-simd-64k"]
A = graph_input("a", (8, 8), F32)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_matmul(384, 768, 768, Options(variants=("x86",)))


def test_a_space_of_a_matmul(compiled: Compiled) -> None:
    kernel = compiled.codes[0].kernel
    space = space_of(kernel, X86)
    assert space.kind == "contract"
    assert space.shape == "384x768x768"
    assert space.schedules[0] == default_schedule(kernel, VARIANTS["x86"].machine)
    assert space.marks[0] == "default"
    assert set(space.marks[1:]) == {"lite", "extended"}
    assert len(set(space.schedules)) == len(space.schedules) <= 160
    assert sorted(space.order) == list(range(1, len(space.schedules)))
    assert 10 <= space.marks.count("lite") <= 32
    powers = [
        (s.x0, s.y0) for s, m in zip(space.schedules, space.marks, strict=True) if m == "lite"
    ]
    assert all(n.bit_count() == 1 for pair in powers for n in pair)
    assert len(space.checksum) == 16


def test_the_number_means_the_same_in_every_process(compiled: Compiled) -> None:
    """Another process with another hash seed gets the same checksum and order from the data."""
    kernel = compiled.codes[0].kernel
    code = (
        "import json,sys;from tilewright.kernel.serialise import kernel_from_data;"
        "from tilewright.targets.device_classes import find;"
        "from tilewright.tuning.candidates import space_of;"
        "k=kernel_from_data(json.load(sys.stdin));s=space_of(k,find('wasm-x86-relaxed-32k'));"
        "print(s.checksum,s.key,s.order)"
    )
    data = msgspec.json.encode(kernel_to_data(kernel))
    env = {"PYTHONHASHSEED": "7", "PATH": ""}
    result = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, env=env)
    space = space_of(kernel, X86)
    assert result.stdout.decode() == f"{space.checksum} {space.key} {space.order}\n"


def test_what_the_numbers_mean_is_in_the_checksum(compiled: Compiled) -> None:
    kernel = compiled.codes[0].kernel
    found = [space_of(kernel, d) for d in (X86, ARM, CLASSES["wasm-x86-relaxed-48k"])]
    assert len({s.checksum for s in found}) == 3
    assert len({s.key for s in found}) == 1
    renamed = kernel_from_data(kernel_to_data(kernel) | {"name": "other"})
    assert space_of(renamed, X86).checksum == found[0].checksum


def test_no_width_waits_for_the_end() -> None:
    """A model that is wrong for one width is so for all its tiles: the best of each comes early."""
    # 34 MB of weights for 20 rows: three panels side by side won two sweeps, in the 78th trial
    kernel = product_kernel("mk,kn->mn", (20, 1024), (1024, 8210), weight=True)
    space = space_of(kernel, X86)
    widths = [space.schedules[n].to_json()["y0"] for n in space.order]
    first = sorted(widths.index(width) + 1 for width in set(widths))
    assert len(first) >= 5
    assert all(place <= 3 * rank for rank, place in enumerate(first, 1))
    assert widths.count(24) > 8, "the walk over wide tiles is varied, too"
    extended = [s for s, m in zip(space.schedules, space.marks, strict=True) if m == "extended"]
    assert not any(s.to_json()["stage"] for s in extended), "panels need no copy"


@pytest.mark.parametrize("m", [1, 20, 508])
def test_passes_of_one_step_come_early(m: int) -> None:
    """V8 before Turboshaft, and Cranelift, order long passes so that registers run out: twice the
    time of a pass of one step, of which the model knows nothing."""
    kernel = product_kernel("mk,kn->mn", (m, 1280), (1280, 512), weight=True)
    space = space_of(kernel, X86)
    assert 1 in [space.schedules[n].to_json()["r0"] for n in space.order[:6]]


def test_the_best_of_every_family_comes_early() -> None:
    def order(families: str, *costs: float) -> str:
        some = costs or [1.0] * len(families)
        found = [
            Candidate(None, "extended", cost, 0, 0.0, family)
            for cost, family in zip(some, families, strict=True)
        ]
        return "".join(families[n] for n in mixed(range(len(found)), found))

    assert order("aaaaabbc") == "abacabaa"
    assert order("aaaa") == "aaaa"
    assert order("") == ""
    # what costs more than twice the best waits for its turn
    assert order("aaaab", 1, 1, 1, 1, 2) == "abaaa"
    assert order("aaaab", 1, 1, 1, 1, 2.1) == "aaaab"


def test_objectives_change_no_number(compiled: Compiled) -> None:
    kernel = compiled.codes[0].kernel
    latency, traffic, scratch = (
        space_of(kernel, X86, o) for o in ("latency", "traffic", "scratch")
    )  # fmt: skip
    assert latency.schedules == traffic.schedules == scratch.schedules
    assert latency.checksum == traffic.checksum
    assert len({latency.order, traffic.order, scratch.order}) == 3
    needs = [build(kernel, scratch.schedules[n], "wasm", "x86").scratch for n in scratch.order]
    assert needs == sorted(needs)


def test_what_does_not_serve_the_objective_is_not_tried() -> None:
    """Of scratch memory and traffic it is known beforehand who needs less than the default."""
    # columns that are copied first: the default needs scratch memory
    kernel = product_kernel("mk,nk->mn", (96, 512), (96, 512), weight=False)
    for device in (X86, ARM):
        latency, scratch = (space_of(kernel, device, o) for o in ("latency", "scratch"))
        assert latency.trial == latency.order
        most = build(kernel, scratch.schedules[0], "wasm", device.variant).scratch
        assert most > 0
        for number in scratch.order[::12]:
            need = build(kernel, scratch.schedules[number], "wasm", device.variant).scratch
            assert (need < most) is (number in scratch.trial)
        assert 0 < len(scratch.trial) < len(scratch.order)
    packed = product_kernel("mk,kn->mn", (128, 384), (384, 384), weight=True)
    traffic, scratch = (space_of(packed, X86, o) for o in ("traffic", "scratch"))
    assert 0 < len(traffic.trial) < len(traffic.order)
    assert scratch.trial == (), "nothing needs less than none"


def test_a_space_of_one_says_why(tmp_path: Path) -> None:
    """In the space, in what a server or a static build offers, and nowhere else."""
    made = compile_model(saved(rows(), tmp_path), Options(extents={"n": 64}, variants=("x86",)))
    kernels = made.program.kernels
    assert any(k.extents for k in kernels)
    for number, kernel in enumerate(kernels):
        space = space_of(kernel, X86)
        assert space.fixed == ("extents" if kernel.extents else "")
        assert not space.fixed or space.trial == ()
        asked = catalogue.offer(number, space, 0, asked=space.gold)
        assert asked.fixed == candidates.ordered(number, space, 0, ())["fixed"] == space.fixed
    assert space_of(product_kernel("mk,kn->mn", (8, 8), (8, 8), weight=True), X86).fixed == ""


def test_where_nothing_can_be_tried_the_error_says_what_to_do(compiled: Compiled) -> None:
    """Code of the target C has one schedule."""
    device = replace(X86, target="c")
    with pytest.raises(NoSpace) as raised:
        space_of(compiled.codes[0].kernel, device)
    assert "device class of another target" in raised.value.hint
    assert raised.value.facts["device"] == device.id
    kernel, foreign = compiled.codes[0].kernel, space_of(compiled.codes[0].kernel, X86).schedules[0]
    with pytest.raises(UsageError, match="one schedule"):
        build(kernel, foreign, "c", "scalar")
    with pytest.raises(InputError, match="no choices"):
        target("c").schedule(foreign.to_json())
    made = build(kernel, target("c").schedule({}), "c", "scalar")
    assert made.extension == "c"
    assert made.grain == made.tiles > 1


def test_build(compiled: Compiled) -> None:
    kernel = compiled.codes[0].kernel
    space = space_of(kernel, X86)
    for number in (0, *space.order[:3]):
        made = build(kernel, space.schedules[number], "wasm", "x86")
        assert made.module.startswith(b"\0asm")
        assert made.digest == hashlib.sha256(made.module).hexdigest()
        assert made.schedule == space.schedules[number]
        assert made.features == ("relaxed_simd",)
        assert made.scratch <= SCRATCH
        assert made.tiles > 1
        assert (made.extension, made.grain) == ("wasm", target("wasm").grain(kernel, made.tiles))
    plain = build(kernel, space.schedules[0], "wasm", "x86-simd")
    assert plain.features == ()


@pytest.mark.parametrize(
    "change",
    [
        {"x0": 0}, {"r1": -1}, {"x1": 1 << 40}, {"y1": 2.5}, {"y0": 6}, {"y0": True},
        {"lanes": 2}, {"order": "up"}, {"stage": 3},
    ],
    ids=str,
)  # fmt: skip
def test_schedules_that_mean_nothing_are_typed_errors(compiled: Compiled, change: dict) -> None:
    kernel = compiled.codes[0].kernel
    wrong = replace(space_of(kernel, X86).schedules[0], **change)
    with pytest.raises(UsageError, match=next(iter(change))):
        build(kernel, wrong, "wasm", "x86")


def test_every_candidate_is_a_schedule_from_outside(compiled: Compiled) -> None:
    kernel = compiled.codes[0].kernel
    assert not any(objection(kernel, s) for s in space_of(kernel, X86).schedules)


def test_kernels_of_a_bundle_by_spec_number(compiled: Compiled, tmp_path) -> None:
    write(compiled.contents, tmp_path)
    bundle = open_bundle(tmp_path)
    assert kernels_of(bundle) == compiled.program.kernels


def test_a_grain_follows_the_compilers_rule() -> None:
    flops, size = 10_000_000, 1_000_000
    step = StepEntry(spec=0, kernel="k", node="n", flops=flops, bytes=size)
    for tiles in (2, 17, 64, 1000, 100_000):
        (way,) = share([Work(flops, size, tiles, (), ())])
        assert target("wasm").grain(step, tiles) == way.grain
    assert target("wasm").grain(step, 1) == 1
    small = StepEntry(spec=0, kernel="k", node="n", flops=10, bytes=10)
    assert target("wasm").grain(small, 12) == 12, "a serial step is one ticket"

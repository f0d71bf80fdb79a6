"""Primitives: each setting changes one variable, findings decide, and what they fix is obeyed.

Nothing is timed: rounds come from made-up clocks.  Any setting of any primitive gives the same
result as the reference host, since a wrong kernel that is fast would fix the wrong setting.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import accumulate
from math import comb
from pathlib import Path

import numpy as np
import pytest
from cli_call import Called
from helpers.attention import VARIANTS
from helpers.graphs import interpreted, results, run_steps, steps_of
from helpers.integers import quantised_graph
from helpers.kernels import ANCHORS, assert_close, expected, interpret, random_case
from helpers.loop_check import check_loops
from helpers.seeds import seeds

from tilewright.base.errors import UsageError
from tilewright.benchkernel import CANDIDATE, candidates, matmul_step
from tilewright.bundle import write
from tilewright.cli import primitives as command
from tilewright.compiler import Options
from tilewright.graph.pack import pack
from tilewright.graph.rewrite import rewrite
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.kernel.collapse import collapse
from tilewright.kernel.lower import lower
from tilewright.kernel.roles import operands
from tilewright.kernel.schedule import Machine, Schedule, default_schedule
from tilewright.kernel.spec import Kernel
from tilewright.targets import wasm
from tilewright.targets.classes import find
from tilewright.tuning import findings, primitives
from tilewright.tuning.candidates import space_of
from tilewright.tuning.findings import Device, Document, Finding
from tilewright.tuning.primitives import MATMUL, MEASURED, NAMED, PRIMITIVES, Primitive, untuned

every_primitive = pytest.mark.parametrize("primitive", MEASURED, ids=lambda p: p.name)
MACHINES = [t.machine for t in wasm.TARGETS.values()]


def base(primitive: Primitive, machine: Machine = MACHINES[0]) -> tuple[Kernel, Schedule]:
    kernel = matmul_step(*MATMUL, weight=primitive.columns == "packed").kernel
    return kernel, default_schedule(kernel, machine)


# ---- the table -----------------------------------------------------------------------------------


def test_the_table_has_all_of_the_paper() -> None:
    paper = {"cache_read", "cache_write", "reorder", "bind", "unroll", "vectorize"}
    assert paper | {"tile_registers", "tile_cache"} <= set(NAMED)
    assert {name for name, _ in wasm.PASSES} <= set(NAMED)
    assert len(NAMED) == len(PRIMITIVES)
    assert [p.name for p in PRIMITIVES if p.kind == "none"] == ["bind"]


@every_primitive
@pytest.mark.parametrize("machine", MACHINES, ids=list(wasm.TARGETS))
def test_one_variable_at_a_time(primitive: Primitive, machine: Machine) -> None:
    _, start = base(primitive, machine)
    before, after = (s.change(start) for s in (primitive.untuned, primitive.tuned))
    changed = {k for k, v in asdict(before).items() if v != asdict(after)[k]}
    code = (primitive.untuned.without, primitive.untuned.fma) != (
        primitive.tuned.without,
        primitive.tuned.fma,
    )
    assert bool(changed) != code, "a primitive changes the schedule or the code, not both"
    assert changed <= {"x0", "y0"} or changed <= {"x1", "y1"} or len(changed) == 1
    assert after == start or primitive.name in ("split", "cache_read_rows"), "the base is tuned"


@every_primitive
def test_has_tells_the_settings_apart(primitive: Primitive) -> None:
    kernel, start = base(primitive)
    roles = operands(kernel)
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
            (out,) = plan.outputs
            host.memory.write(bytes(out.bytes), out.address)
            host.time(1, number)
            got = np.frombuffer(host.memory.read(out.address, out.bytes), "f4").reshape(out.shape)
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
    packed = pack(rewrite(graph))
    pick = interpreted(lambda kernel: untuned(kernel, Machine()))
    (got,), (want,) = run_steps(packed, steps_of(packed), inputs, pick), results(graph, inputs)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_untuned_attention(name: str) -> None:
    graph = VARIANTS[name]()
    numbers = np.random.default_rng(3)
    inputs = {n: numbers.standard_normal(x.shape).astype("f4") for n, x in graph.inputs}
    packed = pack(rewrite(graph))
    pick = interpreted(lambda kernel: untuned(kernel, Machine()))
    got = run_steps(packed, steps_of(packed), inputs, pick)
    for found, want in zip(got, results(graph, inputs), strict=True):
        assert np.abs(found - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("weight", [True, False])
def test_untuned_has_nothing_tuned(weight: bool) -> None:
    kernel = matmul_step(*MATMUL, weight=weight).kernel
    roles = operands(kernel)
    assert roles is not None
    poor = untuned(kernel, Machine())
    named = [p for p in MEASURED if p.has is not None and p.concerns(roles) and p.name != "split"]
    assert len(named) >= 6
    assert not [p.name for p in named if p.has is not None and p.has(poor)]


# ---- findings and decisions ----------------------------------------------------------------------


FASTER, SLOWER = Finding(1.5, 1.4, 1.6, 9), Finding(0.7, 0.6, 0.8, 9)
UNSURE = Finding(1.02, 0.98, 1.1, 9)


@pytest.mark.parametrize(
    ("found", "verdict", "tuned"),
    [
        ([FASTER, FASTER], "consistent", True),
        ([SLOWER, SLOWER], "consistent", False),
        ([FASTER, UNSURE], "consistent", True),
        ([FASTER, SLOWER], "device-dependent", None),
        ([FASTER, SLOWER, UNSURE], "device-dependent", None),
        ([UNSURE, UNSURE], "no effect", None),
        ([Finding(1.005, 1.004, 1.006, 9)], "no effect", None),
        ([], "no effect", None),
    ],
)
def test_decide(found: list[Finding], verdict: str, tuned: bool | None) -> None:
    decision = findings.decide(found)
    assert (decision.verdict, decision.tuned) == (verdict, tuned)


@pytest.mark.parametrize("n", range(1, 41))
def test_interval_holds_the_median(n: int) -> None:
    """The interval's order statistics miss the median with 5 % at most, by the binomial itself."""
    found = findings.median_interval([float(i) for i in range(n, 0, -1)])
    at = round(found.low) - 1
    assert (found.high, found.ratio, found.n) == (n - at, (n + 1) / 2, n)
    below = [0, *accumulate(comb(n, i) / 2**n for i in range(n + 1))]
    assert n < 6 or 2 * below[at + 1] <= 0.05
    assert 2 * below[at + 2] > 0.05, "no narrower interval would do"


def device(host: str, cpu: str = "a", **found: Finding) -> Device:
    return Device(host, f"{host} 1", cpu, "2026-01-01", "0", found)


def test_documents_survive_files_and_join(tmp_path: Path) -> None:
    first = Document((8, 8, 8), (device("x", unroll=FASTER), device("y", unroll=UNSURE)))
    findings.write(first, tmp_path / "a.json")
    assert findings.read(tmp_path / "a.json") == first
    newer = Document((8, 8, 8), (device("y", unroll=SLOWER), device("y", "b", unroll=SLOWER)))
    joined = findings.merged([first, newer])
    assert [d.key for d in joined.devices] == [("x", "a"), ("y", "a"), ("y", "b")]
    assert findings.decisions(joined.devices)["unroll"].verdict == "device-dependent"
    assert joined.devices[1].rho == (0,)
    with pytest.raises(UsageError, match="different products"):
        findings.merged([first, Document((4, 4, 4), ())])


GOOD = json.dumps(findings.to_json(Document((8, 8, 8), (device("x", unroll=FASTER),))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        GOOD[:-1],
        GOOD.replace('"format": 1', '"format": 2'),
        GOOD.replace("1.4", "1.7"),
        GOOD.replace("1.6", "Infinity"),
        GOOD.replace("1.6", "NaN"),
        GOOD.replace('"host": "x", ', ""),
        GOOD.replace("[8, 8, 8]", "[8, 8]"),
    ],
)
def test_files_of_others_are_refused(text: str, tmp_path: Path) -> None:
    assert text != GOOD
    path = tmp_path / "found.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="no findings") as raised:
        findings.read(path)
    assert raised.value.facts["path"] == str(path)


# ---- the data that is shipped --------------------------------------------------------------------


def test_the_data_file_is_as_measured() -> None:
    """Decisions follow from the devices, names are those of the table."""
    data = json.loads(findings.DATA.read_text())
    document = findings.read()
    assert data == json.loads(json.dumps(findings.to_json(document)))
    assert document.matmul == MATMUL
    assert set(data["decisions"]) == ({p.name for p in MEASURED} if document.devices else set())


def fixed() -> dict[str, bool]:
    """Primitives of one better setting on all measured devices: True where it is the tuned one."""
    decided = primitives.decided().items()
    return {name: d.tuned for name, d in decided if d.tuned is not None}


def test_only_choices_are_fixed() -> None:
    assert all(NAMED[name].kind in ("switch", "range") for name in fixed())
    decided = findings.decisions(findings.read().devices)
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


@pytest.mark.parametrize("primitive", CHOICES, ids=lambda p: p.name)
def test_what_devices_decide_has_both_settings(
    primitive: Primitive, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, start = base(primitive)
    decide_as(monkeypatch, primitive.name, "device-dependent", None)
    made = primitives.choices(kernel, start)
    both = {primitive.untuned.change(start), primitive.tuned.change(start)}
    assert set(made) == (both if primitive.kind == "switch" else {start})
    decide_as(monkeypatch, primitive.name, "no effect", None)
    assert primitives.choices(kernel, start) == (start,)


def test_sizes_and_other_kernels_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {p.name for p in MEASURED if p.kind == "size"} & set(primitives.decided())
    seen = (random_case(s, "map").kernel for s in range(9))
    kernel = next(k for k in seen if operands(k) is None)
    schedule = default_schedule(kernel, Machine())
    decide_as(monkeypatch, "unroll", "consistent", True)
    assert primitives.choices(kernel, schedule) == (schedule,)


def test_kernels_without_the_choice_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of one step cannot be unrolled; columns in rows are no panels."""
    decide_as(monkeypatch, "unroll", "consistent", True)
    single = matmul_step(16, 1, 16).kernel
    assert primitives.choices(single, Schedule(x0=2, y0=8)) == (Schedule(x0=2, y0=8),)
    decide_as(monkeypatch, "cache_read", "consistent", True)
    rows = matmul_step(64, 64, 64, weight=False).kernel
    staged = Schedule(x0=2, y0=8, stage=True)
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
    roles = operands(kernel)
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


# ---- the command ---------------------------------------------------------------------------------


def test_findings_of_others_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    findings.write(Document(MATMUL, (device("x", unroll=FASTER),)), ours)
    findings.write(Document(MATMUL, (device("y", unroll=SLOWER),)), theirs)
    called = Called(capsys, "primitives", "--add", theirs, "-o", ours, "--json")
    assert called.code == 0
    assert called.json["decisions"]["unroll"]["verdict"] == "device-dependent"
    assert [d.host for d in findings.read(ours).devices] == ["x", "y"]
    assert "device-dependent" in Called(capsys, "primitives", "--add", ours).out


@pytest.mark.parametrize("host", ["reference", "netscape"])
def test_hosts_that_cannot_time_are_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    called = Called(capsys, "primitives", "--host", host, "--json")
    assert called.code != 0
    assert called.json["error"]["hint"]


def test_rounds_swap_sides_and_end_early_where_settings_lie_far_apart() -> None:
    asked: list[bool] = []

    def run(tuned: bool) -> float:
        asked.append(tuned)
        return 1.0 if tuned else 2.0

    found = command._finding(run)
    assert found == Finding(2.0, 2.0, 2.0, command.FEW_ROUNDS)
    assert asked[:4] == [False, True, True, False]
    assert command._finding(lambda tuned: 1.0).n == command.ROUNDS
    with pytest.raises(UsageError, match="clock"):
        command._finding(lambda tuned: 0.0)


@pytest.mark.parametrize(
    ("times", "passes"),
    [([9.0] * 99, 6), ([9.0] * 5 + [5.0] + [4.9] * 99, 7), ([2.0**-n for n in range(99)], 16)],
)
def test_warm_up_ends_when_nothing_becomes_faster(times: list[float], passes: int) -> None:
    left = iter(times)
    command.warm_up([lambda: next(left)])
    assert len(list(left)) == len(times) - passes


def test_a_way_per_kind_of_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal passes, features and columns share a bundle; equal schedules a plan."""
    monkeypatch.setattr(command, "MATMUL", (16, 16, 16))
    paths, places = command._bundles(tmp_path)
    assert len(paths) == 3 + len(wasm.PASSES)
    assert set(places) == {(p.name, tuned) for p in MEASURED for tuned in (False, True)}
    assert places["unroll", True] == places["fma", True] != places["unroll", False]
    assert places["unroll", False].bundle == places["fma", True].bundle
    assert places["fma", False].bundle != places["fma", True].bundle

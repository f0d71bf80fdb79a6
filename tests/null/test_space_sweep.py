"""The sweep over a space, sessions of the tuner, their tables: made-up clocks, no browser."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tilewright.benchkernel import matmul_step
from tilewright.bundle import open_bundle
from tilewright.kernel.schedule import Machine, Schedule, default_schedule
from tilewright.targets.classes import find
from tilewright.targets.wasm import TARGETS
from tilewright.tuning.candidates import Space, kernels_of, space_of
from tilewright.tuning.primitives import untuned

DEVICE = find("wasm-x86-relaxed")

pytestmark = pytest.mark.usefixtures("benchmarks")


@pytest.fixture
def sweeps() -> ModuleType:
    return importlib.import_module("space")


@pytest.fixture
def report() -> ModuleType:
    return importlib.import_module("report_space")


def record(sweeps: ModuleType, hosts: tuple[str, ...] = ("x", "y")) -> dict[str, Any]:
    """A sweep of a small product on two hosts; times are random but for two winners."""
    step = matmul_step(48, 64, 48)
    space = space_of(step.kernel, DEVICE)
    rows = []
    for number, host in enumerate(hosts):
        rng = Random(number)
        times = [rng.uniform(2, 3) for _ in space.schedules]
        times[-1 - number] = 1.0
        timed = sweeps.Timed(times, [9] * len(times))
        rows.append(sweeps.row(host, f"{host} 1", "K", step, space, timed))
    return {"rows": rows}


@pytest.mark.parametrize("seed", range(5))
def test_a_sweep_finds_the_fastest_through_noise(seed: int, sweeps: ModuleType) -> None:
    """A neighbour halves the speed now and then, for longer than a round lasts."""
    rng = Random(seed)
    true = [rng.uniform(1.0, 3.0) for _ in range(40)]
    true[7] = 0.9
    asked = [0] * 40
    clock = 0.0

    def timer(runs: int, plan: int = 0) -> list[float]:
        nonlocal clock
        asked[plan] += 1
        slow = 10 if asked[plan] < 3 else 1  # the engine's first tier
        slow *= 1 + (int(clock / 150) % 3 == 1)
        found = [slow * true[plan] * (1 + abs(rng.gauss(0, 0.01))) for _ in range(runs)]
        clock += sum(found)
        return found

    timed = sweeps.sweep(timer, 40)
    assert sweeps.best_of(timed.times, range(40)) == 7
    assert timed.rounds[7] == sweeps.ROUNDS - sweeps.WARM_ROUNDS
    assert min(timed.rounds) < timed.rounds[7], "those far behind are out early"
    for t, wanted in zip(timed.times, true, strict=True):
        assert t / timed.times[0] == pytest.approx(wanted / true[0], rel=0.06)


def test_rounds_until(sweeps: ModuleType) -> None:
    times = [2.0, 1.5, 1.02, 1.0, 3.0]
    assert sweeps.rounds_until(times, (4, 1, 2, 3)) == 3
    assert sweeps.rounds_until(times, (4, 1, 2, 3), share=1.0) == 4
    assert sweeps.rounds_until(times, (4, 1)) is None


def test_powers_of_two(sweeps: ModuleType) -> None:
    whole = Schedule(x0=4, y0=8, r0=4, x1=64, y1=64, r1=128)
    assert sweeps.powers_of_two(whole)
    assert not sweeps.powers_of_two(Schedule(x0=6, y0=8))


def test_a_row_tells_ranks_and_shares(sweeps: ModuleType) -> None:
    rows = record(sweeps)["rows"]
    for number, row in enumerate(rows):
        assert row["optimum"]["candidate"] == row["candidates"] - 1 - number
        assert row["optimum"]["share"] == 1.0
        assert row["default"]["candidate"] == row["default"]["trial"] == 0
        assert row["rounds"] == row["optimum"]["trial"] == row["rounds_without_default"]
        assert 0 < row["default"]["share"] <= 0.5


def test_tables_and_pictures(sweeps: ModuleType, report: ModuleType) -> None:
    found = record(sweeps)
    assert report.space(found).count("\n") == 1 + len(found["rows"])
    assert "no power of two" in report.details(found)
    pictures = dict(report.charts(found))
    assert set(pictures) == {"space-x.svg", "space-y.svg"}
    shapes = {"rows": [{"host": "x", "kernel": "a", "shares": {"a": 1.0, "b": 0.9}}]}
    assert "| a | 100 % | 90 % |" in report.shapes(shapes)


def test_one_choice_for_all_engines(report: ModuleType) -> None:
    """b is second everywhere and first nowhere: the best single choice."""
    rows = [{"times": [1.0, 1.1, 2.0]}, {"times": [2.0, 1.1, 1.0]}]
    best, mean = report.single(rows)
    assert best == 1
    assert mean == pytest.approx(1 / 1.1)
    assert report.share_on(rows[0], 2) == 0.5


def test_only_equal_spaces_are_compared(sweeps: ModuleType, report: ModuleType) -> None:
    rows = record(sweeps)["rows"]
    assert set(report.by_kernel(rows)) == {"K"}
    rows[1]["checksum"] = "another"
    assert not report.by_kernel(rows)


def test_a_wrong_candidate_stops_the_sweep(
    sweeps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = matmul_step(24, 16, 24)
    start = default_schedule(step.kernel, Machine())
    schedules = [start, untuned(step.kernel, Machine())]
    sweeps.check(sweeps.written(step, schedules, DEVICE, tmp_path / "good"))
    broken = importlib.import_module("tilewright.kernel.micro").Micro
    monkeypatch.setattr(broken, "_finish", _skips_last(broken._finish))
    bundle = sweeps.written(step, schedules, DEVICE, tmp_path / "bad")
    with pytest.raises(AssertionError, match="is off by"):
        sweeps.check(bundle)


def _skips_last(finish: Any) -> Any:
    def wrong(self: Any, points: Any, panel: Any) -> None:
        points.points = points.points[:-1] or points.points[:0]
        finish(self, points, panel)

    return wrong


def test_subjects_are_single_kernels_that_have_a_space(sweeps: ModuleType) -> None:
    small = [n for n in sweeps.SUBJECTS if "conv" not in n and "wise" not in n]
    for name in small:
        step = sweeps.SUBJECTS[name]()
        space: Space = space_of(step.kernel, DEVICE)
        assert len(space.schedules) > 1, name
        assert sorted(space.order) == list(range(1, len(space.schedules)))
        assert step.output.size == step.kernel.buffers[0].size
    assert {k for group in sweeps.CROSSED for k in group} <= set(small)


# ---- sessions of the tuner -----------------------------------------------------------------------


@pytest.fixture
def sessions() -> ModuleType:
    return importlib.import_module("tuning")


def test_shares_by_round(sessions: ModuleType) -> None:
    shares = [(0, 0.1), (3, 0.5), (7, 0.98), (9, 0.96), (12, 0.99), (40, 1.0)]
    assert sessions.reached(shares) == 12
    assert sessions.reached(shares[:2]) is None
    assert sessions.reached([(0, 0.99), (5, 1.0)]) == 0
    assert sessions.share_after(shares, 32) == 0.99
    assert sessions.share_after(shares, 2) == 0.1


def test_a_session_keeps_what_was_in_use(sessions: ModuleType) -> None:
    session = sessions.Session()
    for event in (
        {"type": "start"},
        {"type": "trial", "verdict": "slower"},
        {"type": "trial", "verdict": "faster"},
        {"type": "swap", "candidate": 5},
        {"type": "trial", "verdict": "same"},
        {"type": "rollback", "candidate": 6},
        {"type": "swap", "candidate": 7},
    ):
        session.take(event)
    assert session.used == [(2, 5), (3, 7)]
    assert sessions.counted(t["verdict"] for t in session.trials) == {
        "slower": 1, "faster": 1, "same": 1,
    }  # fmt: skip


@pytest.mark.parametrize("start", ["poor", "good"])
def test_one_kernel_bundles_start_as_told(start: str, sessions: ModuleType, tmp_path: Path) -> None:
    step = matmul_step(24, 16, 24)
    path = sessions.kernel_bundle(step, start, tmp_path / start)
    bundle = open_bundle(path)
    (kernel,) = kernels_of(bundle)
    (listed,) = json.loads(bundle.read(bundle.manifest.kernels))
    for name, build in listed["builds"].items():
        machine = TARGETS[name].machine
        assert Schedule.from_json(build["schedule"]) == sessions.STARTS[start](kernel, machine)


def test_the_server_part_is_counted_per_candidate(
    sessions: ModuleType, sweeps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = matmul_step(24, 16, 24)
    monkeypatch.setattr(sweeps, "SUBJECTS", {"K": lambda: step})
    row = sessions.server("K")
    assert row["candidates"] == len(space_of(step.kernel, sweeps.device_here()).schedules)
    assert 0 < row["median_bytes"] <= row["most_bytes"]


def test_tuning_tables(report: ModuleType) -> None:
    rows = [{"part": "p95", "subject": "m", "host": "x", "ratio": 1.05}]
    assert "| m | x | – | – | 1.05 |" in report.tuning({"rows": rows})

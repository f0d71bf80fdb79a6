"""The sweep over a space and its tables: made-up clocks, no browser."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import optimum
from benchmarks.report import spaces as report
from benchmarks.tuning import candidate_times
from benchmarks.tuning import sweep as sweeps
from benchmarks.tuning.subjects import SUBJECTS
from lab.primitives.table import untuned
from lab.subjects import matmul_step
from tilewright.hosts.reference import ReferenceHost
from tilewright.targets.device_classes import find
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, schedule_from_json
from tilewright.tuning.candidates import Space, space_of

DEVICE = find("wasm-x86-relaxed")


def record(hosts: tuple[str, ...] = ("x", "y")) -> dict[str, Any]:
    """A sweep of a small product on two hosts; times are random but for two winners."""
    step = matmul_step(48, 64, 48)
    space = space_of(step.kernel, DEVICE)
    rows = []
    for number, host in enumerate(hosts):
        rng = Random(number)
        times = [rng.uniform(2, 3) for _ in space.schedules]
        times[-1 - number] = 1.0
        timed = candidate_times.Timed(times, [9] * len(times))
        rows.append(sweeps.row(host, f"{host} 1", "K", step, space, timed))
    return {"rows": rows}


@pytest.mark.parametrize("seed", range(5))
def test_a_sweep_finds_the_fastest_through_noise(seed: int) -> None:
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

    timed = candidate_times.alternate(timer, 40)
    assert sweeps.best_of(timed.times, range(40)) == 7
    assert timed.rounds[7] == candidate_times.ROUNDS - candidate_times.WARM_ROUNDS
    assert min(timed.rounds) < timed.rounds[7], "those far behind are out early"
    for t, wanted in zip(timed.times, true, strict=True):
        assert t / timed.times[0] == pytest.approx(wanted / true[0], rel=0.06)


def test_trials_until_near_the_optimum() -> None:
    times = [2.0, 1.5, 1.02, 1.0, 3.0]
    assert optimum.trials_until_near(times, (4, 1, 2, 3)) == 3
    assert optimum.trials_until_near(times, (4, 1)) is None


def test_the_arithmetic_of_a_random_order() -> None:
    """All orders of five candidates with two good ones: the mean place of the first good one."""
    orders = list(itertools.permutations([True, True, False, False, False]))
    mean = statistics.mean(order.index(True) + 1 for order in orders)
    assert optimum.trials_at_random(5, 2) == mean
    assert optimum.trials_at_random(5, 0) is None
    # the first one is the default, which is not tried
    assert report.in_random_order({"times": [1.0, 1.02, 1.01, 2.0, 2.0, 2.0]}) == mean


def test_long_runs_take_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not fewer than the first ones, in which those far behind are dropped."""
    clock = iter(range(10**6))
    monkeypatch.setattr(candidate_times.time, "monotonic", lambda: 1e3 * next(clock))
    timed = candidate_times.alternate(lambda runs, plan: [1.0 + plan] * runs, 4)
    assert timed.rounds[1:] == [candidate_times.FEWEST - candidate_times.WARM_ROUNDS, 2, 2]


def test_a_row_tells_ranks_and_shares() -> None:
    rows = record()["rows"]
    for number, row in enumerate(rows):
        assert row["optimum"]["candidate"] == row["candidates"] - 1 - number
        assert row["optimum"]["share"] == 1.0
        assert row["default"]["candidate"] == row["default"]["trial"] == 0
        assert row["rounds"] == row["optimum"]["trial"] == row["rounds_without_default"]
        assert 0 < row["default"]["share"] <= 0.5


def test_classes_of_devices_have_tables_of_their_own() -> None:
    """A picture has one bar per kernel: of the class measured last, where it has one."""
    rows = record()["rows"]
    others = [r | {"device": "another", "date": "2026-02-01"} for r in rows]
    more = {**rows[0], "kernel": "L"}
    found = {"rows": [*others, *rows, more]}  # those without a date are older
    swept, *_, engines = report.space(found).split("\n\n")
    for table, lines in ((swept, 2), (engines, 1)):
        assert table.count("| another |") == table.count(f"| {DEVICE.id} |") == lines
    mine = [r for r in found["rows"] if r["host"] == "x"]
    assert [(r["kernel"], r["device"]) for r in report.newest(mine)] == [
        ("K", "another"), ("L", DEVICE.id),
    ]  # fmt: skip
    assert dict(report.charts(found))["tuning.sweep.x.svg"].count(">K<") == 1


def test_one_schedule_for_all_shapes() -> None:
    shares = [{"a": 1.0, "b": 0.9}, {"a": 0.64, "b": 1.0}]
    best, least, mean = report.one_for_all(shares)
    assert (best, least) == ("b", 0.9)
    assert mean == pytest.approx(0.9**0.5)
    rows = [{"host": "x", "kernel": k, "device": "d", "shares": s}
            for k, s in zip("ab", shares, strict=True)]  # fmt: skip
    text = report.shapes({"rows": rows})
    assert "| x, class d: a, b | b | 90 % | 95 % | 1.054× |" in text
    del rows[0]["device"]
    assert "| x, class unknown: a, b |" in report.shapes({"rows": rows[:1]})


def test_the_optimum_is_of_the_same_class_and_space() -> None:
    space = space_of(matmul_step(48, 64, 48).kernel, DEVICE)
    (row,) = record(("x",))["rows"]
    other = row | {"device": "another", "optimum": row["default"]}
    wanted = schedule_from_json(row["optimum"]["schedule"])
    assert sweeps.optimum_of([other, row], "x", "K", space) == wanted
    for rows in ([other], [row | {"checksum": "of before"}], [row | {"host": "y"}], []):
        with pytest.raises(SystemExit, match=DEVICE.id) as told:
            sweeps.optimum_of(rows, "x", "K", space)
        assert f"tuning.sweep --host x --kernel K --device {DEVICE.id}" in str(told.value)


def test_one_choice_for_all_engines() -> None:
    """b is second everywhere and first nowhere: the best single choice."""
    rows = [{"times": [1.0, 1.1, 2.0]}, {"times": [2.0, 1.1, 1.0]}]
    best, mean = report.single(rows)
    assert best == 1
    assert mean == pytest.approx(1 / 1.1)
    assert report.share_on(rows[0], 2) == 0.5


def test_only_equal_spaces_are_compared() -> None:
    rows = record()["rows"]
    assert set(report.by_kernel(rows)) == {"K"}
    rows[1]["checksum"] = "another"
    assert not report.by_kernel(rows)


class Other(ReferenceHost):
    """Its results are a little larger."""

    def run(self, inputs: Mapping[str, Any]) -> Any:
        found = super().run(inputs)
        for array in found.outputs.values():
            array *= 1.001
        return found


def test_a_wrong_candidate_stops_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = matmul_step(24, 16, 24)
    start = default_schedule(step.kernel, Machine())
    schedules = [start, untuned(step.kernel, Machine())]
    bundle = candidate_times.write_candidates(step, schedules, DEVICE, tmp_path / "bundle")
    candidate_times.check_candidates(bundle)
    monkeypatch.setattr(candidate_times, "ReferenceHost", Other)
    with pytest.raises(SystemExit, match="candidate 0: the error is"):
        candidate_times.check_candidates(bundle)


def test_subjects_are_single_kernels_that_have_a_space() -> None:
    small = [n for n in SUBJECTS if "conv" not in n and "wise" not in n]
    for name in small:
        step = SUBJECTS[name]()
        space: Space = space_of(step.kernel, DEVICE)
        assert len(space.schedules) > 1, name
        assert sorted(space.order) == list(range(1, len(space.schedules)))
        assert step.output.size == step.kernel.buffers[0].size
    assert {k for group in sweeps.CROSSED for k in group} <= set(small)

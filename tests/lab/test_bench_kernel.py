"""`python -m lab bench-kernel`: what it says on each host, its statistics and its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_call import LabCalled

from lab.bench_kernel import ROUND, WARMUP_MS, Series, summary, warm_times
from tilewright.base.errors import HostError, UsageError
from tilewright.hosts.browser_dawn import require_dawn
from tilewright.hosts.browser_discovery import find

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("bench-kernel", "abacus", "1x2x3"),
        ("bench-kernel", "matmul", "1x2"),
        ("bench-kernel", "matmul", "1x2xthree"),
        ("bench-kernel", "matmul", "1x2x3", "--threads", "0"),
        ("bench-kernel", "matmul", "1x2x3", "--host", "reference"),
    ],
    ids=" ".join,
)
def test_usage_errors(capsys: Capture, arguments: tuple[str, ...]) -> None:
    words = LabCalled(capsys, *arguments)
    assert (words.code, words.out) == (2, "")
    assert words.err.startswith("Error: ")
    plain = LabCalled(capsys, *arguments, "--json")
    assert (plain.code, plain.err) == (2, "")
    assert plain.json["error"]["code"] == "usage"
    assert plain.json["error"]["hint"]


def test_help(capsys: Capture) -> None:
    called = LabCalled(capsys, "--help")
    assert called.code == 0
    for command in ("bench-kernel", "space", "primitives"):
        assert command in called.out
        explained = LabCalled(capsys, command, "--help")
        assert explained.code == 0
        assert "--json" in explained.out


def test_bench_kernel(capsys: Capture) -> None:
    called = LabCalled(
        capsys, "bench-kernel", "matmul", "64x96x48", "--host", "wasmtime", "--runs", 6, "--json"
    )
    assert called.code == 0
    said = called.json
    assert said["n"] == 6
    assert said["size"] == [64, 96, 48]
    assert said["gflops"] > 0
    assert said["ratio"] == pytest.approx(said["gflops"] / said["peak_gflops"])
    assert said["median_ms"] == pytest.approx(2 * 64 * 96 * 48 / said["gflops"] / 1e6)
    assert said["first_ms"] > 0
    assert json.dumps(said)


@pytest.mark.browser
@pytest.mark.skipif(
    find("chromium") is None or find("firefox") is None, reason="needs Chromium and Firefox"
)
@pytest.mark.seldom(4)
@pytest.mark.by_turns
@pytest.mark.parametrize("host", ["chromium", "firefox"])
def test_in_a_browser(capsys: Capture, host: str) -> None:
    called = LabCalled(
        capsys, "bench-kernel", "matmul", "96x192x96", "--host", host, "--runs", 6, "--json"
    )
    assert called.code == 0, called.json
    assert called.json["n"] == 6
    assert called.json["gflops"] > 0
    assert called.json["first_ms"] > 0


@pytest.mark.browser
@pytest.mark.seldom(4)
def test_in_dawn(capsys: Capture) -> None:
    """Nothing there tells the peak."""
    try:
        software = require_dawn().adapter["software"]
    except HostError as error:
        pytest.skip(str(error))
    called = LabCalled(
        capsys, "bench-kernel", "matmul", "32x16x8", "--runs", 4, "--host", "dawn", "--json"
    )
    found = called.json
    assert (found["n"], found["gflops"] > 0, "ratio" in found) == (4, True, False)
    assert ("software" in found["engine"]) == software


def test_series() -> None:
    series = Series([1.0, 2.0, 3.0, 4.0, 5.0], flops=6_000_000)
    assert (series.median, series.gflops, series.spread) == (3.0, 2.0, 1.0)
    found = summary(series, Series([1.0, 1.0], flops=8_000_000), first=9.0)
    assert found["ratio"] == 0.25
    assert found == {
        "gflops": 2.0,
        "peak_gflops": 8.0,
        "ratio": 0.25,
        "median_ms": 3.0,
        "first_ms": 9.0,
        "spread": 1.0,
        "peak_spread": 0.0,
        "n": 5,
    }


def test_kernels_are_timed_warm_and_by_turns() -> None:
    calls: list[tuple[str, int]] = []

    def timer(name: str, milliseconds: float) -> Any:
        def run(runs: int) -> list[float]:
            calls.append((name, runs))
            return [milliseconds] * runs

        return run

    found = warm_times([timer("a", 50.0), timer("b", 100.0)], runs=ROUND + 2)
    assert found == [[50.0] * (ROUND + 2), [100.0] * (ROUND + 2)]
    warm = calls[:-4]
    assert sum(50.0 * n for name, n in warm if name == "a") >= WARMUP_MS
    assert sum(100.0 * n for name, n in warm if name == "b") >= WARMUP_MS
    assert calls[-4:] == [("a", ROUND), ("b", ROUND), ("b", ROUND), ("a", ROUND)]
    # A clock that shows nothing must not make it wait for ever.
    assert warm_times([timer("c", 0.0)], runs=2) == [[0.0, 0.0]]
    with pytest.raises(UsageError, match="too short"):
        _ = Series([0.0, 0.0], 1).gflops

"""Workloads: arrivals by their statistics, rates scaled to a load, what co-runs are judged by."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.workloads import PAPER_LOADS, WORKLOADS, Stream, Workload, workload
from lab.workloads.metrics import (
    above,
    achieved_occupancy,
    most_gain,
    normal_share,
    occupancy,
    queued,
    room_latencies,
    sequential_rate,
    undisturbed_rate,
)
from lab.workloads.models import MODELS
from lab.workloads.synthetic import Synthetic
from tilewright.base.errors import UsageError
from tilewright.base.quantiles import quantile, tail
from tilewright.elastic.arrivals import (
    Arrival,
    ClosedLoop,
    Poisson,
    Trace,
    Uniform,
)

OPEN: tuple[Arrival, ...] = (
    Uniform(12.5),
    Poisson(10),
    Synthetic(0.1, 0.02, 0.05, 0.3),
    Synthetic(0.0523, 0.0832, 0.003, 0.283),
    Trace((0.0, 0.1, 0.5), 1.0),
)


def gaps(arrival: Arrival, seconds: float = 4000, seed: int = 1) -> list[float]:
    return [b - a for a, b in pairwise(arrival.times(seconds, seed))]


# ---- arrivals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrival", OPEN, ids=str)
def test_times_ascend_within_the_run_at_the_rate(arrival: Arrival) -> None:
    times = arrival.times(2000, 3)
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] >= 0
    assert times[-1] < 2000
    # by chance: gaps of Poisson vary most but for one, by as much as they are long
    assert len(times) / 2000 == pytest.approx(arrival.rate, rel=0.05)
    assert arrival.clients == 0


@pytest.mark.parametrize("arrival", OPEN, ids=str)
def test_a_seed_gives_the_same_times(arrival: Arrival) -> None:
    assert arrival.times(30, 7) == arrival.times(30, 7)
    assert arrival.times(30, 7)[: len(arrival.times(10, 7))] == arrival.times(10, 7)
    if not isinstance(arrival, Trace):
        assert arrival.times(30, 7) != arrival.times(30, 8)


@pytest.mark.parametrize("arrival", OPEN, ids=str)
@given(factor=st.floats(0.1, 50))
def test_scaled_rates(arrival: Arrival, factor: float) -> None:
    assert arrival.scaled(factor).rate == pytest.approx(arrival.rate * factor)
    assert type(arrival.scaled(factor)) is type(arrival)


def test_uniform_gaps_are_equal_and_poisson_gaps_are_exponential() -> None:
    assert gaps(Uniform(10), 60) == pytest.approx([0.1] * (len(gaps(Uniform(10), 60))))
    found = gaps(Poisson(10))
    assert statistics.stdev(found) == pytest.approx(0.1, rel=0.05)
    longer = sum(g > 0.1 for g in found) / len(found)
    assert longer == pytest.approx(0.368, abs=0.01)  # 1/e


@pytest.mark.parametrize("stream", WORKLOADS["REAL"].critical, ids=lambda s: s.model)
def test_synthetic_gaps_have_the_statistics_of_the_recording(stream: Stream) -> None:
    arrival = stream.arrival
    assert isinstance(arrival, Synthetic)
    found = gaps(arrival)
    assert statistics.mean(found) == pytest.approx(arrival.mean, rel=0.03)
    assert statistics.stdev(found) == pytest.approx(arrival.deviation, rel=0.05)
    # differences of sums, which grew for an hour, are rounded
    assert arrival.least - 1e-9 <= min(found)
    assert max(found) <= arrival.most + 1e-9


def test_a_trace_comes_again() -> None:
    assert Trace((0.0, 0.25), 0.5).times(1.3, 0) == (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
    assert Trace((0.0, 0.25), 0.5).scaled(2).times(0.5, 0) == (0.0, 0.125, 0.25, 0.375)


def test_a_closed_loop_has_no_times() -> None:
    loop = ClosedLoop(4)
    assert (loop.times(10, 0), loop.rate, loop.clients) == ((), 0, 4)
    assert loop.scaled(3) == loop


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(0), lambda: Poisson(-1), lambda: Poisson(float("nan")),
        lambda: ClosedLoop(0), lambda: Synthetic(0.1, 0.2, 0.0, 0.2),
        lambda: Synthetic(0.1, 0.01, 0.2, 0.3), lambda: Trace((), 1), lambda: Trace((0.5, 0.1), 1),
        lambda: Trace((0.0, 2.0), 1), lambda: Uniform(3).scaled(0),
    ],
)  # fmt: skip
def test_arrivals_that_cannot_be(make: object) -> None:
    assert callable(make)
    with pytest.raises(UsageError):
        make()


# ---- workloads -----------------------------------------------------------------------------------


def test_every_workload_has_models_and_something_to_compare() -> None:
    for found in WORKLOADS.values():
        assert found.critical
        assert found.normal
        assert {s.model for s in found.streams} <= MODELS.keys()
    with pytest.raises(UsageError, match="MDTB-A"):
        workload("MDTB-Z")
    assert workload("MDTB-C") == Workload(
        (Stream("GRU", Poisson(10)),), (Stream("ResNet-50", ClosedLoop(1)),)
    )


def test_deadlines() -> None:
    assert Stream("GRU", Uniform(10)).due == 0.1
    assert Stream("GRU", Uniform(10), 0.02).due == 0.02
    assert Stream("GRU", ClosedLoop()).due is None
    assert Stream("GRU", ClosedLoop(), 0.02).due == 0.02
    assert Stream("GRU", Uniform(10), 0.02).scaled(4).due == 0.005


def test_more_clients_of_normal_closed_loops() -> None:
    more = WORKLOADS["MDTB-A"].with_clients(4)
    assert [s.arrival.clients for s in more.streams] == [1, 4]
    assert WORKLOADS["LGSVL"].with_clients(4) == WORKLOADS["LGSVL"]


SOLO = {m: 0.001 * (n + 1) for n, m in enumerate(MODELS)}


@pytest.mark.parametrize("name", PAPER_LOADS)
def test_rates_scaled_to_a_load(name: str) -> None:
    scaled = WORKLOADS[name].at_load(PAPER_LOADS[name], SOLO)
    assert scaled.load(SOLO) == pytest.approx(PAPER_LOADS[name])
    for old, new in zip(WORKLOADS[name].streams, scaled.streams, strict=True):
        assert (old.model, type(old.arrival)) == (new.model, type(new.arrival))
    rates = [
        [s.arrival.rate for s in w.streams if s.arrival.rate] for w in (WORKLOADS[name], scaled)
    ]
    assert len({round(b / a, 9) for a, b in zip(*rates, strict=True)}) == 1


def test_closed_loops_alone_have_no_load() -> None:
    with pytest.raises(UsageError, match="no rate"):
        WORKLOADS["MDTB-A"].at_load(0.5, SOLO)


def test_the_paper_s_gains_are_just_possible_at_its_loads() -> None:
    """With normal requests so short that critical ones do not count among the total."""
    gains = {"MDTB-B": 1.85, "MDTB-C": 1.79, "MDTB-D": 1.91, "LGSVL": 1.89}
    assert gains.keys() == PAPER_LOADS.keys()
    for name, gain in gains.items():
        normal = {s.model for s in WORKLOADS[name].normal}
        solo = {m: 1e-6 if m in normal else 0.05 for m in SOLO}
        scaled = WORKLOADS[name].at_load(PAPER_LOADS[name], solo)
        assert most_gain(scaled, solo) == pytest.approx(gain, rel=1e-3)


# ---- metrics -------------------------------------------------------------------------------------


def test_quantiles_are_values_by_rank() -> None:
    values = [float(n) for n in range(1000, 0, -1)]
    found = tail(values)
    assert (found.p50, found.p99, found.p999, found.worst, found.n) == (500, 990, 999, 1000, 1000)
    assert tail([3.0]).p50 == tail([3.0]).p999 == 3
    assert quantile([1, 2], 0.5) == 1
    assert quantile([1, 2], 0.51) == 2
    with pytest.raises(UsageError):
        tail([])


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_covers_its_share_and_no_value_below_does(
    values: list[float], share: float
) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values) - 1e-6
    assert sum(v < found for v in values) < share * len(values) + 1e-6


def test_shares_above_a_bound() -> None:
    assert above([1.0, 1.05, 1.06, 2.0], 1.05) == 0.5
    assert above([], 1.0) == 0


def test_waiting_counts() -> None:
    assert queued([0.0, 1.0, 10.0], [3.0, 3.0, 3.0]) == [3.0, 5.0, 3.0]


def test_work_of_several_normal_models() -> None:
    solo = {"a": 0.01, "b": 0.03}
    # 0.8 s of work in 1 s, where the critical models leave 0.8 s
    assert normal_share({"a": 20, "b": 20}, solo, 1.0, 0.2) == pytest.approx(1.0)
    assert normal_share({}, solo, 1.0, 0.2) == 0
    with pytest.raises(UsageError, match="duty"):
        normal_share({}, solo, 1.0, 1.0)


def test_totals_of_two_closed_loops() -> None:
    pair = WORKLOADS["MDTB-A"]
    solo = {"AlexNet": 0.003, "CifarNet": 0.001}
    assert sequential_rate(pair, solo) == pytest.approx(2 / 0.004)
    assert undisturbed_rate(pair, solo) == pytest.approx(1 / 0.003 + 1 / 0.001)
    assert most_gain(pair, {"AlexNet": 0.002, "CifarNet": 0.002}) == pytest.approx(2)


def test_totals_of_open_arrivals() -> None:
    mixed = WORKLOADS["MDTB-B"]
    # 10 requests of 20 ms leave 0.8 s for those of 4 ms
    solo = {"SqueezeNet": 0.02, "AlexNet": 0.004}
    assert sequential_rate(mixed, solo) == pytest.approx(10 + 200)
    assert most_gain(mixed, solo) == pytest.approx((10 + 250) / 210)
    cars = WORKLOADS["LGSVL"]
    assert most_gain(cars, {"ResNet-50": 0.01, "SqueezeNet": 0.008}) == pytest.approx(1)
    assert most_gain(cars, {"ResNet-50": 0.1, "SqueezeNet": 0.08}) == pytest.approx(2)


@dataclass(frozen=True)
class Span:
    sm: int
    begin: float
    end: float
    threads: int


def test_occupancy_of_a_known_picture() -> None:
    # SM 0: 1024 threads for 5 and beside them 512 for 2; SM 1: 1000 threads, 32 warps, for 10
    spans = [Span(0, 0, 5, 1024), Span(0, 1, 3, 512), Span(1, 0, 10, 1000)]
    held = 32 * 5 + 16 * 2 + 32 * 10
    assert occupancy(spans, 2, 10) == pytest.approx(held / (64 * 2 * 10))
    assert occupancy(spans, 4, 10) == pytest.approx(held / (64 * 4 * 10))
    assert achieved_occupancy(spans) == pytest.approx(held / (64 * 15))
    assert achieved_occupancy([*spans, Span(0, 8, 9, 2048)]) == pytest.approx(
        (held + 64) / (64 * 16)
    )
    assert occupancy([], 2, 10) == achieved_occupancy([]) == 0


def test_latencies_until_there_is_room() -> None:
    begun = [1.0, 1.2, 5.0, 5.5]
    assert room_latencies([0.9, 5.0, 5.2, 6.0], begun) == pytest.approx([0.1, 0.0, 0.3])

"""The tuner of hosts without a page (tuning/host_tuner.py), on a stand-in for a device whose
kernels are
words: what they compute, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lab.subjects import product_kernel, steps_of
from tilewright.base.dtypes import F32, I64
from tilewright.base.errors import BundleCorrupt, HostError, MemoryLimit
from tilewright.graph.node import Graph, constant, elementwise, gather, graph_input
from tilewright.kernel.serialise import kernel_to_data
from tilewright.tuning import paired_times, trial_inputs
from tilewright.tuning.host_tuner import HostTuner
from tilewright.tuning.messages import Done, Gold, KernelMessage, Offer, Report, Result, Welcome
from tilewright.tuning.trial import Trials

KERNEL = product_kernel("mk,kn->mn", (8, 8), (8, 8), weight=False)


class Bench:
    """Texts are "WHAT MILLISECONDS"; a little noise, the same in each run."""

    batch = 1.0

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.trapping: tuple[str, ...] = ()

    def runner(self, text: str, tiles: int) -> Any:
        what, ms = text.split()
        if what == "invalid":
            raise BundleCorrupt("no such word", hint="")
        return SimpleNamespace(text=text, tiles=tiles, group=64, what=what, ms=float(ms))

    def lay(self, buffers: Sequence[Any], scalars: Sequence[int]) -> None:
        self.buffers, self.scalars = buffers, scalars

    def begin(self, given: Sequence[trial_inputs.Array]) -> None:
        self.given = given

    def run(self, runner: Any) -> tuple[trial_inputs.Array, str]:
        a, b = (data.astype(np.float64).reshape(8, 8) for data in self.given)
        if runner.what == "fatal":
            raise HostError("the device is lost")
        if runner.what == "unstarted":
            raise BundleCorrupt("too many threads")
        found = (a @ b).astype(np.float32).reshape(-1)
        if runner.what == "wrong":
            found[3] += 1
        return found, {"outside": "it wrote to word 7", "trap": "it trapped"}.get(runner.what, "")

    def milliseconds(self, runner: Any, times: int) -> float:
        noise = 1 + 0.002 * self.rng.standard_normal()
        return float(runner.ms * noise) if times else math.nan


def trials(bench: Bench) -> Trials:
    return Trials(bench, KERNEL, bench.runner("right 1.0", 8), ())


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("right 0.5", "faster"),
        ("right 0.9", "faster"),
        ("right 1.0", "same"),
        ("right 1.2", "slower"),
        ("right 9.0", "slower"),
        ("wrong 0.1", "wrong"),
        ("outside 0.1", "wrong"),
        ("trap 0.1", "trapped"),
        ("invalid 0.1", "refused"),
        ("unstarted 0.1", "refused"),
    ],
)
def test_right_before_fast(text: str, verdict: str) -> None:
    found = trials(Bench()).attempt(text, 8)
    assert found.verdict == verdict, found
    if verdict == "faster":
        assert found.found.ratio == pytest.approx(1 / float(text.split()[1]), rel=0.02)
        assert found.found.low > 1


def test_a_clock_that_stands_still_decides_nothing() -> None:
    bench = Bench()
    tried = trials(bench)
    bench.milliseconds = lambda *_: math.nan  # type: ignore[method-assign]
    assert tried.attempt("right 0.1", 8).verdict == "same"


def test_intervals() -> None:
    """Of fifteen values in a row the middle, and of few nothing is sure."""
    centre, low, high = paired_times.interval([float(n) for n in range(15)], 2.0)
    assert centre == 7
    assert 0 < low < centre < high < 14
    assert paired_times.interval([1.0, 2.0, 3.0], paired_times.SURE) == (2.0, -math.inf, math.inf)
    assert paired_times.judged([(2.0, 1.0)] * 4).low == paired_times.FAR
    assert paired_times.judged([(1.0, 2.0)] * 4).high == 1 / paired_times.FAR


def test_a_lucky_winner_is_measured_again() -> None:
    calls = 0

    def measure(_: bool) -> tuple[float, float]:
        nonlocal calls
        calls += 1
        return (1.5, 1.0) if calls <= 10 else (1.0, 1.0)

    verdict, found = paired_times.contest(measure, lambda: lambda _: False, long=False)
    assert verdict == "same"
    assert found.ratio < paired_times.MARGIN


def test_each_kernel_was_first_equally_often() -> None:
    """Also when the time ends after an odd number of pairs."""
    orders: list[bool] = []

    def measure(second_first: bool) -> tuple[float, float]:
        orders.append(second_first)
        return 1.0, 1.0

    paired_times.compare(measure, paired_times.MARGIN, lambda _: len(orders) > 10, long=False)
    assert orders.count(True) == orders.count(False)


def test_inputs_stay_within_what_kernels_take() -> None:
    table, index = graph_input("t", (50, 4), F32), graph_input("i", (600,), I64)
    (step,) = steps_of(Graph("g", (("t", table), ("i", index)), (("y", gather(table, index, 0)),)))
    bounds = trial_inputs.gathered(kernel_to_data(step.kernel))
    assert set(bounds.values()) == {50}
    for name in trial_inputs.SETS:
        found = dict(enumerate(trial_inputs.inputs_of(step.kernel, name, 0), 1))
        for number in bounds:
            assert 0 <= found[number].min() <= found[number].max() < 50
    mask = graph_input("m", (64,), F32)
    hidden = elementwise("mul", elementwise("sub", constant(1.0, F32), mask), constant(-3e38, F32))
    (step,) = steps_of(Graph("g", (("m", mask),), (("y", hidden),)))
    (found_mask,) = trial_inputs.inputs_of(step.kernel, "random", 0)
    assert set(found_mask.tolist()) == {0.0, 1.0}


def test_differences() -> None:
    wanted = np.array([1.0, math.nan, math.inf], np.float32)
    assert trial_inputs.difference(wanted.copy(), wanted, 0.0) == ""
    off = np.array([1.5, math.nan, math.inf], np.float32)
    assert trial_inputs.difference(off, wanted, 0.1) == "element 0 is 1.5 instead of 1.0"
    assert trial_inputs.difference(off, wanted, 0.6) == ""
    assert trial_inputs.allowed(np.array([3], np.int32), rounds=True) == 1


class Model:
    """Two kernels of 3 and 1 ms; `bad`: texts that give wrong results here, `slow`: that slow it
    down."""

    def __init__(self) -> None:
        self.kernels: Mapping[int, Any] = {}
        self.bad: tuple[str, ...] = ()
        self.slow: tuple[str, ...] = ()
        self.lacking: tuple[int, ...] = ()

    def results(self) -> dict[str, trial_inputs.Array]:
        texts = [kernel.text for kernel in self.kernels.values()]
        return {"y": np.array([float(any(t in self.bad for t in texts)), 1.0], np.float32)}

    def time(self) -> float:
        own = {0: "right 3.0", 1: "right 1.0"} | {n: k.text for n, k in self.kernels.items()}
        return sum(float(t.split()[1]) for t in own.values()) + 9 * sum(
            t in self.slow for t in own.values()
        )

    def use(self, kernels: Mapping[int, Any]) -> None:
        self.kernels = dict(kernels)

    def profile(self) -> dict[int, float]:
        return {1: 1.0, 0: 3.0}

    def own(self, spec: int) -> Any:
        if spec in self.lacking:
            return None
        return SimpleNamespace(text=("right 3.0", "right 1.0")[spec], tiles=8, scalars=())

    def flops(self, _: int) -> int:
        return 1024


class Server:
    """What a tuning server sends: for each kernel these texts, then its end."""

    def __init__(self, offers: Mapping[int, Sequence[str]], gold: Gold | None = None) -> None:
        self.offers, self.gold = offers, gold
        self.sent: list[Any] = []

    def begin(self, hello: Any) -> Welcome:
        self.hello = hello
        self.rest: list[Any] = []
        for spec in hello["specs"]:
            for number, text in enumerate(self.offers[spec], 1):
                self.rest.append((message(spec, number), text.encode()))
            self.rest.append(Done(spec=spec, sent=1, milliseconds=1.0))
        listed = (
            Offer(
                spec=spec, kind="matmul", shape="8x8x8", checksum="0" * 16, count=40, default=0,
                gold=self.gold,
            )
            for spec in hello["specs"]
        )  # fmt: skip
        return Welcome(compiler="c", kernels=tuple(listed))

    def next(self) -> Any:
        return self.rest.pop(0) if self.rest else None

    def send(self, message: Any) -> None:
        self.sent.append(message)


def message(spec: int, candidate: int) -> KernelMessage:
    return KernelMessage(
        spec=spec, candidate=candidate, mark="lite", schedule=f"s{candidate}", checksum="0" * 16,
        digest="0" * 64, tiles=8, grains={}, scratch=0, bytes=1,
    )  # fmt: skip


def tuned(
    model: Model, server: Server, most: int | None = None, seconds: float = 30
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    tuner = HostTuner(model, Bench(), [KERNEL] * 2, "webgpu", events.append, share_reports=True)
    line: Any = server
    hello: Any = dict
    tuner.run(line, hello, seconds, most)
    return tuner.summary(), events


def test_a_session() -> None:
    model, server = Model(), Server({0: ["right 4.0", "right 2.0", "right 1.0"], 1: ["wrong 0.1"]})
    summary, events = tuned(model, server)
    assert server.hello == {"specs": (0, 1), "shares": (0.75, 0.25)}
    assert {n: kernel.text for n, kernel in model.kernels.items()} == {0: "right 1.0"}
    first, second = summary["kernels"]
    assert (first["current"]["candidate"], first["tried"]) == (3, 3)
    assert first["gain"] == pytest.approx(3, rel=0.03)
    assert first["default"]["milliseconds"] == pytest.approx(3, rel=0.03)
    assert (second["current"]["candidate"], second["tried"]) == (0, 1)
    assert [e["verdict"] for e in events if e["type"] == "trial"] == [
        "slower", "faster", "faster", "wrong",
    ]  # fmt: skip
    assert summary["gain"]["verdict"] == "faster"
    assert summary["gain"]["ratio"] == pytest.approx(2, rel=0.01)
    assert [s.verdict for s in server.sent if isinstance(s, Result)][:2] == ["slower", "faster"]
    (report,) = (s for s in server.sent if isinstance(s, Report))
    assert [vote.candidate for vote in report.top] == [3, 2, 1]
    assert [vote.ratio for vote in report.top] == pytest.approx([3, 1.5, 0.75], rel=0.03)


def test_a_session_that_is_interrupted_says_what_it_found() -> None:
    server = Server({0: ["right 2.0", "right 1.0"], 1: []})
    rest = server.next
    server.next = lambda: rest() if not server.sent else _interrupt()  # type: ignore[method-assign]
    events: list[dict[str, Any]] = []
    tuner = HostTuner(Model(), Bench(), [KERNEL] * 2, "webgpu", events.append)
    line: Any = server
    hello: Any = dict
    with pytest.raises(KeyboardInterrupt):
        tuner.run(line, hello, 30, None)
    summary = tuner.summary()
    assert (summary["rounds"], summary["gain"]["verdict"]) == (1, "unknown")
    assert summary["kernels"][0]["current"]["candidate"] == 1
    assert summary["seconds"] > 0


def test_a_device_that_a_candidate_takes_along_ends_the_session() -> None:
    """What was found stays; of a server that never answers nothing is."""
    server = Server({0: ["right 2.0", "fatal 0.1", "right 1.0"], 1: []})
    events: list[dict[str, Any]] = []
    model = Model()
    tuner = HostTuner(model, Bench(), [KERNEL] * 2, "webgpu", events.append)
    line: Any = server
    hello: Any = dict
    tuner.run(line, hello, 30, None)
    summary = tuner.summary()
    assert (summary["rounds"], summary["gain"]["verdict"]) == (1, "unknown")
    assert summary["kernels"][0]["current"]["candidate"] == 1
    assert tuner.fault is not None
    assert events[-1] == {
        "type": "fault", "spec": 0, "candidate": 2, "why": "the device is lost",
    }  # fmt: skip
    assert [s.verdict for s in server.sent if isinstance(s, Result)] == ["faster", "trapped"]

    def silent(_: object) -> None:
        raise HostError("no answer")

    server.begin = silent  # type: ignore[method-assign,assignment]
    with pytest.raises(HostError, match="no answer"):
        tuner.run(line, hello, 30, None)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_hottest_kernels_only() -> None:
    model = Model()
    summary, _ = tuned(model, Server({0: [], 1: []}), most=1)
    assert [kernel["spec"] for kernel in summary["kernels"]] == [0]
    assert summary["gain"]["verdict"] == "none"
    model.lacking = (0,)
    summary, _ = tuned(model, Server({0: [], 1: []}), most=1)
    assert [kernel["spec"] for kernel in summary["kernels"]] == [1]


def test_what_fails_in_the_model_is_taken_out() -> None:
    """Though it was right and faster by itself."""
    model, server = Model(), Server({0: ["right 1.0", "right 1.5"], 1: []})
    model.bad, model.slow = ("right 1.0",), ("right 1.5",)
    summary, events = tuned(model, server)
    trials = [event for event in events if event["type"] == "trial"]
    assert [event["verdict"] for event in trials] == ["wrong", "slower"]
    assert trials[0]["why"].startswith("in the model y: element 0")
    assert [e["candidate"] for e in events if e["type"] == "rollback"] == [1, 2]
    assert summary["kernels"][0]["current"]["candidate"] == 0
    assert model.kernels == {}


def test_a_question_is_answered_or_no_report_sent() -> None:
    """One whose answer is known: the number after the last."""
    gold = Gold(a=0, b=40)
    server = Server({0: ["right 2.0"], 1: []}, gold)
    tuned(Model(), server)
    assert not [s for s in server.sent if isinstance(s, Report)]
    server = Server({0: ["right 2.0"], 1: []}, Gold(a=0, b=1))
    tuned(Model(), server)
    (report,) = (s for s in server.sent if isinstance(s, Report))
    assert report.gold is not None
    assert report.gold.ratio == pytest.approx(2 / 3, rel=0.03)


def test_no_time_and_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    summary, events = tuned(Model(), Server({0: ["right 1.0"], 1: []}), seconds=0)
    assert summary["rounds"] == 0
    assert events[0]["type"] == "start"

    def full(*_: object) -> None:
        raise MemoryLimit("too large", hint="")

    monkeypatch.setattr(Bench, "lay", full)
    assert tuned(Model(), Server({0: ["right 1.0"], 1: []}))[0]["rounds"] == 0

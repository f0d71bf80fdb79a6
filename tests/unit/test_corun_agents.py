"""Models side by side on the CPU device: what is computed, who waits, and what faults leave behind.

Kernels run by threads of the CPU; nothing here is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.corun_until import all_answered, all_ran, run_until
from helpers.waiting import until

from lab.policies import POLICIES
from lab.subjects import product
from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import AdmissionRefused, HostError, InputError, TaskOverdue
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.elastic import measure_curves
from tilewright.elastic.agents import CriticalAgent, NormalAgent
from tilewright.elastic.arrivals import ClosedLoop
from tilewright.elastic.coordination import join_thread, now_us
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.corun import Corun
from tilewright.elastic.critical import CriticalModel, critical_task
from tilewright.elastic.plans import ElasticKernels
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Critical,
    Curve,
    Ended,
    Enqueue,
    Finished,
    Gpu,
    KernelCost,
    Normal,
    Overdue,
    Phase,
    Scheduler,
    policy_named,
)
from tilewright.elastic.settings import Settings
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_tasks import Settle, Task

OPTIONS = Options(targets=("cuda",))
COST = KernelCost(4, 128, 100.0, 10.0)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A short critical model of two kernels, a normal one whose tiles have chunks."""
    folder = tmp_path_factory.mktemp("corun")
    sizes = {"critical": ((4, 16), (16, 16)), "normal": ((20, 128), (128, 32))}
    for name, (a, b) in sizes.items():
        made = product("mk,kn->mn", a, b, weight=True, times=2, options=OPTIONS)
        write(made.contents, folder / name)
    return folder / "critical", folder / "normal"


def inputs_of(host: CudaHost, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        i.name: rng.standard_normal([int(d) for d in i.shape]).astype(np.float32)
        for i in host.bundle.manifest.inputs
    }


class Heard(Coordinator):
    """Keeps what each task is told by."""

    def __init__(self, *given: Any) -> None:
        self.sinks: dict[str, Callable[[Action], None]] = {}
        super().__init__(*given)

    def join(self, task: Critical | Normal, sink: Callable[[Action], None]) -> None:
        self.sinks[task.name] = sink
        super().join(task, sink)


class Pair:
    """A critical and a normal model with a coordinator between them.

    allow, recount, after: what its coordinator and its normal agent call; tests may change them
    """

    def __init__(self, bundles: tuple[Path, Path], task: Critical) -> None:
        self.hosts = [CudaHost(path, CpuDevice(1)) for path in bundles]
        critical, normal = self.hosts
        self.inputs = [inputs_of(host, n) for n, host in enumerate(self.hosts)]
        self.want = [h.run(x).outputs for h, x in zip(self.hosts, self.inputs, strict=True)]
        normal.give(self.inputs[1])
        budget = Budget(critical.device)
        self.budget = budget
        self.allow: Callable[[int], None] = budget.set
        self.recount: Callable[[], None] = lambda: None
        self.after: Callable[[int], None] = self.check
        self.coordinator = Heard(
            Scheduler(policy_named("tilewright"), Gpu(2)),
            lambda workers: self.allow(workers),
            lambda: self.recount(),
        )
        self.task = task
        self.model = CriticalModel(critical, budget)
        self.agent = CriticalAgent(self.coordinator, task, self.model, False)
        self.plan = ElasticKernels(ElasticPlan(normal, budget))
        self.wrong: list[int] = []
        self.normal = NormalAgent(
            self.coordinator, Normal("normal", (COST,) * len(self.plan.ends)), self.plan,
            normal.device, lambda count: self.after(count),
        )  # fmt: skip

    def check(self, count: int) -> None:
        """After each normal inference: bit by bit, and the outputs are spoilt for the next one."""
        normal = self.hosts[1]
        for name, got in normal.take(self.inputs[1]).outputs.items():
            if got.tobytes() != self.want[1][name].tobytes():
                self.wrong.append(count)
        normal.give({k: np.zeros_like(v) for k, v in self.inputs[1].items()})
        normal.give(self.inputs[1])
        self.normal.ask()

    def close(self) -> None:
        self.normal.close()
        self.coordinator.close()


def checked_for_ever(pair: Pair) -> None:
    while True:
        pair.normal.check()


def task(**changes: Any) -> Critical:
    return critical_task("critical", (Phase(2, 1e6, Curve(((0, 1.0), (4, 3.0)))),), **changes)


@pytest.fixture
def pair(bundles: tuple[Path, Path]) -> Iterator[Pair]:
    made = Pair(bundles, task())
    yield made
    made.close()


def test_both_compute_the_same_bits_as_alone(pair: Pair) -> None:
    pair.normal.ask()
    critical = pair.hosts[0]
    for seed in range(6):
        given = inputs_of(critical, seed)
        answered = pair.agent.request(lambda given=given: critical.give(given))  # type: ignore[misc]
        assert 0 < answered.took_us <= answered.latency_us
        got = critical.take(given).outputs
        want = critical.run(given).outputs
        assert all(got[name].tobytes() == want[name].tobytes() for name in want)
    while pair.normal.inferences < 3:
        pair.normal.check()
    assert not pair.wrong
    assert pair.coordinator.state.running is None


def test_requests_of_many_threads_are_all_answered(pair: Pair) -> None:
    pair.normal.ask()
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(pair.agent.request())) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert not pair.wrong


def test_a_request_that_fails_holds_nobody_back(pair: Pair) -> None:
    def fails() -> None:
        raise InputError("no input", hint="Give one")

    pair.normal.ask()
    with pytest.raises(InputError):
        pair.agent.request(fails)
    assert pair.agent.request().took_us > 0
    done = pair.normal.inferences
    while pair.normal.inferences == done:
        pair.normal.check()


def test_a_refused_request_is_an_error(bundles: tuple[Path, Path]) -> None:
    pair = Pair(bundles, task(deadline_ms=1060.0))
    try:
        with pytest.raises(AdmissionRefused, match="deadline"):
            # it came a second ago
            pair.agent.request(arrived=pair.coordinator.state.now - 1e6)
    finally:
        pair.close()


def test_nothing_normal_is_started_in_the_quiet(pair: Pair) -> None:
    with pair.coordinator.interpreter:
        pair.normal.ask()
        until(lambda: pair.coordinator.interpreter.waiting > 0)
        assert not pair.normal.launches
    while not pair.normal.inferences:
        pair.normal.check()


class Stuck:
    """A mark that is never passed: a kernel that does not end."""

    def passed(self) -> bool:
        return False

    def wait(self) -> None: ...


def test_a_request_that_never_ends_is_reported_and_normal_work_goes_on(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(bundles, task())
    try:
        pair.normal.ask()
        with monkeypatch.context() as patched:
            patched.setattr(pair.model, "start", lambda *_: pair.budget.set(0) or Stuck())
            patched.setattr(Critical, "effective_lease_us", property(lambda _: 50_000.0))
            with pytest.raises(TaskOverdue, match="lease"):
                pair.agent.request()
        done = pair.normal.inferences
        while pair.normal.inferences < done + 2:
            pair.normal.check()
        assert pair.agent.request().took_us > 0
        assert not pair.wrong
    finally:
        pair.close()


def test_a_normal_model_that_fails_is_reported(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(number: int, workers: int, plain: bool) -> None:
        raise RuntimeError("the launch failed")

    pair = Pair(bundles, task())
    monkeypatch.setattr(pair.plan, "start", breaks)
    pair.normal.ask()
    with pytest.raises(HostError, match="the launch failed"):
        checked_for_ever(pair)
    with pytest.raises(HostError, match="the launch failed"):
        pair.normal.close()
    assert pair.agent.request().took_us > 0
    pair.coordinator.close()


def test_a_watchdog_outlives_an_error_and_all_actions_are_carried_out() -> None:
    told: list[Action] = []

    def fails(_: int) -> None:
        raise HostError("the word is gone", hint="Report this")

    with Coordinator(Scheduler(policy_named("tilewright"), Gpu(2)), fails) as coordinator:
        coordinator.join(task(lease_ms=500.0), told.append)
        coordinator.join(Normal("normal", (COST,)), told.append)
        coordinator.post(Arrived(now_us(), "critical", 0))
        coordinator.post(Arrived(now_us(), "normal", 1))
        # behind the action that failed
        until(lambda: any(isinstance(action, Enqueue) for action in told))
        assert any(isinstance(action, Overdue) for action in told)
        # it is no error of the normal task, and an answer is an answer
        coordinator.post(Ended(now_us(), "normal", 1))
        assert not coordinator.state.normal[0].backlog
        coordinator.post(Finished(now_us(), 0, 1.0))
        coordinator.post(Arrived(now_us(), "normal", 2))
        told.clear()
        # the budget was to be set because of this task's overdue request
        with pytest.raises(HostError, match="the word is gone"):
            coordinator.post(Arrived(now_us(), "critical", 3))
        until(lambda: any(isinstance(action, Overdue) for action in told))


def test_a_thread_that_does_not_end_is_an_error() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    with pytest.raises(HostError, match="the work did not end within"):
        join_thread(thread, "the work", 0.01)
    stop.set()
    join_thread(thread, "the work")


def test_a_start_that_fails_lets_everybody_stay(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: int) -> None:
        raise HostError("the launch failed", hint="Report this")

    host = CudaHost(bundles[0], CpuDevice(1))
    budget = Budget(host.device)
    model = CriticalModel(host, budget)
    monkeypatch.setattr(host.device, "record_after", lambda words, tasks: fails)
    seen: list[int] = []
    monkeypatch.setattr(host.device, "start", lambda work: seen.append(work.value))
    with pytest.raises(HostError):
        model.start((Phase(2, 1.0),), (0,))
    assert seen == [UNLIMITED]


def test_budgets_are_set_before_phases(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = CudaHost(bundles[0], CpuDevice(1))
    budget = Budget(host.device)
    model = CriticalModel(host, budget)
    seen: list[object] = []
    start = CpuDevice.start

    def noted(device: CpuDevice, work: Task) -> None:
        start(device, work)
        at = np.frombuffer(device.read(budget.address, WORD_BYTES), np.int32)[0]
        told = device.read(work.told, 12) if isinstance(work, Settle) else b""
        seen.append((int(at), *map(int, np.frombuffer(told, np.int32)[1:])))

    monkeypatch.setattr(CpuDevice, "start", noted)
    two = (Phase(1, 1.0), Phase(1, 1.0))
    model.prepare(two)
    for budgets, settle_us, wanted in (
        ((0, 3), 0.0, [(0,), (0, 0, 0), (0,), (3, 0, 0), (3,)]),
        ((5, 5), 0.0, [(5,), (5, 0, 0), (5,), (5, 0, 0), (5,)]),
        ((5, 0), 1.0, [(5,), (5, 2, 1000), (5,), (0, 2, 1000), (0,)]),
        ((UNLIMITED, 0), 0.0, [(UNLIMITED,), (UNLIMITED, 0, 0), (UNLIMITED,), (0, 0, 0), (0,)]),
    ):
        seen.clear()
        model.start(two, budgets, settle_us, concurrent=2 if settle_us else 0)
        assert seen == [*wanted, (UNLIMITED,)]


#: By day; the others go the same ways, and ours is what test_corun_cli.py runs.
BY_DAY = ("barriers", "entry")


@pytest.mark.seldom(4)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly)
        for name in POLICIES
        # the CPU device has no multiprocessors of its own
        if not POLICIES[name].split
    ],
)
def test_every_policy_runs(name: str, bundles: tuple[Path, Path], tmp_path: Path) -> None:
    settings = Settings(
        POLICIES[name], "cpu", max_slowdown=1e7, steps=1, traced=name == "barriers",
        measure_seconds=0.01, lease_ms=6e4,
    )  # fmt: skip
    critical, normal = bundles
    with Corun.prepare(critical, [normal], settings) as session:
        enough = all_ran if settings.traced else all_answered
        result = run_until(enough, session.run, ClosedLoop())
    (one,) = result.critical
    assert len(one.answered) >= 1
    assert one.over_bound == one.missed == 0
    assert 0 < one.service.p50 <= one.waited.p50
    if settings.traced:
        assert {span.critical for span in result.spans} == {True, False}
        measure_curves.save(session.calibration.chosen, tmp_path / "curves.json")
        assert measure_curves.load(tmp_path / "curves.json") == session.calibration.chosen


def test_curves_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    for text in ("[]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match="no slowdown curves"):
            measure_curves.load(path)


@pytest.mark.parametrize(
    ("times", "parts", "counts"),
    [([1, 1, 1, 1], 2, [2, 2]), ([9, 1, 1], 2, [1, 2]), ([1], 3, [1]), ([1, 1], 1, [2])],
)
def test_phases_take_about_as_long(times: list[float], parts: int, counts: list[int]) -> None:
    assert measure_curves.split_into_phases(times, parts) == counts


@pytest.mark.gpu
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_on_a_gpu(name: str, traced: bool, bundles: tuple[Path, Path]) -> None:
    settings = Settings(POLICIES[name], sms=8, max_slowdown=1e3, phases=2,
                        traced=traced, measure_seconds=0.2)  # fmt: skip
    critical, normal = bundles
    with Corun.prepare(critical, [normal], settings) as session:
        result = session.run(ClosedLoop(), 0.5)
    (one,) = result.critical
    assert len(one.answered) > 10
    assert one.overdue == one.refused == 0
    assert result.inferences[0] > 0
    if traced:
        assert len({span.sm for span in result.spans}) <= session.models.devices.sms

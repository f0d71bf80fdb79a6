"""All steps of a plan as one elastic kernel: sent away at any look, it computes the same bits.

Kernels run on the CPU; NVIDIA's compiler takes the text, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cuda import nvrtc as nvrtc
from test_cuda_elastic import SUBJECTS, Case

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import HostError, UsageError
from tilewright.bundle import write
from tilewright.elastic.session import CorunSession, Settings
from tilewright.elastic.workloads.arrivals import ClosedLoop, Poisson
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_whole import MOST_INFERENCES, WholePlan, text_of
from tilewright.hosts.tensors import largest_extents

#: More launches than any of these needs.
ROUNDS = 6000
#: By day: one step, and several.
BY_DAY = ("product", "encoder")
NAMES = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in SUBJECTS
]


class Whole(Case):
    """A bundle on a device, its plain outputs, and one kernel with all steps of its plan."""

    def __init__(self, folder: Path, device: CudaDevice, inferences: int = 1) -> None:
        super().__init__(folder, device)
        self.count = inferences
        self.whole = WholePlan(self.host, self.budget, inferences=inferences)

    def launches(self, again: Callable[[], None]) -> int:
        """Of some inferences, which end with the same bits as the plain form."""
        self.host.give({name: np.zeros_like(x) for name, x in self.inputs.items()})
        self.host.run({name: np.zeros_like(x) for name, x in self.inputs.items()})
        self.host.give(self.inputs)
        launches = self.whole.run(again, ROUNDS, self.count)
        for name, got in self.host.take(self.inputs).outputs.items():
            assert got.tobytes() == self.want[name].tobytes(), name
        return launches

    def sent_away(self, looks: Callable[[int], int]) -> int:
        """The launches that it took, each with so many looks."""
        numbers = iter(range(ROUNDS + 1))
        return self.launches(lambda: self.budget.set(EVERYBODY, looks(next(numbers))))


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(SUBJECTS[request.param](), tmp_path)
    return tmp_path


def text(host: CudaHost) -> str:
    steps = host.steps(-1, largest_extents(host.bundle.manifest))
    threads = max(launch.group for _, launch in steps)
    return host.texts.prelude + text_of(host, sorted({slot for slot, _ in steps}), threads)


@pytest.mark.parametrize("folder", NAMES, indirect=True)
def test_sent_away_at_any_look(folder: Path) -> None:
    case = Whole(folder, CpuDevice(1))
    assert case.sent_away(lambda _: 0) == 1
    look, launches = 1, 2
    # until there are fewer looks than that
    while launches > 1:
        look += 1 if look < 12 else 1 + look // 4
        launches = case.sent_away(lambda n, look=look: 0 if n else look)  # type: ignore[misc]
        assert launches <= 2
    assert look > 5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("folder", NAMES, indirect=True)
def test_sent_away_again_and_again(folder: Path) -> None:
    case = Whole(folder, CpuDevice(2), inferences=2)
    # two looks: one between steps, one within
    for looks in (2, 3, 7):
        assert case.sent_away(lambda _, looks=looks: looks) > 1  # type: ignore[misc]


@pytest.mark.parametrize("folder", ["encoder"], indirect=True)
def test_budgets_that_change_all_the_time(folder: Path) -> None:
    """Some leave, some wait for what those had, and all go when everybody may stay again."""
    case, over, rng = Whole(folder, CpuDevice(4), inferences=4), threading.Event(), np.random

    def disturb() -> None:
        chosen = rng.default_rng(5)
        while not over.is_set():
            case.budget.set(int(chosen.choice([0, 1, 2, EVERYBODY])))
            time.sleep(chosen.uniform(0, 2e-3))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        case.launches(lambda: None)
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("folder", ["encoder"], indirect=True)
def test_a_launch_goes_on_with_what_was_left_before_it(folder: Path) -> None:
    case = Whole(folder, CpuDevice(1), inferences=2)
    steps = case.whole.steps
    first, second = (case.whole.recorded(n * steps, (n + 1) * steps) for n in range(2))
    case.host.give(case.inputs)
    case.whole.begin()
    case.budget.set(EVERYBODY, looks=3)
    first()
    assert case.whole.complete == 0
    case.budget.set(EVERYBODY)
    second()
    assert case.whole.complete == 2 * steps
    first()  # is complete, and computes nothing
    for name, got in case.host.take(case.inputs).outputs.items():
        assert got.tobytes() == case.want[name].tobytes()


@pytest.mark.parametrize("folder", ["encoder"], indirect=True)
def test_what_it_cannot_do_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Whole(folder, CpuDevice(1))
    with pytest.raises(HostError, match="does not end"):
        case.whole.run(lambda: case.budget.set(0), 3)
    assert case.sent_away(lambda _: 0) == 1
    for count in (0, MOST_INFERENCES + 1):
        with pytest.raises(UsageError, match="cannot follow"):
            WholePlan(case.host, case.budget, inferences=count)
    with monkeypatch.context() as patched:
        patched.setattr(CpuDevice, "shared_bytes", 64)
        with pytest.raises(HostError, match="shared memory"):
            WholePlan(case.host, case.budget)


def _session(folder: Path, whole: int, arrival: Any) -> int:
    settings = Settings(
        "tilewright", "cpu", max_slowdown=1e4, steps=1, whole=whole, measure_seconds=0.01,
        watched=True,
    )  # fmt: skip
    with CorunSession(folder, [folder], settings) as session:
        for seconds in (0.3, 3, 30):  # a busy machine takes longer
            result = session.run(ClosedLoop(), seconds, normal=[arrival])
            (one,) = result.critical
            assert len(one.answered) >= 1
            assert one.over_bound == 0
            if result.inferences[0] >= whole:
                break
    return result.inferences[0]


@pytest.mark.parametrize("folder", ["few rows, two layers"], indirect=True)
def test_a_session_runs_it(folder: Path) -> None:
    assert _session(folder, 2, ClosedLoop()) >= 2
    with pytest.raises(UsageError, match="closed loops"):
        _session(folder, 2, Poisson(10))


@pytest.mark.parametrize("folder", NAMES, indirect=True)
def test_nvidias_compiler_takes_the_text(nvrtc: Callable[[str, str], bytes], folder: Path) -> None:
    assert nvrtc(text(CudaHost(folder, CpuDevice(1))), "sm_90")


@pytest.mark.gpu
@pytest.mark.parametrize("folder", SUBJECTS, indirect=True)
def test_sent_away_on_a_gpu(folder: Path) -> None:
    device = NvidiaDevice()
    case, rng, launches = Whole(folder, device, inferences=20), np.random.default_rng(7), 0
    other = device.driver.stream(urgent=True)
    total = case.whole.steps * case.count
    for _ in range(40):
        case.host.give(case.inputs)
        case.whole.begin()
        while case.whole.complete < total:
            case.budget.set(EVERYBODY)
            device.start(case.whole.launch(total))
            time.sleep(rng.uniform(0, 1e-4))
            device.driver.write_word(case.budget.address, int(rng.integers(0, 3)), other)
            time.sleep(rng.uniform(0, 1e-4))
            device.driver.write_word(case.budget.address, EVERYBODY, other)
            device.wait()
            launches += 1
        for key, got in case.host.take(case.inputs).outputs.items():
            assert got.tobytes() == case.want[key].tobytes(), key
    assert launches > 40, "nobody was ever sent away"

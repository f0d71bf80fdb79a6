"""How a critical request holds normal work back: who is waited for, and that the bound is kept."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.waiting import PATIENCE

from lab.simulator import levels, phases, simulate
from lab.workloads.metrics import above
from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, BUDGET, BUDGET_BYTES, UNLIMITED
from tilewright.elastic.arrivals import ClosedLoop, Poisson
from tilewright.elastic.policy import (
    Critical,
    Gpu,
    Hold,
    KernelCost,
    Normal,
    Phase,
    Scheduler,
    holds,
    policy_named,
)
from tilewright.elastic.policy.policies import SETTLE_US
from tilewright.hosts import cuda_devices
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.cuda_tasks import TOLD, Settle, SetWord

OURS = policy_named("tilewright")
GPU = Gpu(4)
CRITICAL = (KernelCost(9, 256, 40, 2, 0.3), KernelCost(30, 256, 15, 1, 0.3))
NORMAL = (KernelCost(40, 256, 60, 2, 0.3), KernelCost(7, 128, 120, 4, 0.2, 0.05))


def test_kernels_wait_where_a_budget_falls_until_those_who_must_leave_have_left() -> None:
    phases = (Phase(2, 1.0), Phase(1, 1.0), Phase(1, 1.0), Phase(3, 1.0))
    assert holds(phases, (4, 4, 0, 9), 10.0) == [
        Hold(4, 0, 2, True), Hold(4, 2, 3), Hold(0, 3, 4, True), Hold(9, 4, 7),
    ]  # fmt: skip
    assert not any(hold.waits for hold in holds(phases, (UNLIMITED,) * 4, 10.0))
    assert holds(phases[:1], (0,), 0.0) == [Hold(0, 0, 2)]


def over(bound: float, settle_us: float, found: tuple[Phase, ...], seconds: float) -> float:
    """The share of requests over the bound, of which nothing is learnt."""
    task = Critical("critical", found, CRITICAL, bound)
    outcome = simulate(
        Scheduler(replace(OURS, settle_us=settle_us, promises=False), GPU),
        [(task, Poisson(5000)), (Normal("normal", NORMAL), ClosedLoop())],
        seconds,
    )
    assert len(outcome.served) > 4000 * seconds
    return above([served.took_us for served in outcome.served], task.longest_us)


def test_the_bound_is_kept_where_kernels_wait_until_workers_have_left() -> None:
    """Critical blocks that are placed while workers leave lie unevenly: that breaks any bound."""
    found = phases(GPU, CRITICAL, NORMAL, levels(GPU, NORMAL, 2))
    assert 1 < found[0].curve.at(0) < 1.05
    assert over(1.05, SETTLE_US, found, 0.2) <= 0.01
    assert over(1.3, 0.0, (Phase(2, found[0].solo_us),), 0.1) > 0.1


@pytest.fixture
def words() -> np.ndarray:
    """Five workers are alive, and all may stay."""
    found = np.zeros(BUDGET_BYTES // WORD_BYTES + TOLD, np.int32)
    found[BUDGET], found[ALIVE] = UNLIMITED, 5
    return found


def settle(words: np.ndarray, microseconds: int) -> Settle:
    """One worker may stay of each of two tasks; the last words are what it reads."""
    words[-TOLD:] = 1, 2, 1000 * microseconds, 0
    at = words.ctypes.data
    return Settle(at, at + WORD_BYTES * (len(words) - TOLD))


@pytest.mark.parametrize("word", [BUDGET, ALIVE])
def test_a_stream_waits_until_few_are_left(
    words: np.ndarray, word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, address = CpuDevice(1), words.ctypes.data
    looks = threading.Semaphore(0)
    # its time never ends
    still = SimpleNamespace(perf_counter=lambda: 0.0, sleep=lambda _: looks.release())
    monkeypatch.setattr(cuda_devices, "time", still)
    thread = threading.Thread(target=device.start, args=(settle(words, 5000),))
    thread.start()
    for _ in range(20):
        assert looks.acquire(timeout=PATIENCE)
    assert thread.is_alive()
    # three may stay of each, or two are left of all
    device.start(SetWord(address + WORD_BYTES * word, 3 if word == BUDGET else 2))
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_who_died_without_counting_himself_out_holds_no_stream(
    words: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(100))
    clock = SimpleNamespace(perf_counter=lambda: next(times) / 1000, sleep=lambda _: None)
    monkeypatch.setattr(cuda_devices, "time", clock)
    CpuDevice(1).start(settle(words, 5000))
    # the beginning, and five milliseconds
    assert next(times) == 6
    assert words[ALIVE] == 5

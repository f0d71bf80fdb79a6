"""Gates: kernels of normal models before which the GPU itself waits while nobody may stay.

Input: times of kernels; devices.  Output: before which kernels there is a gate; whether streams may
wait so without stopping others.  The wait is `Gate` of hosts/cuda_tasks.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.models import run_ends
from tilewright.hosts.cuda_devices import CudaDevice, Mark
from tilewright.hosts.cuda_tasks import TOLD, Gate, Release

#: Microseconds of kernels between two gates, at least.  A gate takes 4 of them.
GATE_US = 150.0
#: Seconds after which a stream counts as stopped; and after which streams that do not tell that
#: they wait are taken to do so: those of the CPU, where the thread itself waits.
STOPPED_S, WAITS_S = 0.1, 0.01


def gates_of(microseconds: Sequence[float], ends: Sequence[int]) -> frozenset[int]:
    """The first kernel of each run, and those behind kernels that take `GATE_US` together.

    microseconds: of each kernel;  ends: of runs, as of `run_ends`
    """
    gates = set[int]()
    for first, last in pairwise((0, *ends)):
        within = run_ends(microseconds[first:last], GATE_US)
        gates |= {first, *(first + end for end in within[:-1])}
    return frozenset(gates)


def pass_gates(waiting: Sequence[CudaDevice], others: Sequence[CudaDevice]) -> bool:
    """Whether streams of `others` go on while those of `waiting` are held at gates.

    CUDA may put several streams into one queue of the GPU, where whoever waits stops all behind it,
    also a request that is to open the gate.  So it is tried, with a gate that the host opens.
    """
    word, told = others[0].words(), others[0].words(TOLD)
    ended = [device.words() for device in others]
    told.value[:] = EVERYBODY
    held = list[Mark]()

    def hold(device: CudaDevice) -> None:
        device.use()
        device.start(Gate(word.address))
        held.append(device.mark())

    def passed() -> bool:
        return all(int(each.value[0]) for each in ended)

    threads = [threading.Thread(target=hold, args=(device,)) for device in waiting]
    runs = [
        device.record([Release(0, told.address, each.address)])
        for device, each in zip(others, ended, strict=True)
    ]
    try:
        for thread in threads:
            thread.start()
        _until(lambda: len(held) == len(waiting), WAITS_S)
        for device, run in zip(others, runs, strict=True):
            device.use()
            run()
        _until(passed, STOPPED_S)
        return passed()
    finally:
        word.value[0] = 1
        for thread in threads:
            thread.join()
        for device in (*waiting, *others):
            device.wait()


def _until(reached: Callable[[], bool], seconds: float) -> None:
    stop = time.perf_counter() + seconds
    while not reached() and time.perf_counter() < stop:
        time.sleep(1e-4)

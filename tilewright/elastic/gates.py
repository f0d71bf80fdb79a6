"""Gates: kernels of normal models at which the GPU itself waits while no worker may stay.

Input: times of kernels; devices.  Output: the kernels that get a gate before them, and whether
streams can wait at gates without blocking others.  `Gate` of hosts/cuda_tasks.py is the wait
itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise

from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import HostError
from tilewright.elastic.coordination import join_thread
from tilewright.elastic.plans import run_ends
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_tasks import TOLD, Gate, Release, Task

#: The least microseconds of kernels between two gates.  A gate takes 4 microseconds.
GATE_US = 150.0
#: Seconds: after which a stream counts as blocked; within which, on a GPU, a call that starts a
#: gate returns; after which a CPU thread waits at its gate, since that call does not return there.
STOPPED_S, STARTED_S, WAITS_S = 0.1, 5.0, 0.01


def gates_of(microseconds: Sequence[float], ends: Sequence[int]) -> frozenset[int]:
    """The kernels with a gate: the first of each run, and the next one after each `GATE_US` of
    kernels.

    microseconds: of each kernel;  ends: of runs, from `run_ends`
    """
    gates = set[int]()
    for first, last in pairwise((0, *ends)):
        within = run_ends(microseconds[first:last], GATE_US)
        gates |= {first, *(first + end for end in within[:-1])}
    return frozenset(gates)


def pass_gates(waiting: Sequence[CudaDevice], others: Sequence[CudaDevice]) -> bool:
    """True if streams of `others` go on while those of `waiting` wait at gates.

    CUDA may map several streams to one hardware queue.  There a waiting stream blocks the others
    behind it, even the request that would open the gate.  So this function tries it with a gate
    that the host opens.  It also returns False if a device has no gates.
    """
    word, told = others[0].words(), others[0].words(TOLD)
    ended = [device.words() for device in others]
    told.value[:] = UNLIMITED
    try:  # before any stream waits: capturing a graph may need a stream that does not
        gates = [_recorded(device, Gate(word.address)) for device in waiting]
        runs = [
            _recorded(device, Release(0, told.address, each.address))
            for device, each in zip(others, ended, strict=True)
        ]
    except HostError:
        return False
    failed = list[Exception]()

    def hold(device: CudaDevice, start: Callable[[], None]) -> None:
        try:
            device.use()
            start()
        except Exception as error:
            failed.append(error)

    def passed() -> bool:
        return all(int(each.value[0]) for each in ended)

    def opened() -> None:
        word.value[0] = 1

    def all_joined() -> None:
        for thread in threads:
            if thread.ident is not None:
                join_thread(thread, "a stream that waits at a gate")

    threads = [
        threading.Thread(target=hold, args=held, daemon=True)
        for held in zip(waiting, gates, strict=True)
    ]
    with ExitStack() as last:
        for device in (*waiting, *others):
            last.callback(device.wait)
        last.callback(all_joined)
        last.callback(opened)
        for thread, device in zip(threads, waiting, strict=True):
            thread.start()
            thread.join(STARTED_S if device.returns else WAITS_S)
            if device.returns and thread.is_alive():
                return False
        if failed:
            raise failed[0]
        for device, run in zip(others, runs, strict=True):
            device.use()
            run()
        _until(passed, STOPPED_S)
        return passed()


def _recorded(device: CudaDevice, task: Task) -> Callable[[], None]:
    device.use()
    return device.record([task])


def _until(reached: Callable[[], bool], seconds: float) -> None:
    stop = time.perf_counter() + seconds
    while not reached() and time.perf_counter() < stop:
        time.sleep(1e-4)

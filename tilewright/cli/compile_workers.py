"""The compile workers of a server: processes that make spaces and candidates.

Input: how many.  Output: `Makers` for server/tune.py.  With 0 workers, one thread of the server's
own process does the work: for tests and for small sites.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

from tilewright.bundle import Bundle, Manifest
from tilewright.kernel.spec import Kernel
from tilewright.server.session_resources import Best, Makers
from tilewright.targets.device_classes import find
from tilewright.targets.lite_space import Objective
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import Space, build, space_of
from tilewright.tuning.relink import relink


def makers(workers: int) -> Makers:
    def pool() -> Executor:
        if workers == 0:
            return ThreadPoolExecutor(1, "tilewright-compile")
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, context, _begin)

    return Makers(space, build, relinked, winners, pool, max(1, workers))


def space(kernel: Kernel, device: str, objective: Objective) -> Space:
    return space_of(kernel, find(device), objective)


def relinked(
    bundle: Bundle, device: str, winners: Mapping[int, Schedule]
) -> tuple[Manifest, dict[str, bytes]]:
    """The new manifest, and the files that the old bundle does not have."""
    contents = relink(bundle, find(device), winners)
    before = {ref.file for ref in bundle.manifest.files()}
    own = {name: bytes(data) for name, data in contents.blobs.items() if name not in before}
    return contents.manifest, own


def winners(kernels: Mapping[int, Kernel], device: str, best: Best) -> dict[int, Schedule]:
    """The schedules of the candidates that the votes chose, if their numbers still mean the same:
    the space has the same checksum."""
    found = {}
    for spec, kernel in kernels.items():
        own = space(kernel, device, "latency")
        number = best[spec].get(own.checksum, 0)
        if 0 < number < len(own.schedules):
            found[spec] = own.schedules[number]
    return found


def _begin() -> None:
    """Prepares a worker process: it ignores Ctrl-C and ends when the server ends, in whatever
    way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

"""Where the compiler's functions are called: a few workers, one call at a time each, all bounded.

Input: how to make a worker, how many there may be, seconds that a call may take.  Output: what the
function gives, or its error; `CompileTimeout` for one that hangs.  Whatever happens to a worker,
the calls in the others go on, and those that wait get a new one in its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import TypeVar

from tilewright.base.errors import TilewrightError

log = logging.getLogger(__name__)
T = TypeVar("T")

#: How often a call is tried whose worker dies.
TRIES = 2


class CompileTimeout(TilewrightError):
    """A call of the compiler took so long that it was given up."""

    code = "compile-timeout"


class WorkersDied(TilewrightError):
    """A call's workers died, each time it was tried: by its fault, or for want of memory."""

    code = "workers-died"


class Workers:
    """make: gives an executor of one worker; seconds: from the begin of a call to its end."""

    def __init__(self, make: Callable[[], Executor], count: int, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._closed = False
        self._busy: set[Executor] = set()
        # the last one that was used comes first, so that no more are made than are needed
        self._idle: asyncio.LifoQueue[Executor | None] = asyncio.LifoQueue()
        for _ in range(count):
            self._idle.put_nowait(None)

    async def run(self, function: Callable[..., T], *given: object) -> T:
        """Calls a function in a worker; if that dies, once more in a new one."""
        broken: Exception | None = None
        for _ in range(TRIES):
            kept = await self._idle.get()
            try:
                if self._closed:
                    break
                kept = worker = kept or self._make()
                self._busy.add(worker)
                try:
                    return await self._call(worker, function, *given)
                finally:
                    self._busy.discard(worker)
            except BrokenExecutor as error:
                log.warning("A compile worker died: %s", error)
                kept, broken = None, error
            except CompileTimeout as error:
                log.warning("%s", error)
                kept = None
                raise
            except asyncio.CancelledError:
                kept = None
                raise
            finally:
                if self._closed and kept:
                    kept.shutdown(wait=False)
                    kept = None
                self._idle.put_nowait(kept)
        if self._closed:
            raise TilewrightError("The server ends", hint="Connect again")
        raise WorkersDied("The compile workers die", hint="See the log") from broken

    async def _call(self, worker: Executor, function: Callable[..., T], *given: object) -> T:
        work = asyncio.get_running_loop().run_in_executor(worker, function, *given)
        try:
            return await asyncio.wait_for(work, self._seconds)
        except asyncio.CancelledError:
            # nobody waits for it any more, and the process shall end even if this hangs
            _end(worker)
            raise
        except TimeoutError as error:
            if work.done() and not work.cancelled():
                raise  # the function's own
            _end(worker)
            raise CompileTimeout(
                "The compiler did not come to an end",
                hint="This is a bug of the compiler; everything else goes on",
                function=function.__name__,
                seconds=self._seconds,
            ) from error

    def close(self) -> None:
        """Ends what is at work, so that the process can end, and workers that have none."""
        self._closed = True
        for worker in list(self._busy):
            _end(worker)
        for kept in [self._idle.get_nowait() for _ in range(self._idle.qsize())]:
            if kept:
                kept.shutdown(wait=False)
            self._idle.put_nowait(None)


def _end(worker: Executor) -> None:
    """Kills the processes; a thread cannot be, and is left alone."""
    # Executor.kill_workers() comes with Python 3.14
    for process in list((getattr(worker, "_processes", None) or {}).values()):
        process.kill()
    worker.shutdown(wait=False, cancel_futures=True)

"""A pool of workers for the compiler's functions: one call at a time each, with a timeout.

Input: a function that makes a worker, the number of workers, the timeout in seconds.  Output: the
function's result or error; `CompileTimeout` if it hangs.  A worker that hangs or dies is replaced;
calls in other workers go on.
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

#: Attempts of a call whose worker dies.
TRIES = 2


class CompileTimeout(TilewrightError):
    """A call of the compiler took longer than its timeout."""

    code = "compile-timeout"


class WorkersDied(TilewrightError):
    """Every worker that tried a call died: by the call's fault, or for lack of memory."""

    code = "workers-died"


class Workers:
    """make: makes an executor with one worker;  count: of workers;  seconds: timeout of a call"""

    def __init__(self, make: Callable[[], Executor], count: int, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._closed = False
        self._busy: set[Executor] = set()
        # last in, first out: no more workers are made than are needed at once
        self._idle: asyncio.LifoQueue[Executor | None] = asyncio.LifoQueue()
        for _ in range(count):
            self._idle.put_nowait(None)

    async def run(self, function: Callable[..., T], *given: object) -> T:
        """Calls a function in a worker; if that dies, once more in a new one.

        Raises what the function raises; CompileTimeout; WorkersDied; TilewrightError after `close`.
        """
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
            raise TilewrightError("The server is shutting down", hint="Connect again")
        raise WorkersDied("Every compile worker died", hint="See the log") from broken

    async def _call(self, worker: Executor, function: Callable[..., T], *given: object) -> T:
        work = asyncio.get_running_loop().run_in_executor(worker, function, *given)
        try:
            return await asyncio.wait_for(work, self._seconds)
        except asyncio.CancelledError:
            # the call has no reader any more, and if it hangs it must not keep the process alive
            _end(worker)
            raise
        except TimeoutError as error:
            if work.done() and not work.cancelled():
                raise  # the function itself raised this error
            _end(worker)
            raise CompileTimeout(
                "The compiler did not finish in time",
                hint="This is a bug of the compiler; other calls go on",
                function=function.__name__,
                seconds=self._seconds,
            ) from error

    def close(self) -> None:
        """Kills busy workers, so that the process can end, and shuts down idle ones."""
        self._closed = True
        for worker in list(self._busy):
            _end(worker)
        for kept in [self._idle.get_nowait() for _ in range(self._idle.qsize())]:
            if kept:
                kept.shutdown(wait=False)
            self._idle.put_nowait(None)


def _end(worker: Executor) -> None:
    """Kills worker processes; threads cannot be killed and are left alone."""
    # Executor.kill_workers() comes with Python 3.14
    for process in list((getattr(worker, "_processes", None) or {}).values()):
        process.kill()
    worker.shutdown(wait=False, cancel_futures=True)

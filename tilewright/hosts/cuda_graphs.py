"""CUDA graphs: work that is recorded once and started by one call.

Input: driver calls (cuda_driver.py), a function that starts work on a stream.  Output: functions
that start all of it again.  A graph lives as long as its function.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import SupportsInt

from tilewright.hosts.cuda_l2_persistence import DriverCall

#: A word without any of these bits is 0.
EVERY_BIT = 2**32 - 1
#: One recording at a time: another thread must not turn garbage collection on during it.
_RECORDING = threading.RLock()


@contextmanager
def uncollected() -> Iterator[None]:
    """Turns garbage collection off in all threads: freeing GPU memory would break a recording."""
    with _RECORDING:
        was = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was:
                gc.enable()


def any_bit(api: ModuleType) -> int:
    """The flag of a wait that ends when the word and the value have a bit in common."""
    return int(api.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_AND)


class Graphs:
    """call: calls a driver function by name"""

    def __init__(self, api: ModuleType, call: DriverCall) -> None:
        self._api, self._call = api, call

    def recorded(self, start: Callable[[], None], stream: SupportsInt) -> Callable[[], None]:
        """A function that repeats the work that `start` starts on the stream.  An error in `start`
        ends the recording."""
        graph = self._captured(start, stream)
        try:
            ready = self._call("cuGraphInstantiate", graph, 0)
        finally:
            self._destroyed(graph)

        def run() -> None:
            self._call("cuGraphLaunch", ready, stream)

        weakref.finalize(run, self._api.cuGraphExecDestroy, ready)
        return run

    def recorded_after(
        self, address: int, start: Callable[[], None], stream: SupportsInt
    ) -> Callable[[int], None]:
        """The same; the function first sets a 32-bit word to its argument.  No kernel writes it, so
        it is written even if no multiprocessor has room."""
        graph, value = self._captured(start, stream), 0
        try:
            context = self._call("cuCtxGetCurrent")
            first = self._first(graph)
            node = self._call(
                "cuGraphAddBatchMemOpNode", graph, [], 0, self._written(context, address, value)
            )
            self._call("cuGraphAddDependencies", graph, [node], [first], None, 1)
            ready = self._call("cuGraphInstantiate", graph, 0)
        except BaseException:
            self._destroyed(graph)
            raise

        def run(given: int) -> None:
            nonlocal value
            if given != value:
                params = self._written(context, address, given)
                self._call("cuGraphExecBatchMemOpNodeSetParams", ready, node, params)
                value = given
            self._call("cuGraphLaunch", ready, stream)

        # The node belongs to the graph, which must live so that the node can be changed.
        weakref.finalize(run, self._destroyed, graph)
        weakref.finalize(run, self._api.cuGraphExecDestroy, ready)
        return run

    def gate(self, address: int, stream: SupportsInt) -> None:
        """During a recording of `stream`: later work waits until a 32-bit word is not 0."""
        _, _, graph, before, _, count = self._call("cuStreamGetCaptureInfo", stream)
        context = self._call("cuCtxGetCurrent")
        node = self._call(
            "cuGraphAddBatchMemOpNode", graph, before, count, self._waited(context, address)
        )
        kind = self._api.CUstreamUpdateCaptureDependencies_flags
        chosen = kind.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        self._call("cuStreamUpdateCaptureDependencies", stream, [node], None, 1, chosen)

    def _captured(self, start: Callable[[], None], stream: SupportsInt) -> SupportsInt:
        kind = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        with uncollected():
            self._call("cuStreamBeginCapture", stream, kind)
            try:
                start()
            except BaseException:
                _, graph = self._api.cuStreamEndCapture(stream)
                self._destroyed(graph)
                raise
            made: SupportsInt = self._call("cuStreamEndCapture", stream)
            return made

    def _first(self, graph: SupportsInt) -> object:
        """The graph's one root: work recorded on one stream is a chain."""
        nodes, _ = self._call("cuGraphGetRootNodes", graph, 1)
        first: object = nodes[0]
        return first

    def _written(self, context: object, address: int, value: int) -> object:
        return self._operation(context, "write", address, value, 0)

    def _waited(self, context: object, address: int) -> object:
        return self._operation(context, "wait", address, EVERY_BIT, any_bit(self._api))

    def _operation(
        self, context: object, kind: str, address: int, value: int, flags: int
    ) -> object:
        """The parameters of a node that does one operation on a word."""
        api = self._api
        wanted = getattr(api.CUstreamBatchMemOpType, f"CU_STREAM_MEM_OP_{kind.upper()}_VALUE_32")
        operation = api.CUstreamBatchMemOpParams()
        operation.operation = wanted
        given = getattr(operation, f"{kind}Value")
        given.operation, given.address, given.value, given.flags = wanted, address, value, flags
        setattr(operation, f"{kind}Value", given)
        params = api.CUDA_BATCH_MEM_OP_NODE_PARAMS()
        params.ctx, params.count, params.flags = context, 1, 0
        params.paramArray = [operation]
        made: object = params
        return made

    def _destroyed(self, graph: SupportsInt | None) -> None:
        """Destroys a graph after an executable was made from it; after a failure it may be null."""
        if graph is not None and int(graph):
            self._api.cuGraphDestroy(graph)

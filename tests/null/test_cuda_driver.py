"""Calls of NVIDIA's driver as they are made, with an interface that only writes them down."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.base.errors import HostError
from tilewright.hosts.cuda_driver import Driver, uncollected


class Said:
    """Each call succeeds; `results` has what some of them give."""

    def __init__(self, **results: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._results = results
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, *args))
            return (0, *self._results.get(name, ()))

        return call


def driver(said: Said) -> Driver:
    made = object.__new__(Driver)
    made._api, made.sms = said, 4
    return made


def test_graphs_are_given_back() -> None:
    said = Said(cuStreamEndCapture=(7,), cuGraphInstantiate=(9,))
    run = driver(said).graph(lambda: None, "stream")
    run()
    assert ("cuGraphLaunch", 9, "stream") in said.calls
    assert ("cuGraphDestroy", 7) in said.calls
    assert ("cuGraphExecDestroy", 9) not in said.calls
    del run
    gc.collect()
    assert ("cuGraphExecDestroy", 9) in said.calls


def test_a_recording_that_fails_is_ended() -> None:
    said = Said(cuStreamEndCapture=(7,))

    def fails() -> None:
        raise ValueError("no launch")

    with pytest.raises(ValueError, match="no launch"):
        driver(said).graph(fails, "stream")
    assert [call[0] for call in said.calls] == [
        "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphDestroy",
    ]  # fmt: skip


def test_dynamic_shared_memory_counts_for_residents() -> None:
    said = Said(cuOccupancyMaxActiveBlocksPerMultiprocessor=(2,))
    assert driver(said).residents("k", 128, 4096) == 8
    assert said.calls == [("cuOccupancyMaxActiveBlocksPerMultiprocessor", "k", 128, 4096)]


def test_nothing_is_collected_while_a_graph_is_recorded() -> None:
    seen: list[bool] = []

    @uncollected()
    def record() -> None:
        seen.append(gc.isenabled())
        raise HostError("the recording failed", hint="Report this")

    with pytest.raises(HostError):
        record()
    assert seen == [False]
    assert gc.isenabled()

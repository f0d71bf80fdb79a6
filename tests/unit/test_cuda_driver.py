"""Calls of NVIDIA's driver as they are made, with an interface that only writes them down."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.waiting import PATIENCE

from tilewright.base.errors import HostError
from tilewright.hosts import cuda_devices, cuda_driver
from tilewright.hosts.cuda_devices import RELEASE, SETTLE, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver, compiled, context_reader, cubins
from tilewright.hosts.cuda_graphs import Graphs, uncollected
from tilewright.hosts.cuda_tasks import Launch, Release, Settle


class Said:
    """Each call succeeds; `results` has what some of them give."""

    def __init__(self, api: Any = None, **results: Any) -> None:
        """api: of NVIDIA's bindings, for classes and constants"""
        self.calls: list[tuple[Any, ...]] = []
        self._api = api
        self._results = results
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __getattr__(self, name: str) -> Any:
        if self._api is not None and not name.startswith("cu"):
            return getattr(self._api, name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, *args))
            return (0, *self._results.get(name, ()))

        return call


def driver(said: Said) -> Driver:
    made = object.__new__(Driver)
    made._api, made.sms = said, 4
    made.graphs = Graphs(said, made._do)
    return made


def test_memory_is_given_with_its_zeroes() -> None:
    """Or they would come after what a stream, which does not wait for them, wrote there."""
    said = Said(cuMemAlloc=(4096,))
    said.CUresult = SimpleNamespace(CUDA_ERROR_OUT_OF_MEMORY=2)
    assert driver(said).allocate(16) == 4096
    assert said.calls[-2:] == [("cuMemsetD8", 4096, 0, 16), ("cuStreamSynchronize", 0)]


class Contexts(Said):
    """Knows the context of each thread, as CUDA does; `code` is its answer to the question."""

    CUresult = IntEnum("CUresult", {"SUCCESS": 0, "DEINITIALIZED": 4})

    def __init__(self) -> None:
        super().__init__()
        self.code, self.switches = 0, list[int]()
        self._thread = threading.local()
        self._reader = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))(self._read)

    def _read(self, found: Any) -> int:
        found[0] = getattr(self._thread, "context", None)
        return self.code

    def cuGetProcAddress(
        self, name: bytes, version: int, flags: int
    ) -> tuple[int, int | None, int]:
        assert name == b"cuCtxGetCurrent"
        return 0, ctypes.cast(self._reader, ctypes.c_void_p).value, 0

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:
        self.switches.append(context)
        self._thread.context = context
        return (0,)

    def driver(self, context: int) -> Driver:
        made = driver(self)
        made._context, made._current = context, context_reader(self)
        return made


def test_a_thread_switches_to_a_gpu_only_if_cuda_says_that_it_uses_another() -> None:
    """Each thread has a GPU of its own, and another library may switch it."""
    said = Contexts()
    one, other = said.driver(1), said.driver(2)

    def works() -> None:
        for each in (one, one, other, other, one):
            each.ensure_current()
        said.cuCtxSetCurrent(2)  # as PyTorch does
        one.ensure_current()

    for _ in range(2):
        said.switches.clear()
        thread = threading.Thread(target=works)
        thread.start()
        thread.join(PATIENCE)
        assert said.switches == [1, 2, 1, 2, 1]


def test_an_error_of_the_question_for_the_context_is_raised() -> None:
    said = Contexts()
    said.code = 4
    with pytest.raises(HostError, match="DEINITIALIZED"):
        said.driver(1).ensure_current()


def test_graphs_are_given_back() -> None:
    said = Said(cuStreamEndCapture=(7,), cuGraphInstantiate=(9,))
    run = driver(said).graphs.recorded(lambda: None, "stream")
    run()
    assert ("cuGraphLaunch", 9, "stream") in said.calls
    assert ("cuGraphDestroy", 7) in said.calls
    assert ("cuGraphExecDestroy", 9) not in said.calls
    del run
    gc.collect()
    assert ("cuGraphExecDestroy", 9) in said.calls


def test_a_word_is_written_before_what_was_recorded() -> None:
    api = pytest.importorskip("cuda.bindings.driver")
    results = {
        "cuStreamEndCapture": (7,), "cuGraphInstantiate": (9,),
        "cuGraphGetRootNodes": (["root"], 1), "cuGraphAddBatchMemOpNode": ("node",),
        "cuCtxGetCurrent": (api.CUcontext(),),
    }  # fmt: skip
    said = Said(api, **results)
    run = driver(said).graphs.recorded_after(256, lambda: None, "stream")
    assert ("cuGraphAddDependencies", 7, ["node"], ["root"], None, 1) in said.calls
    assert ("cuGraphDestroy", 7) not in said.calls
    said.calls.clear()
    for value in (3, 3, 0):
        run(value)
    written, launched = "cuGraphExecBatchMemOpNodeSetParams", "cuGraphLaunch"
    assert [call[0] for call in said.calls] == [written, launched, launched, written, launched]
    params = [call[3].paramArray[0].writeValue for call in said.calls if call[0] == written]
    assert [(int(p.address), int(p.value)) for p in params] == [(256, 3), (256, 0)]
    del run
    gc.collect()
    assert {("cuGraphDestroy", 7), ("cuGraphExecDestroy", 9)} <= set(said.calls)


def test_a_recording_that_fails_is_ended() -> None:
    said = Said(cuStreamEndCapture=(7,))

    def fails() -> None:
        raise ValueError("no launch")

    with pytest.raises(ValueError, match="no launch"):
        driver(said).graphs.recorded(fails, "stream")
    assert [call[0] for call in said.calls] == [
        "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphDestroy",
    ]  # fmt: skip


def test_a_handle_of_shared_memory_is_its_bytes() -> None:
    """The bindings' own class, whose fields are not the same in all their versions."""
    api = pytest.importorskip("cuda.bindings.driver")
    told, given = bytes(range(api.CU_IPC_HANDLE_SIZE)), api.CUipcMemHandle()
    ctypes.memmove(given.getPtr(), told, len(told))
    said = Said(api, cuIpcGetMemHandle=(given,), cuIpcOpenMemHandle=(4096,))
    assert driver(said).shared(7) == told
    assert driver(said).opened(told) == 4096
    _, handle, _ = said.calls[-1]
    assert ctypes.string_at(handle.getPtr(), len(told)) == told


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


class Noting:
    """A driver that notes what it is asked for; its kernels are their texts."""

    name, capability, shared_bytes, sms = "GPU", (9, 0), 0, 132

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def stream(self, urgent: bool) -> str:
        return "stream"

    def function(self, code: str, name: str, shared: int) -> str:
        self.said.append(("load", code))
        return code

    @property
    def graphs(self) -> Noting:
        return self

    def recorded(self, start: Callable[[], None], stream: str) -> Callable[[], None]:
        self.said.append(("begin",))
        start()
        return lambda: None

    def launch(self, launch: Launch, stream: str) -> None:
        values = tuple(arg.value for arg in launch.args)
        self.said.append((launch.kernel, launch.blocks, launch.group, values, stream))


def test_the_kernels_around_a_request_are_loaded_once_and_before_a_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_devices, "cubins", lambda texts, capability: texts)
    noting: Any = Noting()
    device = NvidiaDevice(noting)
    for _ in range(2):
        device.record([Settle(256, 512), Release(256, 512, 768)])
    recorded = [
        ("begin",),
        (SETTLE, 1, 1, (256, 512), "stream"),
        (RELEASE, 1, 1, (256, 512, 768), "stream"),
    ]
    assert noting.said == [("load", SETTLE), ("load", RELEASE), *recorded, *recorded]


def test_texts_are_compiled_at_once_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=PATIENCE)
    seen = list[str]()

    def made(text: str, capability: tuple[int, int]) -> bytes:
        seen.append(text)
        together.wait()
        return text.encode()

    monkeypatch.setattr(cuda_driver, "cubin", made)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert cubins(["a", "b", "a"], (9, 0)) == [b"a", b"b", b"a"]
    assert sorted(seen) == ["a", "b"]


def test_a_text_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(text: str, capability: tuple[int, int]) -> bytes:
        if text == "bad":
            raise HostError("NVRTC refuses a kernel", hint="Report this", host="cuda")
        return b""

    monkeypatch.setattr(cuda_driver, "cubin", made)
    with pytest.raises(HostError, match="refuses"):
        cubins(["good", "bad", "good"], (9, 0))


def test_the_compiler_writes_into_a_buffer_of_its_own() -> None:
    """Python shares short bytes objects: what is written into one of them changes all."""

    class Nvrtc:
        @staticmethod
        def nvrtcGetPTXSize(program: object) -> tuple[int, int]:
            return 0, 1

        @staticmethod
        def nvrtcGetPTX(program: object, buffer: bytearray) -> tuple[int]:
            buffer[:] = b"!"  # bytes would refuse
            return (0,)

    assert cuda_driver._filled(Nvrtc, None, "PTX") == b"!"


def test_what_nvrtc_compiles_and_says_is_read_from_that_buffer() -> None:
    text = 'extern "C" __global__ void k(float *a) { a[0] = 1; }'
    assert b".entry k" in compiled(text, ["--gpu-architecture=compute_90"])
    with pytest.raises(HostError, match=r"kernels.cu\(1\): error"):
        compiled("no text", ["--gpu-architecture=compute_90"])

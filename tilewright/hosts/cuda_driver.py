"""NVIDIA's driver and compiler through NVIDIA's own Python bindings, with errors checked.

Input: numbers, bytes and text.  Output: addresses, functions and bytes.  The bindings are an extra
of the package (`tilewright[cuda]`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, SupportsInt

import numpy as np

from tilewright.base.errors import HostError
from tilewright.hosts.cuda_graphs import EVERY_BIT, Graphs, any_bit
from tilewright.hosts.cuda_l2_persistence import L2Cache
from tilewright.hosts.cuda_tasks import CScalar, CValue, Launch
from tilewright.hosts.inputs_outputs import Array

#: Products and sums are not contracted; a kernel states where it wants a fused multiply-add.
OPTIONS = ("--fmad=false", "-std=c++17")
#: The environment variable with further options of NVRTC, for tools that inspect kernels.
MORE_OPTIONS = "TILEWRIGHT_NVRTC_OPTIONS"
#: Hardware queues for streams, at most 32; CUDA reads the variable when it starts.  By default
#: streams of a few models may share a queue, above all in a part of the GPU, and a stream that
#: waits blocks all others in its queue.
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
HINT = "Install NVIDIA's driver, or choose another host"
#: The version of CUDA's interface whose `cuCtxGetCurrent` is asked for.
CONTEXT_VERSION = 4000


@cache
def bindings() -> tuple[ModuleType, ModuleType]:
    """The modules `driver` and `nvrtc`.  Raises HostError if they are missing."""
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise HostError(
            "NVIDIA's Python bindings are not installed",
            hint="Install them: pip install 'tilewright[cuda]'",
            host="cuda",
        ) from error
    return driver, nvrtc


def cache_folder() -> Path:
    """The folder of compiled kernels."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tilewright" / "cuda"


def cubins(texts: Sequence[str], capability: tuple[int, int]) -> list[bytes]:
    """Compiles texts for a GPU, on all processors.  Raises HostError."""
    different = list(dict.fromkeys(texts))
    with ThreadPoolExecutor(os.cpu_count() or 1, "tilewright-nvrtc") as pool:
        made = pool.map(lambda text: cubin(text, capability), different)
        found = dict(zip(different, made, strict=True))
    return [found[text] for text in texts]


def cubin(text: str, capability: tuple[int, int]) -> bytes:
    """Compiles a text for a GPU, or reads it from disk if it was compiled before.  Raises
    HostError."""
    _, nvrtc = bindings()
    # Features that only Hopper has are not in the plain architecture name.
    own = "a" if capability == (9, 0) else ""
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}{own}", *OPTIONS]
    options += os.environ.get(MORE_OPTIONS, "").split()
    version = _done(nvrtc.nvrtcVersion())
    key = hashlib.sha256(repr((text, options, version)).encode()).hexdigest()
    kept = cache_folder() / f"{key}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    code = compiled(text, options)
    kept.parent.mkdir(parents=True, exist_ok=True)
    beside = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    beside.write_bytes(code)
    beside.replace(kept)
    return code


def compiled(text: str, options: Sequence[str]) -> bytes:
    """A text compiled by NVRTC, which needs no GPU: cubin for `sm_…`, PTX for `compute_…`.

    Raises HostError with the compiler's first error.
    """
    return compiled_kernels(text, options, ())[0]


def compiled_kernels(
    text: str, options: Sequence[str], names: Sequence[str]
) -> tuple[bytes, list[str]]:
    """The same, and the names of its kernels in the code.

    names: in C++; templates are instantiated ("scale<float>")
    """
    _, nvrtc = bindings()
    program = _done(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    try:
        for name in names:
            _done(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        given = [option.encode() for option in options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _filled(nvrtc, program, "ProgramLog")
            lines = log.decode(errors="replace").splitlines()
            first = next((line for line in lines if "error" in line), str(result))
            raise HostError(f"NVRTC refuses a kernel: {first}", hint="Report this", host="cuda")
        kind = "CUBIN" if any("sm_" in option for option in options) else "PTX"
        code = _filled(nvrtc, program, kind)
        lowered = [_done(nvrtc.nvrtcGetLoweredName(program, n.encode())) for n in names]
        return code, [name.decode() for name in lowered]
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _filled(nvrtc: ModuleType, program: object, what: str) -> bytes:
    """A buffer that NVRTC fills: "ProgramLog", "CUBIN" or "PTX"."""
    # A new buffer: Python may share a bytes object, and NVRTC would overwrite it for all its users.
    buffer = bytearray(_done(getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    _done(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return bytes(buffer)


def _done(answer: Sequence[Any]) -> Any:
    """The results of a call.  Raises HostError if it failed."""
    code, *results = answer
    if int(code):
        raise HostError(f"CUDA failed with {code.name}", hint=HINT, host="cuda", code=int(code))
    return results[0] if len(results) == 1 else tuple(results)


def context_reader(api: ModuleType) -> Callable[[], int]:
    """A function that returns the handle of the calling thread's context; 0 if it has none.

    During each call of the bindings another Python thread may take the interpreter lock, and a
    critical request would wait for it.  This function keeps the lock.  Measured on an H200 beside
    two busy threads: one of 100 calls of the bindings took 36 ms; no call of this function took
    more than 0.06 ms.
    """
    address, _ = _done(api.cuGetProcAddress(b"cuCtxGetCurrent", CONTEXT_VERSION, 0))
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))(int(address))

    def current() -> int:
        found = ctypes.c_void_p()
        code = call(ctypes.byref(found))
        if code:
            _done((api.CUresult(code),))
        return found.value or 0

    return current


class _Multiprocessors(Protocol):
    smCount: int


class _Part(Protocol):
    """A group of multiprocessors, as the driver splits a GPU."""

    sm: _Multiprocessors


class Driver:
    """One GPU, in its primary context, which it shares with other libraries of the process.

    sms: use only this many multiprocessors (a green context); None: all of them

    Raises HostError if there is no driver, no such GPU, or no such part of it.
    """

    def __init__(self, number: int, sms: int | None = None) -> None:
        self._api, _ = bindings()
        os.environ.setdefault(*QUEUES)
        try:
            self._do("cuInit", 0)
            count = self._do("cuDeviceGetCount")
        except (HostError, RuntimeError) as error:
            raise HostError(f"there is no CUDA driver: {error}", hint=HINT, host="cuda") from error
        if number >= count:
            raise HostError(
                f"there is no CUDA device {number}", hint=HINT, host="cuda", found=count
            )
        self._device = self._do("cuDeviceGet", number)
        self._context = self._do("cuDevicePrimaryCtxRetain", self._device)
        self._current = context_reader(self._api)
        self.use()
        self.name = self._do("cuDeviceGetName", 100, self._device).partition(b"\0")[0].decode()
        self.capability = (
            self._attribute("COMPUTE_CAPABILITY_MAJOR"),
            self._attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        self.sms = self._attribute("MULTIPROCESSOR_COUNT")
        self.shared_bytes = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.graphs = Graphs(self._api, self._do)
        self.l2 = L2Cache(self._api, self._do, self._attribute)
        self._green = None
        if sms is not None:
            groups = self._split(sms, 1)
            self._take(groups[:1])

    @classmethod
    def parts(cls, number: int, sizes: Sequence[int]) -> list[Driver]:
        """Splits one GPU into parts of these sizes (even numbers) that share no multiprocessor.

        All parts come from one split, since parts of two splits may overlap.  Raises HostError if
        there are too few multiprocessors.
        """
        made = [cls(number) for _ in sizes]
        groups = made[0]._split(2, made[0].sms // 2)
        for driver, size in zip(made, sizes, strict=True):
            own, groups = groups[: size // 2], groups[size // 2 :]
            if not own or len(own) < size // 2:
                raise HostError(
                    f"the GPU has no part of {', '.join(map(str, sizes))} multiprocessors",
                    hint="Ask for fewer, and for even numbers",
                    host="cuda",
                    sms=made[0].sms,
                )
            driver._take(own)
        return made

    def use(self) -> None:
        """Makes the calling thread use this GPU; the thread that made the driver does so
        already."""
        self._do("cuCtxSetCurrent", self._context)

    def ensure_current(self) -> None:
        """As `use`, but does nothing if the thread uses this GPU already.

        Asks CUDA each time: another library, such as PyTorch, may have switched the thread to
        another GPU.
        """
        if self._current() != int(self._context):
            self.use()

    def _do(self, call: str, *args: object) -> Any:
        return _done(getattr(self._api, call)(*args))

    def _attribute(self, name: str) -> int:
        kind = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._do("cuDeviceGetAttribute", kind, self._device))

    def _split(self, least: int, groups: int) -> Sequence[_Part]:
        """Groups of at least this many multiprocessors each, as small as possible."""
        api = self._api
        kind = api.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        flag = api.CUdevSmResourceSplitByCount_flags
        fine = flag.CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
        whole = self._do("cuDeviceGetDevResource", self._device, kind)
        made: Sequence[_Part]
        made, *_ = self._do("cuDevSmResourceSplitByCount", groups, whole, fine, least)
        return made

    def _take(self, groups: Sequence[_Part]) -> None:
        """Makes a green context of these groups and updates `self.sms`."""
        described = self._do("cuDevResourceGenerateDesc", groups, len(groups))
        self.sms = sum(int(group.sm.smCount) for group in groups)
        default = self._api.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        self._green = self._do("cuGreenCtxCreate", described, self._device, default)

    def stream(self, urgent: bool = False) -> SupportsInt:
        """A stream that does not wait for the default stream.  Blocks of an urgent stream are
        scheduled before those of others."""
        _, highest = self._do("cuCtxGetStreamPriorityRange")
        flags = self._api.CUstream_flags.CU_STREAM_NON_BLOCKING
        priority = highest if urgent else 0
        made: SupportsInt
        if self._green is None:
            made = self._do("cuStreamCreateWithPriority", flags, priority)
        else:
            made = self._do("cuGreenCtxStreamCreate", self._green, flags, priority)
        return made

    def allocate(self, size: int) -> int | None:
        """The address of memory that is set to 0; None if there is no room."""
        code, address = self._api.cuMemAlloc(max(size, 1))
        if code == self._api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        _done((code,))
        self._do("cuMemsetD8", address, 0, max(size, 1))
        # The fill may still be running, and our streams do not wait for the default stream.
        self._do("cuStreamSynchronize", 0)
        return int(address)

    def release(self, address: int) -> None:
        self._api.cuMemFree(address)

    def shared(self, address: int) -> bytes:
        """The handle with which another process opens this memory."""
        handle = self._do("cuIpcGetMemHandle", address)
        return ctypes.string_at(handle.getPtr(), self._api.CU_IPC_HANDLE_SIZE)

    def opened(self, handle: bytes) -> int:
        """The address of another process's memory."""
        made = self._api.CUipcMemHandle()
        ctypes.memmove(made.getPtr(), handle, self._api.CU_IPC_HANDLE_SIZE)
        lazy = self._api.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        return int(self._do("cuIpcOpenMemHandle", made, lazy))

    def free_bytes(self) -> int:
        return int(self._do("cuMemGetInfo")[0])

    def upload(self, address: int, data: Array, stream: SupportsInt) -> None:
        """Copies to the device.  Memory that is not pinned is staged before this returns."""
        self._do("cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes, stream)

    def download(self, address: int, size: int, stream: SupportsInt) -> bytes:
        data = np.empty(size, np.uint8)
        self._do("cuMemcpyDtoHAsync", data.ctypes.data, address, size, stream)
        self._do("cuStreamSynchronize", stream)
        return data.tobytes()

    def function(self, code: bytes, name: str, shared: int = 0) -> SupportsInt:
        """A kernel, which belongs to no context: it runs in that of its stream.

        shared: the most dynamic shared memory in bytes, if it exceeds the usual limit
        """
        library = self._do("cuLibraryLoadData", code, [], [], 0, [], [], 0)
        kernel = self._do("cuLibraryGetKernel", library, name.encode())
        if shared:
            most = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do("cuKernelSetAttribute", most, shared, kernel, self._device)
        found: SupportsInt = self._api.CUfunction(int(kernel))
        return found

    def write_word(self, address: int, value: int, stream: SupportsInt) -> None:
        """Writes a word in the stream's order, without a kernel."""
        self._do("cuStreamWriteValue32", stream, address, value, 0)

    def wait_word(self, address: int, stream: SupportsInt) -> None:
        """Makes the stream wait until the word is not 0."""
        self._do("cuStreamWaitValue32", stream, address, EVERY_BIT, any_bit(self._api))

    def fill(self, address: int, value: int, stream: SupportsInt) -> None:
        """Writes a word in a way that can be recorded."""
        self._do("cuMemsetD32Async", address, value, 1, stream)

    def event(self) -> object:
        made: object = self._do("cuEventCreate", 0)
        return made

    def mark(self, event: object, stream: SupportsInt) -> None:
        self._do("cuEventRecord", event, stream)

    def forget(self, event: object) -> None:
        self._api.cuEventDestroy(event)

    def reached(self, event: object) -> None:
        """Waits for the mark."""
        self._do("cuEventSynchronize", event)

    def passed(self, event: object) -> bool:
        """True if the work that was started before the mark has ended."""
        code, *_ = self._api.cuEventQuery(event)
        if code == self._api.CUresult.CUDA_ERROR_NOT_READY:
            return False
        _done((code,))
        return True

    def between(self, begin: object, end: object) -> float:
        """Milliseconds from one mark to the other, after waiting for the latter."""
        self.reached(end)
        return float(self._do("cuEventElapsedTime", begin, end))

    def launch(self, launch: Launch, stream: SupportsInt) -> None:
        if launch.window is not None:
            self.l2.launch(launch, _parameters(launch.args), stream)
            return
        self._do(
            "cuLaunchKernel", launch.kernel, launch.blocks, 1, 1, launch.group, 1, 1,
            launch.shared, stream, _parameters(launch.args), 0,
        )  # fmt: skip

    def start(
        self,
        kernel: object,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[CValue],
        shared: int,
        stream: SupportsInt,
    ) -> None:
        """Launches a kernel in three dimensions.  args: ctypes values, also structures"""
        addresses = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        given = ctypes.addressof(addresses)
        self._do("cuLaunchKernel", kernel, *grid, *block, shared, stream, given, 0)

    def zero(self, address: int, size: int, stream: SupportsInt) -> None:
        self._do("cuMemsetD8Async", address, 0, size, stream)

    def wait(self, stream: SupportsInt) -> None:
        self._do("cuStreamSynchronize", stream)

    def mapped(self, size: int) -> tuple[int, int]:
        """Host memory that kernels can write: its address on the device and on the host."""
        address = self._do("cuMemHostAlloc", size, self._api.CU_MEMHOSTALLOC_DEVICEMAP)
        return int(address), int(self._do("cuMemHostGetDevicePointer", address, 0))

    def unmap(self, address: int) -> None:
        self._api.cuMemFreeHost(address)

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        """Resident blocks on all multiprocessors.  shared: bytes of dynamic shared memory"""
        each = self._do("cuOccupancyMaxActiveBlocksPerMultiprocessor", kernel, group, shared)
        return self.sms * int(each)

    def local_bytes(self, kernel: SupportsInt) -> int:
        kind = self._api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        own = self._api.CUkernel(int(kernel))
        return int(self._do("cuKernelGetAttribute", kind, own, self._device))

    def milliseconds(self, run: Callable[[], None], stream: SupportsInt) -> float:
        """Milliseconds between two events of the stream, around the work that `run` starts
        there."""
        begin, end = self.event(), self.event()
        try:
            self.mark(begin, stream)
            run()
            self.mark(end, stream)
            return self.between(begin, end)
        finally:
            for event in (begin, end):
                self.forget(event)


def _parameters(args: Sequence[CScalar]) -> tuple[tuple[object, ...], tuple[type[CScalar], ...]]:
    """Values and types for the bindings.  A null pointer is 0, not None."""
    values = tuple(arg.value or 0 for arg in args)
    return values, tuple(ctypes.c_void_p if isinstance(a, ctypes.c_void_p) else type(a)
                         for a in args)  # fmt: skip

"""Types for the part of the package wgpu that the hosts use, and its exceptions as our errors.

Input: work on a device.  Output: its result, or HostError or MemoryLimit.  The package has no types
of its own; objects that are only passed back to it (pipelines, layouts, bindings) have the type
`object`.  It has one exception for all errors; only its text tells that a device was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NotRequired, Protocol, TypedDict

from tilewright.base.errors import HostError, MemoryLimit


class AdapterInfo(TypedDict):
    """wgpu's description of an adapter."""

    device: str
    description: str
    adapter_type: str
    backend_type: str
    vendor_id: NotRequired[int]
    subgroup_min_size: NotRequired[int]
    subgroup_max_size: NotRequired[int]


class AdapterFacts(TypedDict):
    """Facts of an adapter for users and device classes.

    software: True if it is the CPU;  features: that kernels may use
    """

    name: str
    vendor: str
    description: str
    software: bool
    features: NotRequired[list[str]]


class GpuBuffer(Protocol):
    @property
    def size(self) -> int: ...


class GpuPass(Protocol):
    """A compute pass."""

    def set_pipeline(self, pipeline: object, /) -> None: ...
    def set_bind_group(
        self, index: int, group: object, offsets: Sequence[int] = ..., /
    ) -> None: ...
    def dispatch_workgroups(self, x: int, y: int = ..., /) -> None: ...
    def end(self) -> None: ...


class GpuEncoder(Protocol):
    def begin_compute_pass(self, *, timestamp_writes: object = ...) -> GpuPass: ...
    def resolve_query_set(
        self, queries: object, first: int, count: int, into: GpuBuffer, at: int, /
    ) -> None: ...
    def finish(self) -> object: ...


class GpuQueue(Protocol):
    """A queue.  _internal: wgpu-native's own queue, if wgpu-native made the device"""

    @property
    def _internal(self) -> object: ...
    def write_buffer(self, buffer: GpuBuffer, at: int, data: bytes, /) -> None: ...
    def read_buffer(self, buffer: GpuBuffer, at: int = ..., size: int = ..., /) -> memoryview: ...
    def submit(self, commands: Sequence[object], /) -> None: ...
    def on_submitted_work_done_sync(self) -> None: ...


class GpuDevice(Protocol):
    @property
    def queue(self) -> GpuQueue: ...
    @property
    def features(self) -> Collection[str]: ...
    @property
    def limits(self) -> Mapping[str, int]: ...

    def create_buffer(self, *, size: int, usage: int) -> GpuBuffer: ...
    def create_shader_module(self, *, code: str) -> object: ...
    def create_bind_group_layout(self, *, entries: Sequence[object]) -> object: ...
    def create_bind_group(self, *, layout: object, entries: Sequence[object]) -> object: ...
    def create_pipeline_layout(self, *, bind_group_layouts: Sequence[object]) -> object: ...
    def create_compute_pipeline(self, *, layout: object, compute: object) -> object: ...
    def create_command_encoder(self) -> GpuEncoder: ...
    def create_query_set(self, *, type: str, count: int) -> object: ...


class GpuAdapter(Protocol):
    @property
    def info(self) -> AdapterInfo: ...
    @property
    def features(self) -> Collection[str]: ...
    @property
    def limits(self) -> Mapping[str, int]: ...

    def request_device_sync(
        self, *, required_features: Sequence[str], required_limits: Mapping[str, int]
    ) -> GpuDevice: ...


class BufferUsage(Protocol):
    """Flags of a buffer."""

    STORAGE: int
    UNIFORM: int
    COPY_SRC: int
    COPY_DST: int
    QUERY_RESOLVE: int


class ShaderStage(Protocol):
    COMPUTE: int


class GpuAdapters(Protocol):
    def enumerate_adapters_sync(self) -> Sequence[GpuAdapter]: ...


class WgpuPackage(Protocol):
    """The package itself.  GPUError: the class of its errors"""

    __version__: str
    BufferUsage: BufferUsage
    ShaderStage: ShaderStage
    GPUError: type[Exception]
    gpu: GpuAdapters


@contextmanager
def working() -> Iterator[None]:
    """Raises HostError if the device did not do the work, MemoryLimit if it lacked memory."""
    import wgpu

    try:
        yield
    except wgpu.GPUError as error:
        said = str(error).strip().splitlines()[-1].strip()
        if isinstance(error, wgpu.GPUOutOfMemoryError):
            raise MemoryLimit(
                f"the GPU has no room for the model: {said}",
                hint="Close what else uses the GPU, or build smaller buckets",
            ) from error
        lost = "lost" in str(error)
        raise HostError(
            f"the GPU device {'was lost' if lost else 'refused a part of the work'}: {said}",
            hint="Load the bundle again: it then gets a new device",
            host="wgpu",
            lost=lost,
        ) from error

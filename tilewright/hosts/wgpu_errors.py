"""Converts the exceptions of wgpu to our errors.

Input: work on a device.  Output: its result, or HostError or MemoryLimit. wgpu has one exception
for all errors; only its text tells that a device was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.base.errors import HostError, MemoryLimit


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

"""Memory that stays in a GPU's L2 cache while other kernels' data pass through it.

Input: driver calls (cuda_driver.py), ranges of memory.  Output: a reserved part of the cache, and
windows, an attribute of launches, which works in streams and in graphs alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, SupportsInt

from tilewright.base.errors import HostError, required

HINT = "Leave out L2 persistence, or use a whole GPU of compute capability 8.0 or more"


#: Calls a driver function by name with its arguments; returns its results.
DriverCall = Callable[..., Any]


@dataclass(frozen=True)
class Window:
    """A range of device memory in bytes;  share: of its lines that stay, as the device picks"""

    address: int
    size: int
    share: float


class WindowLaunch(Protocol):
    """A `Launch` (cuda_tasks.py), which itself refers to windows."""

    @property
    def kernel(self) -> object: ...
    @property
    def blocks(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def window(self) -> Window | None: ...


class L2Cache:
    """The L2 cache of one GPU.

    call: calls a driver function by name;  attribute: reads a device attribute by name
    """

    def __init__(self, api: ModuleType, call: DriverCall, attribute: Callable[[str], int]) -> None:
        self._api, self._call, self._attribute = api, call, attribute
        self._before: int | None = None

    def keep(self, ranges: Sequence[tuple[int, int]]) -> tuple[Window | None, ...]:
        """Reserves the cache that the ranges need, or the most that the device allows; they share
        it evenly.

        ranges: address and bytes of each;  None in the result: the range has no bytes

        Raises HostError if the device cannot reserve cache.
        """
        most = self._attribute("MAX_PERSISTING_L2_CACHE_SIZE")
        widest = self._attribute("MAX_ACCESS_POLICY_WINDOW_SIZE")
        if not most or not widest:
            raise HostError(
                "this GPU cannot reserve a part of its L2 cache",
                hint=HINT,
                most_bytes=most,
                widest_bytes=widest,
            )
        sizes = [min(size, widest) for _, size in ranges]
        total = sum(sizes)
        if not total:
            return (None,) * len(ranges)
        limit = self._api.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        try:
            if self._before is None:
                self._before = int(self._call("cuCtxGetLimit", limit))
            self._call("cuCtxSetLimit", limit, min(most, total))
            # The driver may round the size, and other programs may limit it.
            given = int(self._call("cuCtxGetLimit", limit))
        except HostError as error:
            raise HostError(
                f"the driver does not reserve a part of the L2 cache: {error.message}", hint=HINT
            ) from error
        share = min(1.0, given / total)
        return tuple(
            Window(address, size, share) if size else None
            for (address, _), size in zip(ranges, sizes, strict=True)
        )

    def release(self) -> None:
        """Releases the cache and restores its limit."""
        if self._before is None:
            return
        self._call("cuCtxResetPersistingL2Cache")
        limit = self._api.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        self._call("cuCtxSetLimit", limit, self._before)
        self._before = None

    def launch(self, launch: WindowLaunch, parameters: object, stream: SupportsInt) -> None:
        """Launches with the window; a captured launch becomes a node with the same window.

        parameters: of the kernel, as the bindings take them
        """
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.group, 1, 1
        config.sharedMemBytes, config.hStream = launch.shared, stream
        config.attrs, config.numAttrs = [self._policy(launch.window)], 1
        self._call("cuLaunchKernelEx", config, launch.kernel, parameters, 0)

    def _policy(self, window: Window | None) -> object:
        """The access policy of a window.  Lines beyond its share behave as without a window."""
        window = required(window, "a launch without a window")
        kinds = self._api.CUaccessProperty
        policy = self._api.CUaccessPolicyWindow()
        policy.base_ptr, policy.num_bytes = window.address, window.size
        policy.hitRatio = window.share
        policy.hitProp = kinds.CU_ACCESS_PROPERTY_PERSISTING
        policy.missProp = kinds.CU_ACCESS_PROPERTY_NORMAL
        attribute = self._api.CUlaunchAttribute()
        attribute.id = self._api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        attribute.value.accessPolicyWindow = policy
        return attribute

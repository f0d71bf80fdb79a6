"""Memory that stays in a GPU's L2 cache while other kernels' data pass through it.

Input: calls of the driver (cuda_driver.py), ranges of memory.  Output: a part of the cache that is
set aside, and windows that launches carry as an attribute, in streams and in graphs alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, SupportsInt

from tilewright.base.errors import HostError
from tilewright.base.invariants import required

HINT = "Leave out L2 persistence, or use a whole GPU of compute capability 8.0 or more"


#: Of the driver: the name of one of its functions, and what that takes; gives what that gives.
DriverCall = Callable[..., Any]


@dataclass(frozen=True)
class Window:
    """A range of device memory in bytes;  share: of its lines that stay, as the device picks"""

    address: int
    size: int
    share: float


class WindowLaunch(Protocol):
    """As `Launch` (cuda_tasks.py), which knows windows itself."""

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

    call: of the driver, by name;  attribute: of the device, by name
    """

    def __init__(self, api: ModuleType, call: DriverCall, attribute: Callable[[str], int]) -> None:
        self._api, self._call, self._attribute = api, call, attribute
        self._before: int | None = None

    def keep(self, ranges: Sequence[tuple[int, int]]) -> tuple[Window | None, ...]:
        """Sets aside as much as the ranges need, or as the device allows: they share it evenly.

        ranges: address and bytes of each;  None in the answer: there are no bytes to keep
        Raises HostError where the device sets nothing aside.
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
            # what the driver made of it: it may round, and other programs may have more to say
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
        """Nothing stays any longer, and the limit is what it was."""
        if self._before is None:
            return
        self._call("cuCtxResetPersistingL2Cache")
        limit = self._api.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        self._call("cuCtxSetLimit", limit, self._before)
        self._before = None

    def launch(self, launch: WindowLaunch, parameters: object, stream: SupportsInt) -> None:
        """A launch with its window; one that is captured becomes a node with the same window.

        parameters: of the kernel, as the bindings want them
        """
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.group, 1, 1
        config.sharedMemBytes, config.hStream = launch.shared, stream
        config.attrs, config.numAttrs = [self._policy(launch.window)], 1
        self._call("cuLaunchKernelEx", config, launch.kernel, parameters, 0)

    def _policy(self, window: Window | None) -> object:
        """Lines beyond the share are as if there were no window."""
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

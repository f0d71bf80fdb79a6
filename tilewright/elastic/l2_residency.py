"""Keeps weights of critical models in the GPU's L2 cache while normal models run.

Input: a device, loaded critical models.  Output: a window for each, and how much of them stays. The
driver's calls are in hosts/cuda_l2.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from tilewright.base.errors import HostError
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver


class PersistentWeights:
    """A part of the cache that is reserved until `release`, or until nothing refers to this object.

    windows: in the order of the hosts; None: a model has no weights
    share:   the share of all weights' bytes that stays

    Raises HostError if the device cannot reserve cache.
    """

    def __init__(self, device: CudaDevice, hosts: Sequence[CudaHost]) -> None:
        if not isinstance(device, NvidiaDevice):
            raise HostError(
                f"{device.name} has no L2 cache that can be set aside",
                hint="Leave out L2 persistence, or use an NVIDIA GPU",
            )
        self.release = weakref.finalize(self, _release, device.driver)
        self.release.atexit = False  # at the process's end the driver releases it
        self.windows = device.driver.l2.keep([host.weights for host in hosts])
        total = sum(size for _, size in (host.weights for host in hosts))
        stays = sum(window.size * window.share for window in self.windows if window is not None)
        self.share = stays / total if total else 0.0


def _release(driver: Driver) -> None:
    driver.use()
    driver.l2.release()

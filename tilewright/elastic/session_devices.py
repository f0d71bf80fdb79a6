"""The devices of a session: a stream for each model, and one for the budget.

Input: settings, names of critical tasks, the number of normal models.  Output: `Devices`, traced if
the settings ask for it.  No model is loaded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.elastic.block_trace import BlockTrace, traced
from tilewright.elastic.policy import Policy, policy_named
from tilewright.elastic.settings import Settings
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver

#: Multiprocessors of the CPU device, as the policy sees it.
CPU_SMS = 2


@dataclass(frozen=True)
class Devices:
    """A stream for each model, and one for the budget alone.

    sms: multiprocessors in use;  traces: where kernels record their blocks; () if none do
    """

    critical: Sequence[CudaDevice]
    normal: Sequence[CudaDevice]
    control: CudaDevice
    sms: int
    traces: Sequence[BlockTrace] = ()

    def traced(self, names: Sequence[str]) -> Devices:
        """The same, with kernels that record their blocks.  names: of the critical tasks"""
        own = [BlockTrace(self.control, name, critical=True) for name in names]
        rest = [
            BlockTrace(self.control, f"normal {n}", critical=False) for n in range(len(self.normal))
        ]
        return Devices(
            list(map(traced, self.critical, own)),
            list(map(traced, self.normal, rest)),
            self.control,
            self.sms,
            [*own, *rest],
        )


def devices(settings: Settings, critical: Sequence[str], normal: int) -> Devices:
    """The devices of a session.

    critical: names of the tasks;  normal: the number of normal models

    Raises HostError if a device is missing.
    """
    make = _on_cpu if settings.kind == "cpu" else _on_gpu
    made = make(settings, len(critical), normal)
    return made.traced(critical) if settings.traced else made


def _on_cpu(settings: Settings, critical: int, normal: int) -> Devices:
    own = [CpuDevice(1) for _ in range(critical)]
    return Devices(own, [CpuDevice(1) for _ in range(normal)], CpuDevice(1), CPU_SMS)


def _on_gpu(settings: Settings, critical: int, normal: int) -> Devices:
    policy = policy_named(settings.policy)
    own, rest = _drivers(settings, policy)
    return Devices(
        [NvidiaDevice(own, urgent=policy.urgent) for _ in range(critical)],
        [NvidiaDevice(rest) for _ in range(normal)],
        NvidiaDevice(own, urgent=True),
        own.sms if own is rest else own.sms + rest.sms,
    )


def _drivers(settings: Settings, policy: Policy) -> tuple[Driver, Driver]:
    """The parts of the GPU for critical and for normal models; the same one if they share it."""
    if not policy.split:
        one = Driver(0, settings.sms)
        return one, one
    sms = settings.sms or Driver(0).sms
    first = max(2, round(sms * policy.split / 2) * 2)
    own, rest = Driver.parts(0, [first, sms - first])
    return own, rest

"""Costs of a host's kernels for the policy, and the grouping of kernels into runs.

Input: measured microseconds of kernels.  Output: `KernelCost`s, ends of runs.  measure_curves.py
measures and plans.py launches; this module does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.elastic.policy import KernelCost
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.tensors import largest_extents

#: The least microseconds of the kernels that one call starts.
RUN_US = 300.0


def kernel_costs(host: CudaHost, microseconds: Sequence[float]) -> tuple[KernelCost, ...]:
    """Costs of the kernels of a host's largest plan at its largest extents, for designs that decide
    by kernels.

    microseconds: the measured time of each kernel alone
    """
    found = []
    steps = host.steps(-1, largest_extents(host.bundle.manifest))
    for (slot, launch), took in zip(steps, microseconds, strict=True):
        tile = took / -(-launch.blocks // host.residents(slot, launch))
        chunk = tile / max(1, host.forms[slot].chunks)
        found.append(KernelCost(launch.blocks, launch.group, tile, chunk, whole_us=took))
    return tuple(found)


def run_ends(microseconds: Sequence[float], least: float = RUN_US) -> list[int]:
    """For each run the number of the first kernel after it.  All runs but the last take at least
    `least` microseconds."""
    ends, spent = list[int](), 0.0
    for number, took in enumerate(microseconds, 1):
        spent += took
        if spent >= least or number == len(microseconds):
            ends.append(number)
            spent = 0.0
    return ends


def run_cost(kernels: Sequence[KernelCost]) -> KernelCost:
    """The cost of a run, which the policy sees as one kernel."""
    return replace(
        kernels[0],
        tile_us=sum(kernel.tile_us for kernel in kernels),
        chunk_us=max(kernel.chunk_us for kernel in kernels),
        whole_us=sum(kernel.whole_us for kernel in kernels),
    )

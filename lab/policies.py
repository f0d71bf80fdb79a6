"""The policies that experiments compare: the product's own, and two from papers.

Output: `POLICIES` by name, for `Settings.policy` and `Scheduler`.  Where the papers leave something
open, docs/decisions/0031 and 0032 decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab import miriam
from tilewright.elastic.policy import POLICIES as USUAL
from tilewright.elastic.policy import Policy
from tilewright.elastic.policy.policies import ALL, Allotment, LaunchContext, all_workers
from tilewright.elastic.policy.state import pending_us

#: For scheduling at kernel boundaries as in Orion: the most time of launches in flight, as a share
#: of the request's time.
MOST_PENDING = 0.025


def _opposite(now: LaunchContext) -> Allotment | None:
    """Allots a launch to a normal kernel that leaves SMs free, needs other resources than the
    critical kernel, and ends soon; else None."""
    kernel, critical = now.kernel, now.critical
    each = kernel.residents(now.gpu) // now.gpu.sms
    small = -(-kernel.tiles // each) < now.gpu.sms
    differs = critical is None or (kernel.memory > kernel.compute) != (
        critical.memory > critical.compute
    )
    pending = pending_us(now.gpu, now.normal)
    soon = pending + kernel.tile_us <= MOST_PENDING * now.solo_us
    return ALL if small and differs and soon else None


def _shard(now: LaunchContext) -> Allotment | None:
    if now.critical is None:
        return None
    found = miriam.shard(now.kernel, now.critical, now.gpu, used(now))
    return None if found is None else Allotment(found.blocks, found.blocks, found.fold)


def used(now: LaunchContext) -> int:
    """The number of workers of normal launches in flight."""
    flights = ((p.task.kernels[f.kernel], f) for p in now.normal for f in p.flying)
    return sum(min(f.workers, k.residents(now.gpu), k.tiles) for k, f in flights)


PAPERS = (
    Policy("miriam", "tile", all_workers, _shard, by_kernels=True),
    Policy("boundary", "never", all_workers, _opposite, by_kernels=True),
)
POLICIES: Mapping[str, Policy] = {**USUAL, **{policy.name: policy for policy in PAPERS}}

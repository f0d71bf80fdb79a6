"""Products in f32 by groups of threads (targets/gpu/tiles.py), whose first tile may be turned.

Input: a contraction.  Output: what targets/gpu/target.py asks of a way.  Rows are copied by units
of four by four: in a tile of 64 rows and 128 columns by half of the threads only, while the others
wait.  In one of 128 rows and 64 columns all of them copy.  In CUDA C++ the latter is up to 1.3
times as fast; in WGSL it is slower, so it is no first choice there (decision 61).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import choice
from tilewright.targets.gpu.schedule import GroupSchedule
from tilewright.targets.gpu.space import Group, tiles_around
from tilewright.targets.gpu.tiles import lower as lower
from tilewright.targets.gpu.tiles import suits as suits
from tilewright.targets.gpu.tiles import traffic as traffic
from tilewright.targets.lite import Core

#: Rows, columns and threads of the tile that is turned.
WIDE = (64, 128, 128)


def default(kernel: Kernel) -> GroupSchedule:
    """That of all GPUs, turned where it is a wide one."""
    usual = choice.default(kernel)
    wide = (usual.x1, usual.y1, usual.threads) == WIDE
    return replace(usual, x1=usual.y1, y1=usual.x1) if wide else usual


@lru_cache(maxsize=64)
def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[GroupSchedule, float], ...]:
    """The default, then others, the likely best first."""
    return tiles_around(kernel, default(kernel), core, group)

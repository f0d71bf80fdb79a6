"""Products in f32 by groups of threads (targets/gpu/tiles.py), whose first tile may have 128 rows.

Input: a contraction.  Output: what targets/gpu/target.py asks of a way.  Rows are copied by units
of four by four: in a tile of 64 rows and 128 columns by half of the threads only, while the others
wait.  In one of 128 rows and 64 columns all of them copy.  In CUDA C++ the latter is up to 1.3
times as fast; in WGSL it is never faster, so it is no first choice there.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import choice
from tilewright.targets.gpu.schedule import GroupSchedule
from tilewright.targets.gpu.space import Group, tiles_around
from tilewright.targets.gpu.tiles import lower as lower
from tilewright.targets.gpu.tiles import suits as suits
from tilewright.targets.gpu.tiles import traffic as traffic
from tilewright.targets.lite import Core

ROWS = (128, *choice.ROWS)


def default(kernel: Kernel) -> GroupSchedule:
    """The tile with the fewest cycles."""
    return choice.best(kernel, GroupSchedule, ROWS)


@lru_cache(maxsize=64)
def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[GroupSchedule, float], ...]:
    """The default, then others, the likely best first."""
    return tiles_around(kernel, default(kernel), core, group)

"""Products of halves by groups of threads: tiles.py with operands in f16.

Input: a product that may be computed in halves (matrices.py), and a schedule.  Output: the loop
nest of one tile.  A device does twice as many multiply-adds of halves, and reads half as many bytes
of shared memory.  Sums are halves within a block of steps alone, and f32 from block to block: so
neither their size nor their error grows with the depth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.expr import Call, Expr, Reg
from tilewright.kernel.loops import TileFn
from tilewright.kernel.reduction import identity
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import choice, features, tiles
from tilewright.targets.gpu.matrices import types_of
from tilewright.targets.gpu.quick import quick
from tilewright.targets.gpu.schedule import WORD, GroupSchedule
from tilewright.targets.gpu.space import Group, tiles_around
from tilewright.targets.gpu.staging import LANES, Side
from tilewright.targets.lite import Core

#: Steps of a block: sums of more halves lose more, and fewer are often added to those of f32.
DEPTH = 32
#: Candidates of a product, and how much faster than f32 they are expected to be.
EACH, PACE = 12, 1.5


@dataclass(frozen=True)
class HalfSchedule(GroupSchedule):
    """The same tiles of halves."""

    form = "half"

    @property
    def features(self) -> frozenset[str]:
        return frozenset({features.F16})

    @property
    def shared(self) -> int:
        """Bytes of shared memory, at most; sums of slices are f32."""
        sums = WORD * (self.slices - 1) * (self.x1 // self.x0) * self.y1
        return (super().shared - sums) * F16.size // WORD + sums

    def objection(self, kernel: Kernel) -> str:
        if types_of(kernel) != "f16-f32":
            return f"the operands of {kernel.name} are no halves"
        return super().objection(kernel)


def suits(kernel: Kernel) -> bool:
    """True for products whose weights, or their scales, lie as halves."""
    return tiles.suits(kernel) and types_of(kernel) == "f16-f32"


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[HalfSchedule, float], ...]:
    """The likely best: those of a product of f32, in long blocks that are unrolled."""
    usual = choice.best(kernel, HalfSchedule)
    long = replace(usual, r0=DEPTH // usual.slices, r1=DEPTH, ahead=False)
    found = tiles_around(kernel, usual if long.objection(kernel) else long, core, group)
    return tuple((s, cost / PACE) for s, cost in found[:EACH])


def traffic(kernel: Kernel, schedule: HalfSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it."""
    return tiles.traffic(kernel, schedule)


def lower(kernel: Kernel, schedule: HalfSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; what lies beyond the ends is read as 0 and not stored."""
    return tiles.lower(quick(kernel), schedule, _Halves)


class _Halves(tiles.ProductTile):
    """One tile whose operands are halves."""

    operand = F16

    def _sides(self) -> tuple[Side, Side]:
        sides = super()._sides()
        for side in sides:
            side.as_halves(self.kernel)
        return sides

    def _multiply(self) -> None:
        for i, v in self._sums:
            self.b.set(_part(i, v).name, identity("sum", F16, LANES))
        super()._multiply()
        for i, v in self._sums:
            total, part = self.total(i, v), Call("cast", (_part(i, v),), F32, LANES)
            self.b.set(total.name, Call("add", (total, part), F32, LANES))

    def _more(self, i: int, v: int) -> tuple[str, Expr]:
        factors = (*self._factors(i, v), _part(i, v))
        return _part(i, v).name, Call("fma", factors, F16, LANES)


def _part(i: int, v: int) -> Reg:
    return Reg(f"part{i}_{v}", F16, LANES)

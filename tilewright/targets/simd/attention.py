"""Schedules of attention: the default, and the space around it.

Input: an attention and a machine.  Output: schedules; attention_loops.py makes their loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewright.kernel.form import Attention, even_keys, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import SHORT, Machine, aligned, even, whole
from tilewright.targets.simd.register_tiles import register_tile, varied_tiles
from tilewright.targets.simd.space_rules import Rules
from tilewright.targets.simd.vectorize import LANES

#: The wanted number of query rows of a tile: a head of 384 rows makes 8 tiles.
TILE_ROWS = 48

#: Up to this number of query rows, scores are dot products: transposing keys would cost more.
DOT_ROWS = 4


@dataclass(frozen=True)
class AttentionSchedule(Schedule):
    """x0, y0: the register tile of both products; r0: their steps per pass.

    x1: query rows of one head in a tile; y1: keys of a block; cache: operands whose blocks are
        copied to scratch memory
    """

    tag = "attention"
    x0: int = 1
    y0: int = 4
    r0: int = 8
    x1: int = 1
    y1: int = 4096
    cache: str = ""

    def objection(self, kernel: Kernel) -> str:
        found = super().objection(kernel)
        together = even_keys(kernel)
        if together % self.y1 and together < form_as(kernel, Attention).keys.extent:
            found = found or "y1 divides the keys of a block of memory"
        return found or (f"y0 is a multiple of {LANES}" if self.y0 % LANES else "")


def default(kernel: Kernel, machine: Machine) -> AttentionSchedule:
    """Enough rows to pay for staging the keys; the scores of a tile fit half of L2."""
    at = form_as(kernel, Attention)
    rows, keys = at.m.extent, at.keys.extent
    x0, y0 = register_tile(rows, keys, machine)
    x1 = x0 * max(1, min(TILE_ROWS, rows) // x0)
    y1 = max(256, machine.l2 // 2 // (4 * x1)) // 64 * 64
    # Longer sequences are divided into equal blocks of whole cache lines.
    y1 = -(-even(keys, y1) // 64) * 64 if keys > y1 else keys
    y1 = _together(kernel, y1)
    cache = "kv" if rows > DOT_ROWS else ""
    r0 = SHORT[0] if machine.chained else 4
    return AttentionSchedule(x0=x0, y0=y0, r0=r0, x1=x1, y1=y1, cache=cache)


def _together(kernel: Kernel, y1: int) -> int:
    """The largest block of at most `y1` keys that lie at constant distances."""
    keys, together = form_as(kernel, Attention).keys.extent, even_keys(kernel)
    if together == keys:
        return min(y1, keys)
    return max(n for n in range(1, min(y1, together) + 1) if together % n == 0)


def rules(kernel: Kernel, default: AttentionSchedule, machine: Machine) -> AttentionRules:
    return AttentionRules(kernel, default, machine, form_as(kernel, Attention))


@dataclass(frozen=True)
class AttentionRules(Rules[AttentionSchedule]):
    """Varies the register tiles of both products, query rows of a tile, keys of a block, and
    copies."""

    heads: Attention

    def extended(self) -> Iterator[AttentionSchedule]:
        d = self.normal_default
        rows, keys = self.heads.m.extent, self.heads.keys.extent
        for x0, y0 in varied_tiles(rows, keys, self.machine):
            yield replace(d, x0=x0, y0=y0, x1=max(1, d.x1 // x0) * x0)
        for cache in ("", "k", "v", "kv"):
            yield replace(d, cache=cache)
        for x1 in (d.x1 // 4, d.x1 // 2, d.x1 * 2):
            for y1 in (d.y1, 64, 128, 256):
                yield replace(d, x1=max(d.x0, x1), y1=y1)
        for y1 in (64, 128, 256, keys):
            yield replace(d, y1=y1)
        for r0 in (2, 4, 16):
            yield replace(d, r0=r0)

    def normal(self, s: AttentionSchedule) -> AttentionSchedule:
        rows = self.heads.m.extent
        x0 = min(s.x0, rows)
        return replace(s, x0=x0, x1=whole(s.x1, x0, rows), y1=_together(self.kernel, s.y1))

    def tiles(self, s: AttentionSchedule) -> int:
        return prod(v.extent for v in self.heads.outer) * -(-self.heads.m.extent // s.x1)

    def scratch(self, s: AttentionSchedule) -> int:
        at, wide = self.heads, 16
        most, keys = min(s.x1, at.m.extent), min(s.y1, at.keys.extent)
        words = most * (-(-keys // wide) * wide + 4 + at.n.extent) + at.depth.extent * s.y0
        if "v" in s.cache:
            words += keys * -(-at.n.extent // s.y0) * s.y0
        return aligned(4 * words)

"""Depthwise convolutions of bytes: a window for each channel, and a dot product for the taps of a
column.

Input: a kernel that sums products of windows and their weights, packed in fours (see
graph/passes/pack_weights.py), and a schedule.  Output: a `TileFn`.  The loops over pixels and
channels are those of all windows.  Bytes of four taps are interleaved until those of one channel
are adjacent, as the weights are; neighbouring pixels share the interleaved bytes.

    3x3, stride 1:  column x of rows 0..2 is interleaved once, for the pixels x - 2, x - 1 and x
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as combinations

from tilewright.base.dtypes import I8, I32, U8
from tilewright.kernel.builder import Values
from tilewright.kernel.expr import Const, Dot, Expr, Load, Reg, interleave
from tilewright.kernel.form import IntegerWindows, form_as
from tilewright.kernel.index import Index, Var, index, stride
from tilewright.kernel.loops import TileFn
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import PACKING
from tilewright.targets.simd.integer_gemm import begun, store_vectors
from tilewright.targets.simd.machine import TILE_WORK, Machine, even
from tilewright.targets.simd.vectorize import BYTES, LANES, storable, vector
from tilewright.targets.simd.windows import Unit, UnitRules, UnitSchedule, tiled

#: Taps of one channel in one dot product.
GROUP = PACKING.taps.bytes

#: Channels whose taps are interleaved together.
TAP_CHANNELS = 8


@dataclass(frozen=True)
class DepthwiseInt8Schedule(UnitSchedule):
    """x0: pixels of a unit, which share interleaved columns."""

    tag = "taps"

    @property
    def channels(self) -> int:
        return TAP_CHANNELS


def suits(kernel: Kernel) -> bool:
    """True if channels fill whole vectors of bytes, vectors can hold the results, and no size is
    set at run time."""
    wide = storable(kernel.dtype) and kernel.axes[-1].extent % BYTES == 0
    return wide and not kernel.extents


def default(kernel: Kernel, machine: Machine) -> DepthwiseInt8Schedule:
    """Pixels share columns of taps; their code is unrolled, so units of large windows have
    fewer."""
    del machine
    roles = form_as(kernel, IntegerWindows).operands
    pixels = roles.outer[-1].extent if roles.outer else 1
    x0 = even(pixels, max(1, min(8, 128 // roles.steps)))
    work = x0 * roles.n.extent * roles.steps
    return DepthwiseInt8Schedule(x0=x0, x1=max(1, TILE_WORK // work), y1=roles.n.extent)


def rules(
    kernel: Kernel, default: DepthwiseInt8Schedule, machine: Machine
) -> UnitRules[DepthwiseInt8Schedule]:
    return UnitRules(kernel, default, machine, form_as(kernel, IntegerWindows))


@dataclass(frozen=True)
class _Taps:
    """Up to four taps of a window: their positions on its axes, and the offset of their weights."""

    places: tuple[Values, ...]
    weights: Index


def lower(kernel: Kernel, schedule: DepthwiseInt8Schedule) -> TileFn:
    """Tiles of x1 units (x0 pixels of one row each) by y1 channels, 8 channels at a time."""
    form = form_as(kernel, IntegerWindows)
    return tiled(
        kernel, form, schedule, lambda b, x0: _TapUnit(b, kernel, form, x0, schedule, form)
    )


@dataclass
class _TapUnit(Unit):
    """Units of i32 sums."""

    form: IntegerWindows

    def _block(
        self, pixel: Index, count: int, channel: Index, channels: int, values: Values
    ) -> None:
        ops = self.form.operands
        axis, b = self.windows.pixel, self.b
        start, value = begun(self.kernel.value)
        kernel = replace(self.kernel, value=value)
        columns: dict[tuple[Index, ...], list[Expr]] = {}
        weights: dict[Index, Reg] = {}
        sums: dict[int, list[Reg]] = {}
        before: list[Expr]
        work = self._in_order(ops, pixel, count, values)
        last = {i: number for number, (_, i, _) in enumerate(work)}
        for number, (at, i, taps) in enumerate(work):
            point = {**values, axis: pixel + i}
            if i not in sums:
                sums[i] = [Reg(f"s{i}_{q}", I32, LANES) for q in range(channels // LANES)]
                before = [self._start(start, ops.n, channel + q * LANES, point) for q in (0, 1)]
            else:
                before = list(sums[i])
            where = tuple(a.substitute({ops.n: channel}) for a in at)
            if where not in columns:
                columns[where] = self._zipped(ops, where, len(columns))
            for q, (acc, row) in enumerate(zip(sums[i], columns[where], strict=True)):
                place = taps.weights + channel * GROUP + q * BYTES
                if place not in weights:
                    weights[place] = Reg(f"w{len(weights)}", I8, BYTES)
                    b.set(weights[place].name, Load(ops.col.buffer, place, I8, BYTES))
                dot = Dot(before[q], row, weights[place], self.form.narrow)
                b.set(acc.name, dot)
            if last[i] == number:
                store_vectors(b, kernel, ops.n, point, channel, sums[i], 0)

    def _start(self, start: Expr | None, n: Var, channel: Index, point: Values) -> Expr:
        if start is None:
            return Const(0, I32, LANES)
        return vector(start, n, channel, LANES, point, {})

    def _in_order(
        self, ops: Operands, pixel: Index, count: int, values: Values
    ) -> list[tuple[tuple[Index, ...], int, _Taps]]:
        """(position of the taps, pixel, taps), ordered so that loads of one column are
        neighbours."""
        pitch = stride(ops.row.index, ops.depth[0]) or 1
        found = []
        for i in range(count):
            point = {**values, self.windows.pixel: pixel + i}
            for taps in _groups(self.kernel, ops):
                at = [ops.row.index.substitute({**point, **place}) for place in taps.places]
                found.append((tuple(at), i, taps))
        return sorted(found, key=lambda x: (x[0][0].const % pitch, x[0][0].const))

    def _zipped(self, ops: Operands, where: tuple[Index, ...], number: int) -> list[Expr]:
        """The bytes of four taps, interleaved by channel: two vectors of 4 channels."""
        x: list[Expr] = []
        for t, at in enumerate(where):
            reg = Reg(f"x{number}_{t}", U8, BYTES)
            self.b.set(reg.name, Load(ops.row.buffer, at, U8, BYTES, TAP_CHANNELS))
            x.append(reg)
        x += x[-1:] * (GROUP - len(x))  # any value will do where the weights are zero
        pairs = [self._keep(f"p{number}_{t}", interleave(x[t], x[t + 1], 1, False)) for t in (0, 2)]
        return [
            self._keep(f"z{number}_{q}", interleave(pairs[0], pairs[1], 2, q == 1)) for q in (0, 1)
        ]

    def _keep(self, name: str, value: Expr) -> Reg:
        self.b.set(name, value)
        return Reg(name, U8, BYTES)


def _groups(kernel: Kernel, ops: Operands) -> list[_Taps]:
    """The taps in groups of four, as the weights are stored."""
    axes = kernel.stages[0].axes
    slots: dict[int, dict[int, dict[Var, Index]]] = {}
    for point in combinations(*(range(v.extent) for v in axes)):
        place = {v: index(i) for v, i in zip(axes, point, strict=True)}
        at = ops.col.index.substitute({**place, ops.n: Index()}).const
        slots.setdefault(at - at % GROUP, {})[at % GROUP] = place
    return [
        _Taps(tuple(place for _, place in sorted(taps.items())), index(at))
        for at, taps in sorted(slots.items())
    ]

"""Windows: depthwise convolution, pooling, means over an image, vectors running along the channels.

Input: a kernel with one reduction that runs across the contiguous axis.  Output: a `TileFn`.  The
results of x0 neighbouring points ("pixels") times y0 channels stay in registers.  The windows of
neighbouring pixels overlap: what they share is loaded once per row of taps.

    3 taps, stride 1, 4 pixels:  x[0..5] and w[0..2] are loaded once, for 12 multiply-adds

Pixels are split evenly, as rows of a contraction are.  Padding is no matter of this file: windows
read padded memory, or carry guards that are evaluated per tap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Call, Expr, Load, Reg, dtype_of, lanes_of
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.reduction import Values, identity, nest, step
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import vector
from tilewright.kernel.windows import Windows


def lower_windows(
    kernel: Kernel, windows: Windows, schedule: Schedule, kind: type[Unit] | None = None
) -> TileFn:
    """Tiles of x1 units (x0 pixels of one row each) by y1 channels, which `kind` emits."""
    x0, y0 = min(schedule.x0, windows.pixel.extent), schedule.y0
    per_row = -(-windows.pixel.extent // x0)
    rows = tuple(v.extent for v in windows.rows)
    units = prod(rows) * per_row
    blocks = -(-windows.channel.extent // y0)
    span = max(1, min(schedule.y1 // y0, blocks))
    col_tiles = -(-blocks // span)
    count = Var("units", units + 1)
    grid = (-(-units // schedule.x1), col_tiles)
    b = Builder({count: units}, prod(grid))
    unit_at, col_at = (b.let(i) for i in unflatten(b.tile, grid))
    first, first_block = b.let(unit_at * schedule.x1, "first"), b.let(col_at * span)
    end = b.let_min(first + schedule.x1, index(count))
    end_block = b.let_min(first_block + span, index(blocks))
    unit = (kind or Unit)(b, kernel, windows, schedule, x0)
    with b.loop("unit", first, end, extent=units) as number:
        *at, part = (b.let(i) for i in unflatten(number, (*rows, per_row)))
        values = dict(zip(windows.rows, at, strict=True))
        unit.emit(part, values, first_block, end_block)
    return b.finish(kernel)


@dataclass
class Unit:
    """Emits units: results of some pixels in registers over the whole window, then the store."""

    b: Builder
    kernel: Kernel
    windows: Windows
    schedule: Schedule
    x0: int

    def emit(self, part: Index, values: Values, first: Index, end: Index) -> None:
        """The pixels of unit number `part` of a row: its even share."""
        extent = self.windows.pixel.extent
        parts = -(-extent // self.x0)
        small, larger = divmod(extent, parts)
        if not larger:
            self._channels(part * small, small, values, first, end)
            return
        with self.b.branch() as then:
            self._channels(part * (small + 1), small + 1, values, first, end)
        with self.b.branch() as orelse:
            self._channels(part * small + larger, small, values, first, end)
        self.b.choose((Bound(part, larger),), then, orelse)

    def _channels(self, pixel: Index, count: int, values: Values, first: Index, end: Index) -> None:
        """All blocks of y0 channels from `first` to `end`; the last block may hold fewer."""
        y0, channels = self.schedule.y0, self.windows.channel.extent
        full, rest = divmod(channels, y0)
        pixel = self.b.let(pixel, "x")
        if full:
            last = self.b.let_min(end, index(full)) if rest else end
            with self.b.loop("c", first, last, extent=full) as block:
                self._block(pixel, count, block * y0, y0, values)
        if rest:
            with self.b.branch() as tail:
                self._block(pixel, count, index(full * y0), rest, values)
            self.b.choose((Bound(end - (full + 1), 1),), tail)

    def _block(
        self, pixel: Index, count: int, channel: Index, channels: int, values: Values
    ) -> None:
        """Results of `count` pixels and `channels` channels, and their store."""
        lanes, (stage,) = self.schedule.lanes, self.kernel.stages
        groups = range(-(-channels // lanes))
        vectors = [(j, min(channels - j * lanes, lanes) % lanes) for j in groups]
        accs = {
            (i, j): Reg(f"s{i}_{j}", dtype_of(stage.value), lanes)
            for i in range(count)
            for j, _ in vectors
        }
        for acc in accs.values():
            self.b.set(acc.name, identity(stage.op, acc.dtype, lanes))
        *outer, inner = stage.axes or (Var("one", 1),)
        unroll = max(1, min(self.schedule.r0, inner.extent))
        passes, rest = divmod(inner.extent, unroll)
        with nest(self.b, tuple(outer), values) as inside:
            with self.b.loop("k", Index(), index(passes)) as k:
                self._taps(pixel, channel, vectors, accs, inside, k * unroll, unroll)
            if rest:
                start = index(passes * unroll)
                self._taps(pixel, channel, vectors, accs, inside, start, rest)
        axis = self.windows.channel
        for (i, j), acc in accs.items():
            at = {**values, self.windows.pixel: pixel + i}
            base, valid = channel + j * lanes, vectors[j][1]
            value = vector(self.kernel.value, axis, base, lanes, at, {0: acc}, valid)
            self.b.store(0, self.kernel.store.substitute({**at, axis: base}), value, valid)

    def _taps(
        self,
        pixel: Index,
        channel: Index,
        vectors: list[tuple[int, int]],
        accs: dict[tuple[int, int], Reg],
        values: Values,
        first: Index,
        count: int,
    ) -> None:
        """`count` taps of the innermost window axis, in the order in which their elements lie."""
        (stage,) = self.kernel.stages
        inner = (stage.axes or (Var("one", 1),))[-1]
        loads = _Loads(self.b)
        pixels = 1 + max(i for i, _ in accs)
        lanes = self.schedule.lanes
        for i, tap in self.windows.in_order(pixels, count):
            at = {**values, self.windows.pixel: pixel + i, inner: first + tap}
            for j, valid in vectors:
                base, acc = channel + j * lanes, accs[i, j]
                value = vector(stage.value, self.windows.channel, base, lanes, at, {}, valid)
                self.b.set(acc.name, step(stage.op, acc, loads.once(value)))


@dataclass
class _Loads:
    """Reads each vector of a straight piece of code once."""

    b: Builder
    seen: dict[Load, Reg] = field(default_factory=dict)

    def once(self, e: Expr) -> Expr:
        """The expression with its certain loads in registers; a guard protects what is inside."""
        if isinstance(e, Load) and lanes_of(e) > 1:
            if e not in self.seen:
                self.seen[e] = Reg(f"v{len(self.seen)}", e.dtype, e.lanes)
                self.b.set(self.seen[e].name, e)
            return self.seen[e]
        if isinstance(e, Call):
            return Call(e.fn, tuple(map(self.once, e.operands)), e.dtype, e.lanes)
        return e

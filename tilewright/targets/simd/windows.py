"""Windows: depthwise convolution, pooling, means over an image; vectors run along the channels.

Input: a kernel with one reduction that runs across the contiguous axis.  Output: a `TileFn`.  The
results of x0 neighbouring points ("pixels") times y0 channels stay in registers.  The windows of
neighbouring pixels overlap, and the shared elements are loaded once per row of taps.

    3 taps, stride 1, 4 pixels:  x[0..5] and w[0..2] are loaded once, for 12 multiply-adds

Pixels are split evenly, like the rows of a contraction.  Padding is handled elsewhere: windows read
padded memory, or have guards that are evaluated per tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import TypeVar

from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import Bound, Call, Expr, Load, Reg, dtype_of, identity, lanes_of, step
from tilewright.kernel.form import Windows, form_as
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import TILE_WORK, Machine, around, even, whole
from tilewright.targets.simd.space_rules import Rules
from tilewright.targets.simd.vectorize import storable, vector

#: Taps along the innermost axis of a window that are unrolled.
MAX_TAPS = 11
#: Bytes of a cache line; the distance in bytes at which lines evict each other in a cache.
LINE, WAY = 64, 4096
#: Windows with more taps in a row need many pixels for each factor, whatever the cache holds.
FEW_TAPS = 5


@dataclass(frozen=True)
class UnitSchedule(Schedule):
    """x0: pixels of a unit; x1, y1: units and channels of one tile."""

    x0: int = 1
    x1: int = 1
    y1: int = 4096

    @property
    def channels(self) -> int:
        """Channels of a unit."""
        raise NotImplementedError


U = TypeVar("U", bound=UnitSchedule)


@dataclass(frozen=True)
class WindowsSchedule(UnitSchedule):
    """y0: channels of a unit; r0: taps per pass of the innermost loop."""

    tag = "windows"
    y0: int = 4
    r0: int = 1
    lanes: int = 4

    @property
    def channels(self) -> int:
        return self.y0

    def objection(self, kernel: Kernel) -> str:
        found = super().objection(kernel)
        return found or ("y0 is a multiple of lanes" if self.y0 % self.lanes else "")


def suits(kernel: Kernel) -> bool:
    """True if vectors can hold the sums and the results, and no axis ends at run time."""
    wide = storable(kernel.dtype) and storable(dtype_of(kernel.stages[0].value))
    return wide and not kernel.extents


def default(kernel: Kernel, machine: Machine) -> WindowsSchedule:
    """Chooses pixels that fit registers, with the taps' factors and one element; with few pixels,
    more channels.

    Eight independent results hide latency.  If cache lines would be evicted before the next
    channels are read, a unit has all channels of a line, and two pixels.
    """
    across = form_as(kernel, Windows)
    taps = across.taps if across.taps <= MAX_TAPS else 4
    room = machine.registers - 2 - (taps if across.weighted else 1)
    x0 = even(across.pixel.extent, min(8, room))
    vectors = 1 if across.weighted else max(1, 8 // x0)
    depth = prod(v.extent for v in kernel.stages[0].axes)
    work = TILE_WORK // x0
    few = across.weighted and across.taps <= FEW_TAPS
    if few and _lines(across, depth, x0) > 0.9 * _room(kernel, across, machine):
        x0, vectors = even(across.pixel.extent, 2), LINE // (kernel.dtype.size * machine.lanes)
        # Two pixels take little time, so their factors stay cached for the next two.
        work = machine.l1 // 2 // kernel.dtype.size
    y0 = machine.lanes * max(1, min(vectors, across.channel.extent // machine.lanes))
    blocks = -(-across.channel.extent // y0)
    span = even(blocks, work // (y0 * depth))
    x1 = max(1, TILE_WORK // (x0 * y0 * span * depth))
    return WindowsSchedule(x0=x0, y0=y0, r0=taps, x1=x1, y1=span * y0, lanes=machine.lanes)


def _lines(across: Windows, depth: int, x0: int) -> int:
    """The number of cache lines that a unit of x0 pixels reads and writes, one for each point."""
    by_pixel, by_tap = across.strides
    pairs = across.in_order(x0, across.taps)
    columns = {i * by_pixel + t * by_tap for i, t in pairs} if by_tap else pairs
    return len(columns) * (depth // across.taps) + x0


def _room(kernel: Kernel, across: Windows, machine: Machine) -> int:
    """The number of these lines that L1 holds.  Points are one row of channels apart; if that
    distance is a multiple of a large power of two, the lines use only a small part of the cache."""
    return machine.l1 // max(LINE, gcd(kernel.dtype.size * across.channel.extent, WAY))


@dataclass(frozen=True)
class UnitRules(Rules[U]):
    """Varies pixels in registers, and units and channels of a tile."""

    across: Windows

    def extended(self) -> Iterator[U]:
        d = self.normal_default
        yield from self.units()
        for x1 in around(d.x1):
            yield replace(d, x1=x1)
        for y1 in around(d.y1):
            yield replace(d, y1=y1)

    def units(self) -> Iterator[U]:
        """Units of other sizes."""
        for x0 in range(1, min(8, self.across.pixel.extent) + 1):
            yield replace(self.normal_default, x0=x0)

    def normal(self, s: U) -> U:
        x0 = min(s.x0, self.across.pixel.extent)
        y1 = whole(s.y1, s.channels, self.across.channel.extent)
        return replace(s, x0=x0, x1=min(s.x1, self._units(x0)), y1=y1)

    def tiles(self, s: U) -> int:
        s = self.normal(s)
        return -(-self._units(s.x0) // s.x1) * -(-self.across.channel.extent // s.y1)

    def _units(self, x0: int) -> int:
        per_row = -(-self.across.pixel.extent // x0)
        return prod(v.extent for v in self.across.rows) * per_row


@dataclass(frozen=True)
class WindowRules(UnitRules[WindowsSchedule]):
    """Varies channels of a unit, too, and taps per pass."""

    def extended(self) -> Iterator[WindowsSchedule]:
        yield from super().extended()
        for r0 in (1, 2, self.across.taps):
            yield replace(self.normal_default, r0=r0)

    def units(self) -> Iterator[WindowsSchedule]:
        for s in super().units():
            for vectors in (1, 2, 4):
                if s.x0 * vectors <= self.machine.registers - 2:
                    yield replace(s, y0=vectors * self.machine.lanes)


def rules(kernel: Kernel, default: WindowsSchedule, machine: Machine) -> WindowRules:
    return WindowRules(kernel, default, machine, form_as(kernel, Windows))


def lower(kernel: Kernel, schedule: WindowsSchedule) -> TileFn:
    """Tiles of x1 units (x0 pixels of one row each) by y1 channels."""
    across = form_as(kernel, Windows)
    return tiled(
        kernel, across, schedule, lambda b, x0: WindowUnit(b, kernel, across, x0, schedule)
    )


def tiled(
    kernel: Kernel,
    windows: Windows,
    schedule: UnitSchedule,
    make: Callable[[Builder, int], Unit],
) -> TileFn:
    """The grid of tiles and the loops over the units of one; `make` returns the units' emitter."""
    x0, y0 = min(schedule.x0, windows.pixel.extent), schedule.channels
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
    unit = make(b, x0)
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
    x0: int
    schedule: UnitSchedule

    def emit(self, part: Index, values: Values, first: Index, end: Index) -> None:
        """Emits the pixels of unit number `part` of a row: its even share."""
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
        """Emits all blocks of y0 channels from `first` to `end`; the last block may have fewer."""
        y0, channels = self.schedule.channels, self.windows.channel.extent
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
        """Computes and stores the results of `count` pixels and `channels` channels."""
        raise NotImplementedError


@dataclass
class WindowUnit(Unit):
    """Units of any reduction, one tap at a time."""

    schedule: WindowsSchedule

    def _block(
        self, pixel: Index, count: int, channel: Index, channels: int, values: Values
    ) -> None:
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
        """Emits `count` taps of the innermost window axis, in the order of their elements in
        memory."""
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
    """Loads each vector of a straight-line piece of code once."""

    b: Builder
    seen: dict[Load, Reg] = field(default_factory=dict)

    def once(self, e: Expr) -> Expr:
        """The expression with its unconditional loads in registers; loads inside a guard stay."""
        if isinstance(e, Load) and lanes_of(e) > 1:
            if e not in self.seen:
                self.seen[e] = Reg(f"v{len(self.seen)}", e.dtype, e.lanes)
                self.b.set(self.seen[e].name, e)
            return self.seen[e]
        if isinstance(e, Call):
            return Call(e.fn, tuple(map(self.once, e.operands)), e.dtype, e.lanes)
        return e

"""Schedules of products by workgroups, and the tests whether a product suits one.

Input: none, or a product. Output: the schedule types of this folder, a product's `Sizes`, and its
kind. strategies.py chooses the schedules to try; the other files make their loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod
from typing import ClassVar, Protocol

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F16
from tilewright.kernel.form import IntegerContraction, QuantisedContraction, classify, rounds_to_f16
from tilewright.kernel.gathers import may_trap
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.tile.addressing import fixed_product, operands, stage_operands, tile_of
from tilewright.targets.gpu.tile.staging import MOST_STEP_GAP
from tilewright.targets.gpu.workgroup_limits import (
    F16_FEATURE,
    MOST_SHARED,
    MOST_SUMS_PER_THREAD,
    PACKED_DOT_FEATURE,
    SUBGROUP_SIZES,
    SUBGROUPS_FEATURE,
    limit_objection,
    subgroup_feature,
    value_objection,
)
from tilewright.targets.schedule import Schedule
from tilewright.targets.vectors import LANES

#: Registers of a thread, in words, for addresses and counters.
OVERHEAD_REGISTERS = 24


@dataclass(frozen=True)
class RegisterGemmSchedule(Schedule):
    """Tiles of x1 by y1 in blocks of r1 steps, register tiles of x0 by y0, r0 steps unrolled.

    band:   rows of tiles that are visited together, column by column, so that their operands stay
            in the cache ("swizzle"); the largest possible number that divides the rows of tiles
    ahead:  a block is loaded to registers while the block before is computed ("prefetch")
    early:  these loads come before the barrier.  After it, a compiler may delay them to the end of
            the pass.  With many sums per thread, early loads cost registers and some sums wait for
            them.
    apart:  a gap separates steps in shared memory, so that threads write to different banks
            ("padding")
    slices: parts of a block's steps, each computed by its own threads, whose sums are added up at
            the end, so that a few tiles still give many threads work ("split-K")
    """

    tag = "group"
    x0: int = 8
    y0: int = 8
    r0: int = 4
    x1: int = 64
    y1: int = 64
    r1: int = 16
    band: int = 1
    ahead: bool = False
    apart: bool = False
    slices: int = 1
    early: bool = False

    @property
    def threads(self) -> int:
        return (self.x1 // self.x0) * (self.y1 // self.y0) * self.slices

    @property
    def shared(self) -> int:
        """The most bytes of shared memory."""
        gaps = MOST_STEP_GAP + LANES if self.apart else 0
        sums = (self.slices - 1) * (self.x1 // self.x0) * self.y1
        return WORD_BYTES * (self.r1 * (self.x1 + self.y1 + gaps) + sums)

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.x0 % LANES or self.y0 % LANES or self.r1 % LANES:
            return f"x0, y0 and r1 are multiples of {LANES}"
        if self.x1 % self.x0 or self.y1 % self.y0 or self.r1 % (self.r0 * self.slices):
            return "x1, y1 and r1 are multiples of x0, y0 and r0 * slices"
        form = classify(kernel)
        if isinstance(form, QuantisedContraction) and self.r1 % form.weights.together:
            return f"r1 is a multiple of the {form.weights.together} weights read at a time"
        return limit_objection(self.threads, self.shared)


class TileShape(Protocol):
    """Schedules with tiles of x1 by y1."""

    @property
    def x1(self) -> int: ...

    @property
    def y1(self) -> int: ...


class RegisterTiled(TileShape, Protocol):
    """Schedules whose threads have register tiles of x0 by y0."""

    @property
    def x0(self) -> int: ...

    @property
    def y0(self) -> int: ...


@dataclass(frozen=True)
class Sizes:
    """The sizes of a product: batches, rows, columns, and steps of the reduction."""

    batch: int
    rows: int
    cols: int
    steps: int

    @staticmethod
    def of(kernel: Kernel) -> Sizes:
        ops = operands(kernel)
        batch = prod(v.extent for v in ops.outer)
        return Sizes(batch, ops.m.extent, ops.n.extent, ops.steps)

    def tiles(self, s: TileShape) -> int:
        return self.batch * -(-self.rows // s.x1) * -(-self.cols // s.y1)

    @property
    def stored(self) -> int:
        """The number of sums that are stored."""
        return self.batch * self.rows * self.cols

    def words(self, s: RegisterGemmSchedule) -> float:
        """Words loaded and stored beyond shared memory."""
        return float(self.tiles(s) * self.steps * (s.x1 + s.y1) + self.stored)

    def band(self, most: int, x1: int) -> int:
        """The band of at most `most` for tiles of x1 rows (`RegisterGemmSchedule.band`)."""
        return gcd(most, ceil(self.rows / x1))


#: Bands that are tried.
BANDS = (1, 8)

#: Bytes of one step of a packed depth: a word.
BYTES_PER_STEP = WORD_BYTES


@dataclass(frozen=True)
class IntegerGemmSchedule(RegisterGemmSchedule):
    """The same tiles, whose steps are groups of four bytes."""

    tag = "dot"

    @property
    def features(self) -> frozenset[str]:
        return frozenset({PACKED_DOT_FEATURE})

    @property
    def shared(self) -> int:
        """The most bytes of shared memory, with a sum for each column."""
        return super().shared + WORD_BYTES * self.y1


def is_int8_product(kernel: Kernel) -> bool:
    """True for products of bytes whose extents are fixed and which cannot trap."""
    form = classify(kernel)
    if not isinstance(form, IntegerContraction) or form.group != BYTES_PER_STEP or kernel.extents:
        return False
    return form.operands.n.extent >= LANES and not may_trap(kernel)


@dataclass(frozen=True)
class F16GemmSchedule(RegisterGemmSchedule):
    """The same tiles with operands in f16."""

    tag = "half"

    @property
    def features(self) -> frozenset[str]:
        return frozenset({F16_FEATURE})

    @property
    def shared(self) -> int:
        """The most bytes of shared memory; the slices' sums are f32."""
        sums = WORD_BYTES * (self.slices - 1) * (self.x1 // self.x0) * self.y1
        return (super().shared - sums) * F16.size // WORD_BYTES + sums

    def objection(self, kernel: Kernel) -> str:
        if not may_round_to_f16(kernel):
            return f"the operands of {kernel.name} may not be rounded to f16"
        return super().objection(kernel)


def may_round_to_f16(kernel: Kernel) -> bool:
    """True for products of f32 whose operands may be rounded to f16."""
    return is_f32_product(kernel, rounds_to_f16)


def is_f32_product(kernel: Kernel, allowed: Callable[[Kernel], bool]) -> bool:
    """True for products of f32 with enough columns, fixed extents and no traps, that `allowed`
    accepts."""
    ops = fixed_product(kernel)
    return ops is not None and ops.n.extent >= LANES and allowed(kernel)


@dataclass(frozen=True)
class FewRowsSchedule(Schedule):
    """Tiles of y1 columns.  Each of `slices` groups of threads has a part of the steps, of which r0
    are unrolled."""

    tag = "thin"
    #: Slices that one slice adds up at a time, with its own.
    fan_in: ClassVar[int] = 2
    #: The largest r0 where the same group also reduces the row, or computes two products.
    most_unrolled_in_chain: ClassVar[int] = 8
    r0: int = 4
    y1: int = 8
    slices: int = 128

    @property
    def threads(self) -> int:
        return self.y1 // LANES * self.slices

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.y1 % LANES or self.slices & (self.slices - 1):
            return f"y1 is a multiple of {LANES}, and slices a power of two"
        return limit_objection(self.threads, self.shared(kernel))

    def shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory."""
        return WORD_BYTES * self.sums(operands(kernel).m.extent)

    def sums(self, rows: int) -> int:
        """Sums of all slices that go through shared memory."""
        return rows * self.y1 * (self.slices - self.slices // self.fan_in)


#: Weights in a word; bytes of a row that one vector load reads if a unit is that large.
WORD_WEIGHTS, VECTOR_BYTES = 8, 16

#: Steps that are rounded together.  With 32, neighbouring threads read too far apart, which takes
#: 1.3 times as long.
ROUNDED_STEPS = (8, 16)

#: Numbers in shared memory for each unit of a row, beside its bytes: scale and sum.
NUMBERS_PER_UNIT = 2


@dataclass(frozen=True)
class FewRowsInt8Schedule(FewRowsSchedule):
    """Tiles of y1 columns.  Each of `slices` groups of threads has a part of the units of steps, of
    which r0 are loaded ahead.  r1 steps of the rows are in shared memory at a time (0: all).

    unit:  steps that are rounded together, and that a thread multiplies at a time
    ahead: the first units of weights are loaded before the rows are rounded
    """

    tag = "rounded"
    fan_in: ClassVar[int] = 8
    most_unrolled_in_chain: ClassVar[int] = 2
    r0: int = 2
    y1: int = 32
    slices: int = 32
    r1: int = 0
    unit: int = 16
    ahead: bool = True

    @property
    def features(self) -> frozenset[str]:
        return frozenset({PACKED_DOT_FEATURE})

    def units(self, kernel: Kernel) -> int:
        """Units that are in shared memory at a time."""
        return min(self.r1 or MOST_SHARED, operands(kernel).steps) // self.unit

    def shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory."""
        each = self.unit + NUMBERS_PER_UNIT * WORD_BYTES
        return super().shared(kernel) + each * operands(kernel).m.extent * self.units(kernel)

    def objection(self, kernel: Kernel) -> str:
        if not may_round_to_int8(kernel):
            return f"the rows of {kernel.name} may not be rounded to bytes"
        if found := value_objection("unit", self.unit, ROUNDED_STEPS):
            return found
        if self.r1 % self.unit:
            return f"r1 is a multiple of {self.unit}"
        return super().objection(kernel)


def may_round_to_int8(kernel: Kernel) -> bool:
    """True for products with 4-bit weights whose other operand may be rounded to i8."""
    form = classify(kernel)
    if not isinstance(form, QuantisedContraction):
        return False
    weights = form.weights
    loose = bool(weights.scales) and all(kernel.buffers[n].loose == "i8" for n in weights.scales)
    return loose and weights.word == WORD_WEIGHTS and weights.size % max(ROUNDED_STEPS) == 0


#: The most vector multiply-adds in a text.  Drivers take long to compile more, and pages refuse it.
MOST_UNROLLED_VECTORS = 1024


@dataclass(frozen=True)
class SubgroupGemmSchedule(Schedule):
    """Tiles of x1 by y1, register tiles of x0 by y0.  The columns of r0 steps are loaded together.

    width:    threads of a subgroup, and steps of a block
    band:     as in `RegisterGemmSchedule`
    unrolled: the whole block is unrolled, so that a constant names the thread that sends a value;
              on some GPUs the others then read its register without a further instruction
    """

    tag = "shuffle"
    width: int = 32
    x0: int = 8
    y0: int = 4
    r0: int = 4
    x1: int = 16
    y1: int = 128
    band: int = 1
    unrolled: bool = False

    @property
    def threads(self) -> int:
        return (self.x1 // self.x0) * (self.y1 // self.y0)

    @property
    def features(self) -> frozenset[str]:
        return frozenset({SUBGROUPS_FEATURE, subgroup_feature(self.width)})

    @property
    def registers(self) -> int:
        """Words of a thread's registers: sums, its own step of each row, and columns."""
        return self.x0 * self.y0 + self.x0 + self.r0 * self.y0 + OVERHEAD_REGISTERS

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if found := value_objection("width", self.width, SUBGROUP_SIZES):
            return found
        if self.y0 % LANES or self.x1 % self.x0 or self.y1 % (self.y0 * self.width):
            return f"y0 is a multiple of {LANES}, x1 one of x0, and y1 one of y0 * width"
        together = steps_per_load(kernel)
        if self.width % self.r0 or self.r0 % together:
            return f"r0 divides width, and is a multiple of the {together} steps read at a time"
        if self.x0 * self.y0 > MOST_SUMS_PER_THREAD:
            return f"a thread has at most {MOST_SUMS_PER_THREAD} sums"
        steps = self.width if self.unrolled else self.r0
        if steps * self.x0 * self.y0 // LANES > MOST_UNROLLED_VECTORS:
            return f"at most {MOST_UNROLLED_VECTORS} vectors of multiply-adds are unrolled"
        return limit_objection(self.threads, 0)


@lru_cache(maxsize=1024)
def steps_per_load(kernel: Kernel) -> int:
    """Steps of the columns that one load reads."""
    tile = tile_of(kernel, 1, LANES, 1, 2)
    return stage_operands(tile, (1, LANES))[1].layout.unit_steps

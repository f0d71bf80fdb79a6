"""Schedules of matrix-unit products, and the element types of their operands.

Input: none, or a product. Output: `MatrixGemmSchedule`, and the types in which a product is
computed. strategies.py chooses the schedules to try; tiles.py and async_copies.py make their loops.

There are two kinds of products. Products of u8 by i8 whose depth is packed in groups of four
(product/integer_gemm.py) are exact. Other products round their operands to f16 when they are
staged, and sum in f32. They are used only if the model itself computes in f16, or the user allows
it (docs/decisions/0023-products-of-halves.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F16, F32, I8, I32, U8, DType
from tilewright.kernel.form import QuantisedContraction, classify, rounds_to_tf32
from tilewright.kernel.loops import MatrixUnit
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import workgroup_limits
from tilewright.targets.gpu.matrix.operands import COPY_BYTES, STAGES, most_bytes, operand_layouts
from tilewright.targets.gpu.product.schedule import (
    BYTES_PER_STEP,
    is_f32_product,
    is_int8_product,
    may_round_to_f16,
)
from tilewright.targets.gpu.workgroup_limits import (
    F16_LINE_GAP,
    LARGER_SHARED_SIZES,
    MATRIX_FEATURE,
    MOST_SUMS_PER_THREAD,
    SHARED_SIZES,
    SUBGROUP_SIZES,
    SUBGROUPS_FEATURE,
    WARPGROUP,
    limit_objection,
    shared_memory_feature,
    subgroup_feature,
    value_objection,
)
from tilewright.targets.lite_space import LINE_BYTES
from tilewright.targets.schedule import Schedule
from tilewright.targets.vectors import LANES

#: Elements between rows of a warp group's results in shared memory.
WARPGROUP_ROW_GAP = 8


@dataclass(frozen=True)
class MatrixTypes:
    """The types of operands and results that a matrix unit multiplies.

    group: elements of a step of the product;  feature: what it needs besides matrix units
    suits: whether a product may be computed in these types
    staged: True if operands may be staged through registers; otherwise they are always copied
    fraction: bits of an operand's fraction that the unit uses (`MatrixUnit`)
    """

    operand: DType
    result: DType
    group: int
    feature: str
    suits: Callable[[Kernel], bool]
    staged: bool = False
    fraction: int = 0


def _of_tf32(kernel: Kernel) -> bool:
    return is_f32_product(kernel, rounds_to_tf32)


#: By `MatrixGemmSchedule.types`, which is also the middle of a feature's name.
MATRIX_TYPES = {
    "i8-i32": MatrixTypes(
        I8, I32, BYTES_PER_STEP, workgroup_limits.PACKED_DOT_FEATURE, is_int8_product, staged=True
    ),
    "f16-f32": MatrixTypes(
        F16, F32, 1, workgroup_limits.F16_FEATURE, may_round_to_f16, staged=True
    ),
    "u8-i32": MatrixTypes(
        U8, I32, BYTES_PER_STEP, workgroup_limits.PACKED_DOT_FEATURE, is_int8_product
    ),
    "tf32-f32": MatrixTypes(
        F32, F32, 1, workgroup_limits.ASYNC_COPIES_FEATURE, _of_tf32, fraction=10
    ),
}


@dataclass(frozen=True)
class MatrixGemmSchedule(Schedule):
    """Tiles of down x along subgroups, each with rows x columns result matrices.

    m, n, k: sizes of the unit's matrices;  types: of operands and results
    width:   threads of a subgroup
    r1:      matrices along the depth of a block
    slices:  parts of a block's depth ("split-K"): each part has its own down x along subgroups,
             whose sums are added up at the end, so that a few tiles still give many threads work
    band, ahead, apart: as in `RegisterGemmSchedule`
    stages:  blocks in shared memory, all but one of them copied ahead (async_copies.py); 1: blocks
             are staged through registers
    """

    tag = "matrix"
    types: str = "i8-i32"
    m: int = 16
    n: int = 16
    k: int = 32
    width: int = 32
    rows: int = 2
    columns: int = 2
    down: int = 2
    along: int = 2
    r1: int = 1
    band: int = 1
    ahead: bool = True
    apart: bool = False
    slices: int = 1
    stages: int = 1

    @property
    def features(self) -> frozenset[str]:
        sizes = f"subgroup-matrix-{self.types}-{self.m}x{self.n}x{self.k}"
        own = {
            MATRIX_FEATURE,
            SUBGROUPS_FEATURE,
            MATRIX_TYPES[self.types].feature,
            subgroup_feature(self.width),
            sizes,
        }
        own |= {workgroup_limits.ASYNC_COPIES_FEATURE} if self.stages > 1 else set()
        return frozenset(own | shared_memory_feature(self.shared))

    @property
    def x1(self) -> int:
        return self.m * self.rows * self.down

    @property
    def y1(self) -> int:
        return self.n * self.columns * self.along

    @property
    def subgroups(self) -> int:
        return self.slices * self.down * self.along

    @property
    def threads(self) -> int:
        return self.width * self.subgroups

    @property
    def depth(self) -> int:
        """Steps of a block."""
        return self.r1 * self.k // MATRIX_TYPES[self.types].group

    @property
    def own(self) -> int:
        """Steps of a slice of a block."""
        return self.depth // self.slices

    @property
    def gap(self) -> int:
        """Unused groups between two rows of bytes in shared memory."""
        return LANES if self.apart else 0

    @property
    def shared(self) -> int:
        """Bytes of shared memory: blocks, a result matrix of each subgroup, and for bytes the
        column sums."""
        patches = WORD_BYTES * self.subgroups * self.m * self.pitch
        if self.asynchronous:
            step = MATRIX_TYPES[self.types].operand.size * MATRIX_TYPES[self.types].group
            return max(self.stages * (self.x1 + self.y1) * self.depth * step, patches)
        if self.stages > 1:
            types = MATRIX_TYPES[self.types]
            widths = (most_bytes(width, self.depth, types.operand.size, types.group)
                      for width in (self.x1, self.y1))  # fmt: skip
            return max(self.stages * sum(widths), patches)
        if MATRIX_TYPES[self.types].operand == F16:
            # A gap follows each step of a part, or each of its rows or columns.
            rows = max(self.x1 * self.slices, self.depth * self.down)
            columns = max(self.y1 * self.slices, self.depth * self.along)
            return (
                F16.size * (self.depth * (self.x1 + self.y1) + F16_LINE_GAP * (rows + columns))
                + patches
            )
        pitch = self.depth + self.slices * self.gap
        return WORD_BYTES * ((self.x1 + self.y1) * pitch + self.y1) + patches

    @property
    def pitch(self) -> int:
        """Elements from row to row of a result in shared memory."""
        return self.n + (WARPGROUP_ROW_GAP if self.asynchronous else 0)

    @property
    def asynchronous(self) -> bool:
        """True if subgroups are whole warp groups, whose units read operands from shared memory."""
        return self.width == WARPGROUP

    @property
    def unit(self) -> MatrixUnit:
        types = MATRIX_TYPES[self.types]
        return MatrixUnit(
            self.m,
            self.n,
            self.k,
            types.operand,
            types.result,
            self.width,
            types.fraction,
            self.asynchronous,
        )

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if found := value_objection("width", self.width, SUBGROUP_SIZES):
            return found
        if self.m % LANES or self.n % LANES or self.k % (LANES * BYTES_PER_STEP // 2):
            return f"m and n are multiples of {LANES}, k of {LANES * BYTES_PER_STEP // 2}"
        if self.rows * self.columns * self.m * self.n > MOST_SUMS_PER_THREAD * self.width:
            return f"a thread has at most {MOST_SUMS_PER_THREAD} sums"
        if self.r1 % self.slices:
            return "r1 is a multiple of slices"
        if not MATRIX_TYPES[self.types].suits(kernel):
            return f"the operands of {kernel.name} cannot be {self.types}"
        if self.stages > STAGES[-1] or (not MATRIX_TYPES[self.types].staged and self.stages == 1):
            return f"{self.types} has {STAGES[0]} to {STAGES[-1]} stages"
        if self.stages > 1 and not can_be_copied_as(self.types, kernel):
            return f"the operands of {kernel.name} are not contiguous in {COPY_BYTES}-byte pieces"
        if self.asynchronous and (
            self.stages == 1 or self.depth * MATRIX_TYPES[self.types].operand.size != LINE_BYTES
        ):
            depth = f"{LINE_BYTES} bytes of the depth in a block"
            return f"warp groups have stages, no slices, and {depth}"
        form = classify(kernel)
        if isinstance(form, QuantisedContraction) and self.depth % form.weights.together:
            return f"r1 * k is a multiple of the {form.weights.together} weights read at a time"
        most = LARGER_SHARED_SIZES if self.stages > 1 else SHARED_SIZES
        return limit_objection(self.threads, self.shared, most[-1])


def staged_types_of(kernel: Kernel) -> str:
    """The types in which matrix units compute a product without stages; "" if they cannot."""
    found = (name for name, types in MATRIX_TYPES.items() if types.staged and types.suits(kernel))
    return next(found, "")


def can_be_copied_as(types: str, kernel: Kernel) -> bool:
    """True if both operands can be copied directly as operands of these types."""
    found = operand_layouts(kernel)
    want = (U8, I8) if types == "u8-i32" else (MATRIX_TYPES[types].operand,) * 2
    return found is not None and tuple(operand.dtype for operand in found) == want

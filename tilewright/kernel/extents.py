"""Run-time extents: axes that end at a number of the argument block.

Input: a kernel whose limited axes have their bound as extent.  Output: counts that depend on such a
number (rows, tiles), and the kernel for one value of it, which defines the meaning of the limits.
Strides are those of the bound: nothing moves in memory when a length changes.

    rows (n<=512 | 12), n at run time   ->   n * 12 rows, ceil(n * 12 / 64) tiles of 64
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from math import prod

from tilewright.base.errors import ensure
from tilewright.kernel.expr import Expr
from tilewright.kernel.index import Index, Var, index
from tilewright.kernel.spec import Kernel, Limit
from tilewright.kernel.tree import rewrite

STEM = "extent"


def extent(number: int, bound: int) -> Var:
    """The run-time number of extent `number` of a plan: 1 to `bound`."""
    return Var(f"{STEM}{number}", bound + 1)


def number_of(scalar: Var) -> int:
    """Which extent of the plan a scalar is."""
    return int(scalar.name.removeprefix(STEM))


@dataclass(frozen=True)
class RuntimeNumber:
    """min((n * factor + addend) // divisor, limit) * scale, where n is the plan's extent
    `extent`."""

    extent: int
    factor: int
    addend: int
    divisor: int
    limit: int
    scale: int

    def at(self, n: int) -> int:
        return min((n * self.factor + self.addend) // self.divisor, self.limit) * self.scale

    @property
    def bound(self) -> int:
        """The largest value."""
        return self.limit * self.scale

    def to_data(self) -> list[int]:
        return list(astuple(self))


#: A number that is fixed, or depends on an extent.
Number = int | RuntimeNumber


def bound_of(number: Number) -> int:
    return number if isinstance(number, int) else number.bound


def scaled(number: Number, by: int) -> Number:
    """The number times `by`."""
    if isinstance(number, int):
        return number * by
    return replace(number, scale=number.scale * by)


def ceil_parts(number: Number, size: int) -> Number:
    """How many parts of `size` hold `number` elements; a plain multiple of its extent."""
    if isinstance(number, int):
        return -(-number // size)
    ensure((number.addend, number.divisor) == (0, 1), "it is rounded already", number=number)
    factor, bound = number.factor * number.scale, number.bound
    return RuntimeNumber(number.extent, factor, size - 1, size, -(-bound // size), 1)


def capped(number: Number, most: int) -> Number:
    """The number, limited to `most`; at least 1 of a run-time number remains."""
    if isinstance(number, int):
        return min(number, most)
    ensure(number.scale == 1, "it is scaled already", number=number)
    return replace(number, limit=min(number.limit, most))


def number_at(limit: Limit) -> RuntimeNumber:
    """The limit of an axis."""
    return RuntimeNumber(number_of(limit.extent), limit.times, 0, 1, limit.axis.extent, 1)


def scalar_of(scalar: Var) -> RuntimeNumber:
    """The extent itself as a number of the argument block."""
    return RuntimeNumber(number_of(scalar), 1, 0, 1, scalar.extent - 1, 1)


def points(kernel: Kernel, axes: Sequence[Var]) -> Number:
    """Points of the axes together; run-time if the first is limited (others count in full)."""
    total = prod(v.extent for v in axes)
    limit = kernel.limit(axes[0]) if axes else None
    return total if limit is None else scaled(number_at(limit), total // axes[0].extent)


def limited_first(kernel: Kernel, axes: Sequence[Var]) -> tuple[Var, ...]:
    """The axes with a limited one outermost, so that whole tiles are skipped."""
    return tuple(sorted(axes, key=lambda v: kernel.limit(v) is None))


def is_limited(kernel: Kernel, axes: Sequence[Var]) -> bool:
    return any(kernel.limit(v) is not None for v in axes)


def reduces(kernel: Kernel) -> bool:
    """True if a reduction ends at run time."""
    return any(is_limited(kernel, (*s.axes, *s.keep)) for s in kernel.stages)


def at_extents(kernel: Kernel, extents: Sequence[int]) -> Kernel:
    """The kernel where its limited axes end: the same indices over shorter axes."""
    if not kernel.extents:
        return kernel
    known: dict[Var, Index] = {v: index(extents[number_of(v)]) for v in kernel.extents}
    short = {
        limit.axis: Var(limit.axis.name, limit.times * extents[number_of(limit.extent)])
        for limit in kernel.limits
    }
    values = known | {v: index(new) for v, new in short.items()}

    def moved(axes: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple(short.get(v, v) for v in axes)

    def cut(e: Expr) -> Expr:
        return rewrite(e, lambda x: x, values)

    stages = tuple(
        replace(s, axes=moved(s.axes), value=cut(s.value), keep=moved(s.keep))
        for s in kernel.stages
    )
    return replace(
        kernel, axes=moved(kernel.axes), stages=stages, value=cut(kernel.value),
        store=kernel.store.substitute(values), extents=(), limits=(),
    )  # fmt: skip

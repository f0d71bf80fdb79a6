"""Layouts of buffers as named values: how packed operands are stored.

graph/passes/pack_weights.py chooses the layout that the target requests; a kernel's buffer records
it, because it cannot be derived from an index.  An index gives the offset of an element; a layout
tells which elements are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Base of the layouts; the classes of this file are all there are."""


@dataclass(frozen=True)
class Rows(Layout):
    """Row-major, as the shape says."""


@dataclass(frozen=True)
class Panels(Layout):
    """Columns in panels of `width`, the last one padded:  b[k, n] at [n // width, k, n % width]."""

    width: int


@dataclass(frozen=True)
class Groups(Layout):
    """Groups of `bytes` bytes along the summed axis, in panels of `width` groups.

    b[k, n] at [n // width, k // g, n % width, k % g], where g elements have `bytes` bytes
    """

    bytes: int
    width: int


@dataclass(frozen=True)
class Taps(Layout):
    """Taps of a channel's column in groups of `bytes` bytes, of a depthwise convolution.

    w[c, i, j] at [j, i // g, c, i % g], where g elements have `bytes` bytes and each column is
    padded to whole groups; a row is used where columns have one tap
    """

    bytes: int


@dataclass(frozen=True)
class Blocks(Layout):
    """Integers whose blocks along the summed axis share a scale, in panels of `width` columns.

        4 bits: eight of a column in an i32, the first in its lowest bits
                q[k, n] in word [n // width, k // size, k % size // 8, n % width]
        8 bits: one in each byte, at [n // width, k // size, k % size, n % width]

    Every block is padded to whole words, and the last panel to all its columns.
    bits: bits of an integer;  size: integers of a block;  in a `Packing` both are 0: they depend on
          the model
    """

    width: int
    bits: int = 0
    size: int = 0


@dataclass(frozen=True)
class RowBlocks(Layout):
    """A state that grows: the rows of all its matrices in blocks of `rows` rows, as the room grows.

    x[m, r, c] at r // rows * step + (m * rows + r % rows) * columns + c

    size: elements of the state in a block;  step: elements from a block to the next one, between
          which other states lie
    """

    rows: int
    size: int
    step: int

    def span(self, blocks: int) -> int:
        """Elements from the first to the last, those of other states between them included."""
        return (blocks - 1) * self.step + self.size


ROWS = Rows()


@dataclass(frozen=True)
class Packing:
    """The layouts in which the kernels of a target expect weights.

    floats:   the columns of f32
    integers: columns of 8-bit and 16-bit integers
    taps:     weights of depthwise convolutions of such integers
    blocks:   integer weights of f32 products, with a scale per block
    few:      fewer columns than this are stored along the summed axis instead, if the other operand
              is
    """

    floats: Panels
    integers: Groups
    taps: Taps
    blocks: Blocks
    few: int


_KINDS: dict[str, type[Layout]] = {
    "rows": Rows,
    "panels": Panels,
    "groups": Groups,
    "taps": Taps,
    "blocks": Blocks,
    "row-blocks": RowBlocks,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def layout_to_data(layout: Layout) -> list[str | int]:
    """Name and numbers: ["panels", 8]."""
    return [_NAMES[type(layout)], *vars(layout).values()]


def layout_from_data(data: Sequence[object]) -> Layout:
    """Raises ValueError, TypeError or LookupError for data that `layout_to_data` does not give."""
    name, *numbers = data
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"a layout has the numbers {numbers}"[:200])
    return _KINDS[str(name)](*numbers)

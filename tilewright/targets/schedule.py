"""Schedules: the choices of how one kernel runs, as small frozen records.

Each target has its own types, one for each strategy of computing a form of kernels.  Their common
base is here: a schedule is hashable, comparable, printable data, and its JSON has the tag of its
type.  The same kernel with another schedule is another candidate; results may differ only in
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from tilewright.kernel.spec import Kernel

#: The largest size in a schedule.
MOST = 1 << 20

#: Allowed values of fields that are not sizes.
_SETTINGS: dict[str, tuple[object, ...]] = {
    "order": ("nm", "mn"),
    "lanes": (1, 4),
    "stage": (False, True),
    "ahead": (False, True),
    "early": (False, True),
    "apart": (False, True),
    "unrolled": (False, True),
    "cache": ("", "k", "v", "kv"),
    "dot": ("pair", "wide"),
    "types": ("i8-i32", "f16-f32", "u8-i32", "tf32-f32"),
}

#: Sizes that may be 0, for "all at once" or "any".
_OPTIONAL = frozenset({"r1", "width"})


@dataclass(frozen=True)
class Schedule:
    """Base of all schedules.  A field means the same in every type that has it.

    Names follow nnJIT: x = rows, y = columns, r = reduction; 0 = per register tile, 1 = per tile.

    x0, y0: rows and columns of a register tile
    r0:     reduction steps per pass of the innermost loop ("unroll")
    x1, y1: rows and columns of one tile
    r1:     reduction steps of a block; a tile is computed block by block ("split"); 0: all at once
    order:  "nm" visits the rows of a tile inside its columns, "mn" the columns inside its rows
        ("reorder")
    stage:  copy each block of columns into scratch memory first ("cache read")
    lanes:  elements per vector ("vectorize"); 1 = scalar code
    cache:  operands whose blocks are copied to scratch memory before use ("cache read")
    types:  operand and result types of a matrix unit
    dot:    how bytes are multiplied: "pair" (4 products per lane) or "wide" (2, in 16 bits)
    """

    #: The name of the type in JSON (its key is "form") and in text.
    tag: ClassVar[str] = ""

    @property
    def features(self) -> frozenset[str]:
        """Features that a device must have beyond those of its class and variant."""
        return frozenset()

    def to_json(self) -> dict[str, object]:
        return {"form": self.tag, **vars(self)}

    def __str__(self) -> str:
        return " ".join((self.tag, *(f"{k}={v}" for k, v in vars(self).items())))

    def objection(self, kernel: Kernel) -> str:
        """What is wrong with a schedule from outside; "" if code can be made from it."""
        del kernel
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            allowed = _SETTINGS.get(name)
            if allowed is not None and value not in allowed:
                return f"{name} is one of {', '.join(map(repr, allowed))}"
            least = 0 if name in _OPTIONAL else 1
            if allowed is None and (type(value) is not int or not least <= value <= MOST):
                return f"{name} is a whole number from {least} to {MOST}"
        return ""

"""Finds equal parts of an expression, so that each is computed once.

Input: an expression.  Output: its calls, and a number for each part.  builder.py names the parts.
"""

from __future__ import annotations

from tilewright.kernel.expr import Call, Expr


def calls_of(e: Expr) -> list[Call]:
    """The calls of an expression that are certainly evaluated (none below a guard)."""
    found = [e] if isinstance(e, Call) else []
    for call in found:  # grows on the way
        found += [arg for arg in call.operands if isinstance(arg, Call)]
    return found


def numbers_of(e: Expr) -> dict[int, int]:
    """A number for each part of an expression by its identity; equal parts have equal numbers.

    A call is known by the numbers of its operands, so no part is compared as a whole tree.
    """
    numbers: dict[int, int] = {}
    kinds: dict[object, int] = {}

    def visit(node: Expr) -> int:
        key: object = node
        if isinstance(node, Call):
            key = node.fn, tuple(map(visit, node.operands)), node.dtype, node.lanes
        number = numbers[id(node)] = kinds.setdefault(key, len(kinds))
        return number

    visit(e)
    return numbers

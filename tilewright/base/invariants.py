"""What must hold inside Tilewright: a value that is there, or that is of a kind.

Input: a value, what is wrong if it is not so, and facts (kernel, node, schedule).
Output: the value with the narrower type, or `CompilerBug`: what fails here is our own fault.
Facts are made into text only for the error, so that asking costs next to nothing.
"""

from __future__ import annotations

from typing import TypeVar

from tilewright.base.errors import CompilerBug

T = TypeVar("T")


def required(value: T | None, why: str, **facts: object) -> T:
    """The value, which is there."""
    if value is None:
        raise CompilerBug(why, hint="", **facts)
    return value


def of_kind(value: object, kind: type[T], why: str, **facts: object) -> T:
    """The value, which is of this class."""
    if not isinstance(value, kind):
        raise CompilerBug(why, hint="", found=value, **facts)
    return value


def ensure(holds: bool, why: str, **facts: object) -> None:
    """For what is true of several values, or of none that goes on."""
    if not holds:
        raise CompilerBug(why, hint="", **facts)

"""Cheap records and lazy values, for objects of which one compilation makes hundreds of thousands.

Input: classes.  Output: dataclasses that only the type checker keeps frozen.  For rarer objects use
`dataclass(frozen=True)` and `functools.cached_property`.  These also prevent assignments and races
at run time, but make an object several times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, dataclass_transform, overload

C = TypeVar("C")
T = TypeVar("T")
_CHANGERS: dict[type, Callable[..., Any]] = {}


@dataclass_transform(frozen_default=True)
def record(cls: type[C]) -> type[C]:
    """A dataclass that compares and hashes by its fields.  Do not assign to them: only the type
    checker forbids it."""
    return dataclass(unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True)
def slotted(cls: type[C]) -> type[C]:
    """As `record`, but with `__slots__`: it takes less memory and cannot have `computed`
    properties."""
    return dataclass(unsafe_hash=True, slots=True)(cls)


def changed(value: T, **changes: Any) -> T:
    """The record with other values of some fields: `dataclasses.replace` in a third of the time."""
    kind = type(value)
    if kind not in _CHANGERS:
        _CHANGERS[kind] = _changer(kind)
    found: T = _CHANGERS[kind](value, **changes)
    return found


def _changer(kind: Any) -> Callable[..., Any]:
    names = [field.name for field in fields(kind)]
    given = "".join(f", {name}=kept" for name in names)
    made = ", ".join(f"value.{name} if {name} is kept else {name}" for name in names)
    found: dict[str, Any] = {}
    exec(f"def change(value{given}): return kind({made})", {"kind": kind, "kept": object()}, found)
    change: Callable[..., Any] = found["change"]
    return change


class computed(Generic[T]):
    """A property that is computed at its first use.

    The result is stored in the object's dictionary, where Python finds it before it calls this
    descriptor.  Two threads may both compute it; they get equal results.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> computed[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> computed[T] | T:
        if instance is None:
            return self
        value: T = self.compute(instance)
        instance.__dict__[self.name] = value
        return value

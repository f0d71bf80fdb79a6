"""The settings of a model's file: values by key, whose kinds are checked when they are read.

Input: what a reader found in the file.  Output: texts, numbers and flags, or a typed error that
names the key.  It knows no format and no architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from tilewright.base.errors import InvalidModel

#: The largest value of a size; published models have far smaller ones.
MOST = 1 << 24


@dataclass(frozen=True)
class ModelSettings:
    """values: by key;  where: the beginning of keys in messages"""

    values: Mapping[str, object] = field(repr=False)
    where: str = field(default="", kw_only=True)

    def text(self, key: str, default: str | None = None) -> str:
        """The value of a key as text.  Raises InvalidModel if it is missing or of another kind."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "a text", value)
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number from 0 on.  Raises InvalidModel."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(key, "a whole number", value)
        return value

    def size(self, key: str, default: int | None = None, most: int = MOST) -> int:
        """A whole number from 1 on.  Raises InvalidModel."""
        value = self.whole(key, default)
        if not 0 < value <= most:
            raise InvalidModel(f"{self.where}{key} cannot be {value}", key=self.where + key)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number.  Raises InvalidModel."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(key, "a number", value)
        try:
            found = float(value)
        except OverflowError:
            found = float("inf")
        if not isfinite(found):
            raise self.wrong(key, "a finite number", value)
        return found

    def flag(self, key: str, default: bool) -> bool:
        """The value of a key as bool.  Raises InvalidModel if it is of another kind."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "yes or no", value)
        return value

    def wrong(self, key: str, what: str, value: object) -> InvalidModel:
        """The error for a value of another kind."""
        is_plain = isinstance(value, (str, int, float, type(None)))
        found = str(value)[:80] if is_plain else type(value).__name__
        return InvalidModel(
            f"the setting {self.where + key!r} should be {what}",
            hint="The file is damaged, or its converter is wrong",
            key=self.where + key, found=found,
        )  # fmt: skip

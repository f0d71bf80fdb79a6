"""A model file of CTranslate2 (`model.bin`): where each variable lies.

Input: a path.  Output: `Ct2File`, whose variables are views of the mapped file, or a typed error.
Every length is compared with the size of the file before it is used.  All numbers are little
endian; a text is a u16 of its length and its bytes, of which the last one is 0:

    u32 version (6), text name of the kind of model, u32 its revision
    u32 count, and for each variable: text name, u8 axes, u32 extent of each, u8 type, u32 bytes,
        these bytes
    u32 count, and for each alias: text name, text name of the variable
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from tilewright.base.errors import InvalidModel, UnsupportedDType, UnsupportedOp
from tilewright.base.model_limits import LIMITS
from tilewright.frontend.folder.safetensors_file import BITS, MOST_AXES, StoredTensor
from tilewright.frontend.language.weights import mapped
from tilewright.graph.ops import Array

VERSION = 6
#: The types by their numbers in the file.
TYPES = ("F32", "I8", "I16", "I32", "F16", "BF16")
#: Variables of a file; a published model has a few thousand.
MOST_VARIABLES = 1 << 16


@dataclass(frozen=True)
class Ct2File:
    """kind: name of the kind of model;  aliases: by name, that of the variable"""

    kind: str
    variables: Mapping[str, StoredTensor] = field(repr=False)
    aliases: Mapping[str, str] = field(repr=False)


def read_ct2(path: Path) -> Ct2File:
    """Raises InvalidModel, UnsupportedOp for another version, UnsupportedDType."""
    read = _Cursor(path.name, mapped(path, path.name))
    version = read.number(4)
    if version != VERSION:
        raise UnsupportedOp(
            f"{path.name} is no file of CTranslate2 of version {VERSION}",
            hint="Convert the model with CTranslate2 3 or newer", version=version, file=path.name,
        )  # fmt: skip
    kind = read.text()
    read.number(4)  # the revision of the kind: the variables show what is there
    variables: dict[str, StoredTensor] = {}
    for _ in range(read.count()):
        tensor = read.variable()
        if tensor.name in variables:
            raise read.damaged(f"the variable {tensor.name!r} occurs twice")
        variables[tensor.name] = tensor
    aliases = {read.text(): read.text() for _ in range(read.count())}
    read.check_end()
    return Ct2File(kind, variables, aliases)


@dataclass
class _Cursor:
    """The bytes of a file from `at` on."""

    file: str
    data: Array
    at: int = 0

    def bytes(self, count: int) -> Array:
        if count > len(self.data) - self.at:
            raise self.damaged(
                f"{count} bytes should follow at {self.at}, of {len(self.data)} that there are"
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size).tobytes(), "little")

    def count(self) -> int:
        found = self.number(4)
        if found > MOST_VARIABLES:
            raise self.damaged(f"it cannot have {found} variables")
        return found

    def text(self) -> str:
        found = self.bytes(self.number(2)).tobytes()
        if found[-1:] != b"\0":
            raise self.damaged(f"the text before {self.at} has no end")
        return found[:-1].decode("utf-8", "replace")

    def variable(self) -> StoredTensor:
        name, axes = self.text(), self.number(1)
        if axes > MOST_AXES:
            raise self.damaged(f"the variable {name[:80]!r} cannot have {axes} axes")
        shape = tuple(self.number(4) for _ in range(axes))
        code, size = self.number(1), self.number(4)
        if code >= len(TYPES):
            raise UnsupportedDType(
                f"the variable {name[:80]!r} has the unknown type {code}",
                hint="Convert the model to float16 or float32", variable=name[:80], file=self.file,
            )  # fmt: skip
        dtype = TYPES[code]
        if prod(shape) > LIMITS.elements or prod(shape) * BITS[dtype] != size * 8:
            raise self.damaged(
                f"the variable {name[:80]!r} of {dtype} and the shape {list(shape)} "
                f"has {size} bytes"
            )
        return StoredTensor(name, dtype, shape, self.bytes(size))

    def check_end(self) -> None:
        if self.at != len(self.data):
            raise self.damaged(f"{len(self.data) - self.at} bytes follow its end")

    def damaged(self, why: str) -> InvalidModel:
        return InvalidModel(
            f"{self.file} is not a readable file of CTranslate2: {why}"[:300],
            hint="The file is damaged or its download was not complete: get it again",
            file=self.file,
        )

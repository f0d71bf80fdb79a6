"""A GGUF file: its metadata, and where each tensor lies.

Input: a path.  Output: `GgufFile`, whose tensors are views of the mapped file, or a typed error.
Every count, length and offset is compared with the size of the file before it is used, so that a
damaged file costs neither time nor memory.  It knows no architecture.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.base.model_limits import LIMITS
from tilewright.frontend.gguf.tensor_types import NAMES, TENSOR_TYPES, TensorType
from tilewright.frontend.language.model_settings import ModelSettings
from tilewright.frontend.language.weights import mapped
from tilewright.graph.ops import Array, Shape

MAGIC, VERSIONS = b"GGUF", (2, 3)

#: Formats of numbers in the metadata by the file's number for them; 8 is text, 9 a list.
NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
TEXT, LIST = 8, 9

#: The fewest bytes of an entry of the metadata, and of the table of tensors.
LEAST_ENTRY, LEAST_TENSOR = 13, 24
MOST_AXES = 4
MOST_ALIGNMENT = 1 << 16

Value = int | float | bool | str | list["Value"] | Array


@dataclass(frozen=True)
class GgufTensor:
    """One tensor.  shape: in NumPy's order, the axis with the longest stride first;  data: its
    bytes as [rows, bytes of a row]"""

    name: str
    shape: Shape
    block: TensorType
    data: Array


@dataclass(frozen=True)
class GgufFile(ModelSettings):
    """values: the metadata; lists of numbers are arrays;  tensors: by name, in the file's order"""

    path: Path
    tensors: Mapping[str, GgufTensor] = field(repr=False)

    def texts(self, key: str) -> list[str]:
        """A list of texts; an empty one if there is none.  Raises InvalidModel."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
            raise self.wrong(key, "a list of texts", value)
        return [x for x in value if isinstance(x, str)]

    def numbers(self, key: str) -> Array | None:
        """A list of numbers.  Raises InvalidModel."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, np.ndarray):
            raise self.wrong(key, "a list of numbers", value)
        return value


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF file does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_gguf(path: Path) -> GgufFile:
    """Reads the header and maps the rest.  Raises InvalidModel, UnsupportedDType."""
    data = mapped(path, "the model file")
    try:
        return _Reader(data, path).file()
    except UnicodeDecodeError as cause:
        raise _damaged("a text is not UTF-8") from cause


class _Reader:
    """Takes the header from left to right; `at` is the next byte."""

    def __init__(self, data: Array, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def file(self) -> GgufFile:
        if self.bytes(4) != MAGIC:
            raise _damaged("it does not begin with GGUF")
        version = self.number("I")
        if version not in VERSIONS:
            raise _unsupported(int(version))
        tensors = self.count(LEAST_TENSOR, "tensors")
        entries = self.count(LEAST_ENTRY, "entries")
        metadata: dict[str, Value] = {}
        for _ in range(entries):
            key = self.text()
            if key in metadata:
                raise _damaged(f"the key {key!r} occurs twice")
            metadata[key] = self.value(int(self.number("I")), key)
        table = [self.entry() for _ in range(tensors)]
        start = self._start(metadata)
        found = {name: self.tensor(name, shape, kind, start + offset)
                 for name, shape, kind, offset in table}  # fmt: skip
        if len(found) < len(table):
            raise _damaged("two tensors have one name")
        return GgufFile(metadata, self.path, found)

    def _start(self, metadata: Mapping[str, Value]) -> int:
        """The offset of the tensors' bytes in the file."""
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= MOST_ALIGNMENT:
            raise _damaged(f"general.alignment cannot be {alignment}"[:80])
        return -(-self.at // alignment) * alignment

    # ---- parts of the header ---------------------------------------------------------------------

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise _damaged("it ends in the middle of the header")
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def number(self, form: str) -> int | float | bool:
        (found,) = struct.unpack("<" + form, self.bytes(struct.calcsize("<" + form)))
        value: int | float | bool = found
        return value

    def count(self, least: int, what: str) -> int:
        """A count from the header.  Raises InvalidModel if items of `least` bytes each exceed the
        file."""
        found = int(self.number("Q"))
        if found * least > len(self.data) - self.at:
            raise _damaged(f"it promises {found} {what}, for which it is too short")
        return found

    def text(self) -> str:
        return self.bytes(self.count(1, "bytes of text")).decode()

    def value(self, kind: int, key: str) -> Value:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            raise _damaged(f"the value of {key!r} has the unknown type {kind}")
        inner = int(self.number("I"))
        if inner in NUMBERS:
            form = NUMBERS[inner]
            size = struct.calcsize("<" + form)
            count = self.count(size, "numbers")
            return np.frombuffer(self.bytes(count * size), "<" + form)
        if inner != TEXT:
            raise _damaged(f"the list {key!r} has elements of the unknown type {inner}")
        return [self.text() for _ in range(self.count(8, "texts"))]

    def entry(self) -> tuple[str, Shape, int, int]:
        """Name, shape, type and offset of a tensor."""
        name, axes = self.text(), int(self.number("I"))
        if axes > MOST_AXES:
            raise _damaged(f"the tensor {name!r} has {axes} axes")
        shape = tuple(int(self.number("Q")) for _ in range(axes))[::-1]
        return name, shape, int(self.number("I")), int(self.number("Q"))

    def tensor(self, name: str, shape: Shape, kind: int, start: int) -> GgufTensor:
        if kind not in TENSOR_TYPES:
            raise UnsupportedDType(
                f"the tensor {name!r} has the type {NAMES.get(kind, kind)}",
                hint=f"Supported are {', '.join(b.name for b in TENSOR_TYPES.values())}: choose "
                "another file of the model",
                tensor=name, dtype=NAMES.get(kind, str(kind)),
            )  # fmt: skip
        block = TENSOR_TYPES[kind]
        row = shape[-1] if shape else 1
        if prod(shape) > LIMITS.elements or 0 in shape or row % block.elements:
            raise _damaged(f"the tensor {name!r} cannot have the shape {list(shape)}")
        rows, width = prod(shape) // row, row // block.elements * block.bytes
        if start + rows * width > len(self.data):
            raise InvalidModel(
                f"the file ends before the tensor {name!r} does",
                hint="The file is damaged or its download was not complete: get it again",
                tensor=name, needed=start + rows * width, bytes=len(self.data),
            )  # fmt: skip
        return GgufTensor(
            name, shape, block, self.data[start : start + rows * width].reshape(rows, width)
        )


def _unsupported(version: int) -> InvalidModel:
    """A file of another version, or one that is written for big-endian machines."""
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        return InvalidModel(
            "the GGUF file is for big-endian machines, which are not supported",
            hint="Get the model's file for little-endian machines, or convert the model again "
            "without the option --bigendian",
            version=swapped,
        )
    return InvalidModel(
        f"GGUF of version {version} is not supported",
        hint=f"Convert the model to version {VERSIONS[-1]}",
        version=version,
    )


def _damaged(why: str) -> InvalidModel:
    return InvalidModel(
        f"not a readable GGUF file: {why}",
        hint="The file is damaged or its download was not complete: get it again",
    )

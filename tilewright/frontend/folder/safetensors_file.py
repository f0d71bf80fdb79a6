"""A safetensors file: where each tensor lies.

Input: a path.  Output: `StoredTensor`s, which are views of the mapped file, or a typed error.  A
file is a length of 8 bytes, a JSON header of that length, and the tensors' bytes without gaps.
Every length and offset is compared with the size of the file before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path

from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.base.model_limits import LIMITS
from tilewright.frontend.language.weights import mapped
from tilewright.graph.ops import Array, Shape

#: Bits of an element.
BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "BOOL": 8,
    "I8": 8, "U8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
#: Bytes of a header; one of 100,000 tensors is shorter.
MOST_HEADER = 1 << 24
MOST_AXES = 8
LENGTH = 8


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.  dtype: a key of `BITS`;  data: its bytes"""

    name: str
    dtype: str
    shape: Shape
    data: Array = field(repr=False)


def read_safetensors(path: Path) -> Mapping[str, StoredTensor]:
    """Reads the header and maps the rest.  Raises InvalidModel, UnsupportedDType."""
    data = mapped(path, path.name)
    header, rest = _header(data, path.name)
    found = {name: _tensor(name, entry, rest, path.name) for name, entry in header.items()}
    _check_gaps(header, len(rest), path.name)
    return found


def _header(data: Array, file: str) -> tuple[dict[str, object], Array]:
    """Entries of tensors by name, and the bytes behind the header."""
    length = int.from_bytes(data[:LENGTH].tobytes(), "little")
    if len(data) < LENGTH or length > min(len(data) - LENGTH, MOST_HEADER):
        raise _damaged(file, f"its header cannot have {length} bytes in a file of {len(data)}")
    try:
        header = json.loads(
            data[LENGTH : LENGTH + length].tobytes(), object_pairs_hook=_without_doubles
        )
    except (ValueError, RecursionError) as cause:
        raise _damaged(file, f"its header is not JSON: {cause}"[:200]) from cause
    if not isinstance(header, dict):
        raise _damaged(file, "its header is not a JSON object")
    header.pop("__metadata__", None)
    return header, data[LENGTH + length :]


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _tensor(name: str, entry: object, rest: Array, file: str) -> StoredTensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, f"the entry of the tensor {name!r} is not readable")
    dtype, shape, ends = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(ends):
        raise _damaged(file, f"the entry of the tensor {name!r} is not readable")
    if dtype not in BITS:
        raise UnsupportedDType(
            f"the tensor {name!r} has the unknown type {dtype[:40]!r}",
            hint="Get the model in F32, F16 or BF16", tensor=name, file=file,
        )  # fmt: skip
    if len(shape) > MOST_AXES or prod(shape) > LIMITS.elements:
        raise _damaged(file, f"the tensor {name!r} cannot have the shape {shape}"[:200])
    if len(ends) != 2 or not ends[0] <= ends[1] <= len(rest):
        raise _damaged(file, f"the tensor {name!r} lies at {ends}, of {len(rest)} bytes"[:200])
    if (ends[1] - ends[0]) * 8 != prod(shape) * BITS[dtype]:
        raise _damaged(
            file, f"the tensor {name!r} of {dtype} with the shape {shape} cannot have "
            f"{ends[1] - ends[0]} bytes",
        )  # fmt: skip
    return StoredTensor(name, dtype, tuple(shape), rest[ends[0] : ends[1]])


def _are_counts(x: object) -> bool:
    return isinstance(x, list) and all(type(n) is int and n >= 0 for n in x)


def _check_gaps(header: Mapping[str, object], size: int, file: str) -> None:
    """Tensors lie one behind the other: no byte belongs to two, and none to no tensor."""
    ends = sorted(tuple(entry["data_offsets"]) for entry in header.values())  # type: ignore[index]
    places = [(0, 0), *ends, (size, size)]
    if any(before[1] != after[0] for before, after in pairwise(places)):
        raise _damaged(file, "its tensors overlap, or have gaps between them")


def _damaged(file: str, why: str) -> InvalidModel:
    return InvalidModel(
        f"{file} is not a readable safetensors file: {why}",
        hint="The file is damaged or its download was not complete: get it again",
        file=file,
    )

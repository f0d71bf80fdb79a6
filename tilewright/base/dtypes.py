"""Element types, with their sizes, kinds and NumPy names.

Input: a name such as "f32".  Output: a frozen `DType`.  Standard library only, so that kernels can
be generated without NumPy; `DType.numpy` is only a string.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type.  size: in bytes;  numpy: NumPy's name;  code: its letter in the struct
    module

    All element types are defined below, so they compare by identity.
    """

    name: str
    size: int
    kind: Kind
    numpy: str
    code: str

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"


F32 = DType("f32", 4, "float", "float32", "f")
#: The type of intermediate numbers within a kernel.  Inputs, outputs and states may be declared as
#: f16 too, but lie in memory as f32 (`in_memory`).
F16 = DType("f16", 2, "float", "float16", "e")
#: Only inputs, outputs and states may be declared as bf16.  NumPy knows the name from the package
#: ml_dtypes.
BF16 = DType("bf16", 2, "float", "bfloat16", "")
F64 = DType("f64", 8, "float", "float64", "d")
I8 = DType("i8", 1, "int", "int8", "b")
U8 = DType("u8", 1, "uint", "uint8", "B")
I16 = DType("i16", 2, "int", "int16", "h")
I32 = DType("i32", 4, "int", "int32", "i")
I64 = DType("i64", 8, "int", "int64", "q")
BOOL = DType("bool", 1, "bool", "bool", "B")

DTYPES: dict[str, DType] = {d.name: d for d in (F32, F64, I8, U8, I16, I32, I64, BOOL)}
#: The types that inputs, outputs and states may be declared with.
DECLARED: dict[str, DType] = {**DTYPES, F16.name: F16, BF16.name: BF16}
BY_NUMPY: dict[str, DType] = {d.numpy: d for d in DTYPES.values()}


def in_memory(name: str) -> DType:
    """The type that kernels and hosts store elements of a declared type with: f32 for f16 and
    bf16."""
    return DTYPES.get(name, F32)


def _named(name: str) -> DType:
    """Unpickles a type as this process's own object, since types compare by identity."""
    return F16 if name == F16.name else DTYPES[name]

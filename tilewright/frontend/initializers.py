"""Tensors of a model file: element types, location of the bytes, reading on demand.

Input: `onnx.TensorProto`s and the model's folder.  Output: constant nodes for tensors that may
decide shapes, lazy weight nodes for all others; typed errors for missing bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.dtypes import BOOL, F32, F64, I8, I32, I64, U8, DType
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.base.model_limits import check_limit
from tilewright.graph import ops
from tilewright.graph.node import FOLD_LIMIT, Node, constant, node
from tilewright.graph.ops import Array

#: The graph's element type for each ONNX element type.
DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: F32,
    TensorProto.DOUBLE: F64,
    TensorProto.INT8: I8,
    TensorProto.UINT8: U8,
    TensorProto.INT32: I32,
    TensorProto.INT64: I64,
    TensorProto.BOOL: BOOL,
    # Half precision is computed in f32 (float16_types.py), with a note in the report.
    TensorProto.FLOAT16: F32,
    TensorProto.BFLOAT16: F32,
}

#: ONNX's number for each element type; if several fit, the first.
_KINDS = {dtype: kind for kind, dtype in reversed(DTYPES.items())}

#: ONNX element types that are widened to f32 when they are read.
WIDENED: dict[int, str] = {TensorProto.FLOAT16: "f16", TensorProto.BFLOAT16: "bf16"}

#: ONNX element types of 4 bits, which only weights have.  When they are read, each gets a byte.
HALVES: dict[int, DType] = {TensorProto.INT4: I8, TensorProto.UINT4: U8}

#: Operators that may read 4-bit weights.
READ_HALVES = frozenset({"DequantizeLinear"})

#: The most characters of a file's text that a message repeats.
MESSAGE = 200

#: Tensors of floats or bytes with more elements are weights; smaller ones are constants of a
#: formula.
SMALL = 16


def dtype_of(kind: int) -> DType:
    """The element type of an ONNX type number.  Raises UnsupportedDType."""
    if kind in DTYPES:
        return DTYPES[kind]
    name = TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else kind
    raise UnsupportedDType(
        f"element type {name} is not supported",
        hint="Tilewright computes in " + ", ".join(sorted({d.name for d in DTYPES.values()})),
        dtype=name,
    )


def kind_of(dtype: DType, narrow: str = "") -> int:
    """ONNX's number for an element type.  narrow: "f16" or "bf16" if the file declares that"""
    return next((kind for kind, name in WIDENED.items() if name == narrow), _KINDS[dtype])


def tensor_node(
    tensor: TensorProto,
    folder: Path | None,
    name: str = "",
    halves: bool = False,
    bytes_: bool = False,
    tf32: bool = False,
) -> Node:
    """A constant if the tensor is small or may decide shapes, else a lazy weight.

    halves: whether f32 tensors of two axes or more are rounded to f16, unless a number is too large
    bytes_: whether products with it may round their other operand to i8
    tf32:   whether products may round both operands to TF32, if it is an f32 tensor that none of
            the other options applies to
    """
    name = name or tensor.name
    dtype = HALVES.get(tensor.data_type) or dtype_of(tensor.data_type)
    shape = tuple(tensor.dims)
    load = partial(read_tensor, tensor, folder, dtype)
    number = dtype.is_float or dtype in (I8, U8)
    if prod(shape) <= (SMALL if number else FOLD_LIMIT):
        return constant(load())
    stored = WIDENED.get(tensor.data_type, "")
    if halves and tensor.data_type == TensorProto.FLOAT and len(shape) > 1 and _fits(load()):
        load, stored = partial(_rounded, load), "f16"
    if bytes_ and dtype.is_float:
        loose = "i8"
    else:
        loose = "f16" if stored == "f16" else "tf32" if tf32 and dtype == F32 else ""
    return node(ops.Weight(name, shape, dtype, load, stored, loose))


def _fits(value: Array) -> bool:
    """Whether all finite numbers stay finite in f16."""
    finite = value[np.isfinite(value)]
    return not finite.size or bool(np.abs(finite).max() <= np.finfo(np.float16).max)


def _rounded(load: Callable[[], Array]) -> Array:
    return load().astype(np.float16).astype(np.float32)


def bytes_of(tensor: TensorProto) -> int:
    """Bytes of the tensor in the model file; 0 if ONNX has no such element type."""
    if tensor.data_type not in TensorProto.DataType.values() or not tensor.data_type:
        return 0
    if tensor.data_type in HALVES:
        return int(prod(tensor.dims) + 1) // 2
    return int(prod(tensor.dims) * _stored(tensor).itemsize)


def check_halves(op: str, tensor: TensorProto | None) -> None:
    """Raises UnsupportedDType for 4-bit weights of an operator that is not in `READ_HALVES`: it
    would read them as bytes."""
    if tensor is not None and tensor.data_type in HALVES and op not in READ_HALVES:
        dtype_of(tensor.data_type)


def _stored(tensor: TensorProto) -> np.dtype[np.generic]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))


def is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def data_file(tensor: TensorProto, folder: Path | None) -> Path | None:
    """The file of a tensor's bytes if that is not the model's own.  Raises InvalidModel."""
    return _place(tensor, folder)[0] if is_external(tensor) else None


def check_bytes(tensor: TensorProto, folder: Path | None) -> None:
    """Raises InvalidModel if bytes of the tensor are missing; compares sizes only.

    An unsupported element type passes: the node that reads the tensor reports it.
    """
    check_limit("rank", len(tensor.dims), f"the rank of tensor {tensor.name!r}")
    if any(n < 0 for n in tensor.dims):
        raise InvalidModel(
            f"tensor {tensor.name!r} has a negative dimension", shape=tuple(tensor.dims)
        )
    if tensor.data_type not in DTYPES.keys() | HALVES.keys():
        return
    # NumPy limits the product of all dimensions that are not 0
    check_limit(
        "elements", prod(n or 1 for n in tensor.dims), f"the size of tensor {tensor.name!r}"
    )
    wanted = bytes_of(tensor)
    if is_external(tensor):
        path, offset, length = _place(tensor, folder)
        if length != wanted:
            raise InvalidModel(
                f"tensor {tensor.name!r} declares {length} bytes, but its shape needs {wanted}",
                path=str(path), shape=tuple(tensor.dims),
            )  # fmt: skip
        if path.stat().st_size < offset + wanted:
            raise InvalidModel(
                f"the external data of tensor {tensor.name!r} is truncated",
                hint="The file was not copied completely: download it again",
                path=str(path), wanted_bytes=offset + wanted, found_bytes=path.stat().st_size,
            )  # fmt: skip
        return
    count = wanted if tensor.data_type in HALVES else prod(tensor.dims)
    if tensor.HasField("raw_data"):
        whole = len(tensor.raw_data) == wanted
    else:
        kept = helper.tensor_dtype_to_field(tensor.data_type)
        whole = len(getattr(tensor, kept)) == count
    if not whole:
        raise InvalidModel(
            f"tensor {tensor.name!r} has more or fewer elements than its shape",
            hint="The file is damaged, or its weights were stripped",
            shape=tuple(tensor.dims),
            dtype=TensorProto.DataType.Name(tensor.data_type),
        )


def _place(tensor: TensorProto, folder: Path | None) -> tuple[Path, int, int]:
    """The file, offset and length of external data, which must lie beside the model."""
    facts = {entry.key: entry.value for entry in tensor.external_data}
    location = facts.get("location", "")
    if folder is None:
        raise InvalidModel(
            f"tensor {tensor.name!r} is in another file, but the model has no folder",
            hint="Give the path of the model file",
        )
    try:
        path = (folder / location).resolve()
        known = path.is_file()
    except (OSError, ValueError) as cause:
        raise InvalidModel(
            f"the external data of tensor {tensor.name!r} has no valid path: {cause}"[:MESSAGE],
            hint="Export the model again",
        ) from cause
    if not location or not path.is_relative_to(folder.resolve()):
        raise InvalidModel(
            f"the external data of tensor {tensor.name!r} is outside the model's folder",
            path=location[:MESSAGE],
        )
    if not known:
        raise InvalidModel(
            f"the external data of tensor {tensor.name!r} is missing",
            hint=f"Put {location!r} beside the model file",
            path=str(path),
        )
    offset, length = facts.get("offset", "0"), facts.get("length", str(bytes_of(tensor)))
    if not (_is_count(offset) and _is_count(length)):
        raise InvalidModel(
            f"the external data of tensor {tensor.name!r} has an invalid offset or length",
            path=str(path), offset=offset[:MESSAGE], length=length[:MESSAGE],
        )  # fmt: skip
    return path, int(offset), int(length)


def _is_count(text: str) -> bool:
    """A number of bytes that a file can have."""
    return text.isascii() and text.isdecimal() and len(text) < len(str(2**63))


def read_tensor(tensor: TensorProto, folder: Path | None, dtype: DType) -> Array:
    """Reads the tensor's value from the model file, as an array of `dtype`."""
    if is_external(tensor):
        path, offset, length = _place(tensor, folder)
        if tensor.data_type in HALVES:
            raw = np.fromfile(path, np.uint8, count=length, offset=offset).tobytes()
            inside = TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=raw)
            return read_tensor(inside, folder, dtype)
        count = prod(tensor.dims)
        flat = np.fromfile(path, _stored(tensor), count=count, offset=offset)
        value: Array = flat.reshape(tuple(tensor.dims))
    else:
        value = numpy_helper.to_array(tensor)
    return value.astype(dtype.numpy, copy=False)

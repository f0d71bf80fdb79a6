"""llama.cpp, by the package llama-cpp-python: logits of a GGUF file, and files of other types.

Input: a GGUF file, ids.  Output: logits of every token; a copy of the file whose matrices have
another type.  The package is no dependency: without it there is a UsageError that names it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

from tilewright.base.errors import UsageError
from tilewright.base.numpy_scalars import Array

#: Tensors that every type of file keeps: norms and other vectors.
VECTOR = 1
#: Of matrices whose rows do not consist of whole blocks of the type.
NARROW = GGMLQuantizationType.Q8_0


def package() -> ModuleType:
    """The package.  Raises UsageError without it."""
    try:
        return import_module("llama_cpp")
    except ImportError as cause:
        raise UsageError(
            "llama.cpp is what the logits are compared with, and it is not installed",
            hint="Install it: pip install llama-cpp-python",
        ) from cause


def version() -> str:
    return str(package().__version__)


def logits(model: Path, ids: Sequence[int], threads: int) -> Array:
    """[tokens, words], computed in one call: a prompt."""
    engine = package().Llama(
        str(model), n_ctx=len(ids), n_batch=len(ids), n_ubatch=len(ids), n_threads=threads,
        n_threads_batch=threads, logits_all=True, verbose=False,
    )  # fmt: skip
    try:
        engine.eval(list(ids))
        return np.array(engine.scores[: len(ids)], np.float32)
    finally:
        engine.close()


def requantised(model: Path, kind: str, made: Path) -> Path:
    """Writes a copy of the file whose matrices have this type; those with rows that the type's
    blocks do not fit have Q8_0.

    Raises UsageError.
    """
    wanted = GGMLQuantizationType[kind]
    reader = GGUFReader(model)
    fields = reader.fields
    writer = GGUFWriter(made.with_suffix(".part"), fields["general.architecture"].contents())
    for name, field in fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        whole = dequantize(tensor.data, tensor.tensor_type)
        if len(tensor.shape) == VECTOR:
            writer.add_tensor(tensor.name, whole)
            continue
        fits = whole.shape[-1] % GGML_QUANT_SIZES[wanted][0] == 0
        own = wanted if fits else NARROW
        writer.add_tensor(tensor.name, _rows(whole, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made.with_suffix(".part").rename(made)


def _rows(whole: Array, kind: GGMLQuantizationType) -> Array:
    """The bytes of rows, by llama.cpp's own quantiser."""
    count, width = whole.shape
    elements, size = GGML_QUANT_SIZES[kind]
    whole = np.ascontiguousarray(whole, np.float32)
    made = np.empty((count, width // elements * size), np.uint8)
    quantise = _library().ggml_quantize_chunk
    quantise.restype = ctypes.c_size_t
    numbers = (ctypes.c_int64(n) for n in (0, count, width))
    written = quantise(
        ctypes.c_int(kind), whole.ctypes.data_as(ctypes.c_void_p),
        made.ctypes.data_as(ctypes.c_void_p), *numbers, None,
    )  # fmt: skip
    if written != made.nbytes:
        raise UsageError(f"llama.cpp wrote {written} of {made.nbytes} bytes of {kind.name}")
    return made


def _library() -> ctypes.CDLL:
    """llama.cpp's library of tensors, which lies beside the package."""
    root = Path(str(package().__file__)).parent
    found = sorted(root.glob("lib/*ggml-base*"))
    if not found:
        raise UsageError("llama-cpp-python has no library of ggml", hint="Use version 0.3 of it")
    return ctypes.CDLL(str(found[0]))

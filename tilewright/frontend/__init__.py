"""Imports ONNX models as tensor graphs, and reports coverage before anything is compiled.

Input: a model file and values for its dynamic dimensions.  Output: `Graph`s and `Coverage`.
`operators/` has a short function for each ONNX operator.  `float16_types.py` finds the tensors that
are f16 or bf16, and `shape_inference.py` runs ONNX's inference in a separate process.  Language
models: `gguf/` and `folder/` read files, `language/` makes their graphs, `exports/` reads ONNX.
"""

from tilewright.frontend.importer import Importer, import_model
from tilewright.frontend.read import Model, TensorDecl, load
from tilewright.frontend.report import Coverage, NodeRow, check
from tilewright.frontend.shapes import (
    combinations,
    parse_buckets,
    parse_extents,
    parse_shapes,
    resolve,
)

__all__ = [
    "Coverage",
    "Importer",
    "Model",
    "NodeRow",
    "TensorDecl",
    "check",
    "combinations",
    "import_model",
    "load",
    "parse_buckets",
    "parse_extents",
    "parse_shapes",
    "resolve",
]

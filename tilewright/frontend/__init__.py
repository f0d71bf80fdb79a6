"""Imports ONNX models as tensor graphs, and reports coverage before anything is compiled.

Input: a model file and values for its dynamic dimensions.  Output: `Graph`s and `Coverage`.
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

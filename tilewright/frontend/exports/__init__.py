"""Language models that were exported to ONNX with caches that grow.

Input: a model file.  Output: `ExportedModel`, which makes graphs for any number of new tokens with
caches of a fixed size, or a typed error that names what is not supported.  `signature.py` finds the
meaning of each input, `past_rows.py` gives caches their fixed size, and `key_masks.py` turns masks
into comparisons.  `model_files.py` finds the files.
"""

from tilewright.frontend.exports.exported_model import ExportedModel
from tilewright.frontend.exports.model_files import (
    ENDING,
    is_export_path,
    onnx_file,
    text_folder,
    trained_tokens,
)
from tilewright.frontend.exports.signature import is_export

__all__ = [
    "ENDING",
    "ExportedModel",
    "is_export",
    "is_export_path",
    "onnx_file",
    "text_folder",
    "trained_tokens",
]

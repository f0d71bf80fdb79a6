"""Language models that were exported to ONNX with caches that grow.

Input: a model file.  Output: `ExportedModel`, which makes graphs for any number of new tokens with
caches of a fixed size, or a typed error that names what is not supported.  `signature.py` finds the
meaning of each input, `past_rows.py` gives caches their fixed size, and `key_masks.py` turns masks
into comparisons.
"""

from tilewright.frontend.exports.exported_model import ExportedModel
from tilewright.frontend.exports.signature import is_export

__all__ = ["ExportedModel", "is_export"]

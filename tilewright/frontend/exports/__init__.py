"""Language models that were exported to ONNX, as graphs for any number of new tokens.

Input: model files.  Output: a source of graphs, or a typed error that names what is not supported.
`ExportedModel` is a decoder with caches that grow: `signature.py` finds the meaning of each input,
`past_rows.py` gives caches a fixed size, and `key_masks.py` turns masks into comparisons.
`EncoderDecoderExport` is an encoder and a decoder without caches: `padded_rows.py` imports both so
that padding does not count.  `model_files.py` finds the files.
"""

from tilewright.frontend.exports.encoder_decoder import (
    PROMPT,
    PROMPT_LAST,
    PROMPT_ROWS,
    EncoderDecoderExport,
    encoder_decoder_files,
)
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
    "PROMPT",
    "PROMPT_LAST",
    "PROMPT_ROWS",
    "EncoderDecoderExport",
    "ExportedModel",
    "encoder_decoder_files",
    "is_export",
    "is_export_path",
    "onnx_file",
    "text_folder",
    "trained_tokens",
]

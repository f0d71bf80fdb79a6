"""Language models that were exported to ONNX, as graphs for any number of new tokens.

Input: model files.  Output: a source of graphs, or a typed error that names what is not supported.
`ExportedModel` is a decoder with caches that grow: `signature.py` finds the meaning of each input,
`past_rows.py` gives caches a fixed size, and `key_masks.py` turns masks into comparisons.
`EncoderDecoderExport` is an encoder and a decoder without caches, `CachedEncoderDecoder` one with
them: `padded_rows.py` imports both parts so that padding does not count, `merged_branches.py` takes
decoders apart that were merged.  `model_files.py` finds the files.
"""

from tilewright.frontend.exports.cached_encoder_decoder import CachedEncoderDecoder
from tilewright.frontend.exports.encoder_decoder import EncoderDecoderExport
from tilewright.frontend.exports.exported_model import ExportedModel
from tilewright.frontend.exports.merged_branches import is_merged
from tilewright.frontend.exports.model_files import (
    ENDING,
    encoder_decoder_files,
    is_export_path,
    onnx_file,
    text_folder,
    trained_tokens,
)
from tilewright.frontend.exports.prompted_export import (
    PROMPT,
    PROMPT_LAST,
    PROMPT_ROWS,
    PromptedExport,
)
from tilewright.frontend.exports.signature import is_export

__all__ = [
    "ENDING",
    "PROMPT",
    "PROMPT_LAST",
    "PROMPT_ROWS",
    "CachedEncoderDecoder",
    "EncoderDecoderExport",
    "ExportedModel",
    "PromptedExport",
    "encoder_decoder_files",
    "is_export",
    "is_export_path",
    "is_merged",
    "onnx_file",
    "text_folder",
    "trained_tokens",
]

"""Language models as graphs: architectures, sizes, rotations, weights.

Input: what a reader of files found (`DecoderSource`).  Output: `Decoder`, which makes graphs for
any number of new tokens.  `architectures.py` has the architectures as data, `decoder.py` makes the
graph, and `quantise.py` quantises weights.  No file here knows a file format or handles text.
"""

from tilewright.frontend.language.decoder import (
    CHECKED,
    DECODER_CACHES,
    IDS,
    LAST,
    LOGITS,
    ROWS,
    Decoder,
    DecoderSource,
)

__all__ = ["CHECKED", "DECODER_CACHES", "IDS", "LAST", "LOGITS", "ROWS", "Decoder", "DecoderSource"]

"""Language models as graphs: architectures, sizes, rotations, weights.

Input: what a reader of files found (`DecoderSource`).  Output: `Decoder`, which makes graphs for
any number of new tokens.  It knows no file format; text is not its business.
"""

from tilewright.frontend.language.decoder import (
    IDS,
    LAST,
    LOGITS,
    ROWS,
    Decoder,
    DecoderSource,
)

__all__ = ["IDS", "LAST", "LOGITS", "ROWS", "Decoder", "DecoderSource"]

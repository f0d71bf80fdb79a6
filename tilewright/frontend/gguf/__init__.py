"""Language models from GGUF files: the format, the types of weights, the architectures, the graph.

Input: a file.  Output: `GgufModel`, which makes graphs for any number of new tokens, or a typed
error that names the architecture, the tensor, the type or the key.  Text is not its business.
"""

from tilewright.frontend.gguf.file import GgufFile, is_gguf, read_gguf
from tilewright.frontend.gguf.gguf_model import IDS, LAST, LOGITS, ROWS, GgufModel

__all__ = ["IDS", "LAST", "LOGITS", "ROWS", "GgufFile", "GgufModel", "is_gguf", "read_gguf"]

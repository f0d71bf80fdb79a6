"""Language models from GGUF files: the format, and the types of weights.

Input: a file.  Output: `GgufModel`, which makes graphs for any number of new tokens, or a typed
error that names the architecture, the tensor, the type or the key.  `file.py` reads the format,
`tensor_types.py` the types of tensors, and `metadata.py` the settings.  It reads no text;
frontend/language makes the graph.
"""

from tilewright.frontend.gguf.file import GgufFile, is_gguf, read_gguf
from tilewright.frontend.gguf.gguf_model import GgufModel

__all__ = ["GgufFile", "GgufModel", "is_gguf", "read_gguf"]

"""A GGUF file as a source of graphs.

Input: a file and how many tokens the caches hold.  Output: `GgufModel`, a `Decoder` whose tensors
are those of the file: the roles of tensors have the names that GGUF gives them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tilewright.base.dtypes import F32, I8, U8
from tilewright.frontend.gguf.file import GgufFile, GgufTensor, read_gguf
from tilewright.frontend.gguf.metadata import hyperparameters_of, rotations_of
from tilewright.frontend.gguf.tensor_types import Part
from tilewright.frontend.language.decoder import Decoder, DecoderSource
from tilewright.frontend.language.weights import Load, ModelTensor
from tilewright.graph.ops import Array

#: Tensors that say nothing beyond the metadata, or are read by metadata.py.
IGNORED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
IGNORED_ENDS = (".attn_rot_embd", ".rope_freqs.weight")


class GgufModel(Decoder):
    """A file as a source of graphs; the arguments are those of `Decoder`."""

    def __init__(
        self, source: Path | GgufFile, room: int = 0, loose: str = "", most: int = 0
    ) -> None:
        """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError."""
        self.file = source if isinstance(source, GgufFile) else read_gguf(source)
        sizes = hyperparameters_of(self.file)
        whole, local = rotations_of(self.file, sizes)
        tensors = {
            name: _tensor(tensor)
            for name, tensor in self.file.tensors.items()
            if name not in IGNORED and not name.endswith(IGNORED_ENDS)
        }
        name = self.file.path.stem
        super().__init__(DecoderSource(name, sizes, whole, local, tensors), room, loose, most)


def _tensor(tensor: GgufTensor) -> ModelTensor:
    block, shape = tensor.block, tensor.shape
    if block.scale is None:
        load = partial(_numbers, tensor)
        return ModelTensor(tensor.name, block.name, shape, F32, load, block.stored)

    def per_block(part: Part) -> Load:
        return partial(_part, tensor, part, shape[-1] // block.group)

    return ModelTensor(
        tensor.name, block.name, shape, I8 if block.signed else U8,
        partial(_part, tensor, block.integers, shape[-1]), group=block.group,
        scale=per_block(block.scale), least=per_block(block.least) if block.least else None,
        halves=block.halves,
    )  # fmt: skip


def _numbers(tensor: GgufTensor) -> Array:
    return tensor.block.values(tensor.data).reshape(tensor.shape)


def _part(tensor: GgufTensor, part: Part, columns: int) -> Array:
    return part(tensor.data.reshape(-1, tensor.block.bytes)).reshape(-1, columns)

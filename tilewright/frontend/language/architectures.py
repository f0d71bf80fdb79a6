"""The architectures of language models as data: one row each.

Input: a name as GGUF files have it.  Output: `Architecture`.  Sizes and scalings are in each
model's own settings; its tensors show biases, norms of queries and keys, and products that are
stored as one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import UnsupportedOp


@dataclass(frozen=True)
class Architecture:
    """How models of a name differ from Llama.

    neighbours: whether GGUF files order queries and keys so that rotation turns the neighbours
                (2i, 2i + 1) instead of the halves (i, i + n / 2)
    gate:       the function of the gated part
    embedding:  whether embeddings are multiplied by the root of the width
    posts:      whether results of attention and of the gated part have norms of their own
    windows:    of this number of layers all but the last see only a window; 0: no layer has one
    every:      every layer of this number has no rotation; 0: all have one
    roots:      numbers of layers of models whose attention divides by the root of width / heads
    """

    neighbours: bool = False
    gate: str = "silu"
    embedding: bool = False
    posts: bool = False
    windows: int = 0
    every: int = 0
    roots: tuple[int, ...] = ()


_GEMMA = Architecture(gate="gelu", embedding=True)

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(neighbours=True),
    "mistral": Architecture(neighbours=True),
    "smollm3": Architecture(neighbours=True, every=4),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "phi3": Architecture(),
    "gemma": _GEMMA,
    "gemma2": Architecture(
        gate="gelu", embedding=True, posts=True, windows=2, roots=(46,)
    ),
    "gemma3": Architecture(
        gate="gelu", embedding=True, posts=True, windows=6, roots=(62,)
    ),
}  # fmt: skip


def architecture(name: str) -> Architecture:
    """The row.  Raises UnsupportedOp."""
    if name not in ARCHITECTURES:
        raise UnsupportedOp(
            f"models of the architecture {name!r} are not supported",
            hint=f"Supported are {', '.join(ARCHITECTURES)}",
            architecture=name,
        )
    return ARCHITECTURES[name]

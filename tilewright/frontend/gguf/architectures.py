"""The architectures of GGUF files as data: one row each.

Input: the name that a file gives (`general.architecture`).  Output: `Architecture`.  What a file
tells by itself is not here: sizes and scalings are in its metadata, and biases, norms of queries
and keys, and products that are stored as one show in its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import UnsupportedOp


@dataclass(frozen=True)
class Architecture:
    """How models of a name differ from Llama.

    pairs:      whether rotation turns neighbours (2i, 2i + 1) instead of halves (i, i + n / 2)
    gate:       the function of the gated part
    embedding:  whether embeddings are multiplied by the root of the width
    posts:      whether results of attention and of the gated part have norms of their own
    windows:    of so many layers all but the last see only a window; 0: all see everything
    every:      every layer of this number has no rotation; 0: all have one
    roots:      numbers of layers of models whose attention divides by the root of width / heads
    """

    pairs: bool = False
    gate: str = "silu"
    embedding: bool = False
    posts: bool = False
    windows: int = 0
    every: int = 0
    roots: tuple[int, ...] = ()


_GEMMA = Architecture(gate="gelu", embedding=True)

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(pairs=True),
    "mistral": Architecture(pairs=True),
    "smollm3": Architecture(pairs=True, every=4),
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

"""The architectures of language models as data: one row each.

Input: a name as GGUF files or folders have it.  Output: `Architecture`.  Sizes and scalings are in
each model's own settings; its tensors show biases, norms of queries and keys, and products that are
stored as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.base.errors import UnsupportedOp


@dataclass(frozen=True)
class FolderFormat:
    """Facts about the Hugging Face folders of an architecture that GGUF files do not need.

    types:    `model_type` of their config.json
    defaults: settings that config.json may leave out
    needs:    tensors that each layer has beyond those of Llama, by role
    ones:     whether weights of norms are stored less one
    windows:  which layers have the window, if there is one: "all", or as `layer_types` say: "some"
    """

    types: tuple[str, ...]
    defaults: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    ones: bool = False
    windows: str = "some"


@dataclass(frozen=True)
class Architecture:
    """How models of one architecture differ from Llama.

    folder:     facts about its folders of Hugging Face
    neighbours: whether GGUF files order queries and keys so that rotation turns the neighbours
                (2i, 2i + 1) instead of the halves (i, i + n / 2)
    gate:       the function of the gated part
    embedding:  whether embeddings are multiplied by the root of the width
    posts:      whether results of attention and of the gated part have norms of their own
    windows:    in each group of this number of layers, all but the last see only a window; 0: no
                pattern
    every:      layers whose number is a multiple of this have no rotation; 0: all layers have one
    roots:      models with one of these numbers of layers divide scores by the root of width /
                heads, which GGUF files do not tell
    """

    folder: FolderFormat
    neighbours: bool = False
    gate: str = "silu"
    embedding: bool = False
    posts: bool = False
    windows: int = 0
    every: int = 0
    roots: tuple[int, ...] = ()


_USUAL: Mapping[str, object] = {"rms_norm_eps": 1e-6, "use_sliding_window": False}
_WINDOW = {"rms_norm_eps": 1e-6, "sliding_window": 4096}
_GEMMA = {"rms_norm_eps": 1e-6, "head_dim": 256, "tie_word_embeddings": True}
_NORMS = ("attn_q_norm.weight", "attn_k_norm.weight")
_BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(FolderFormat(("llama",), _USUAL), neighbours=True),
    "mistral": Architecture(FolderFormat(("mistral",), _WINDOW, windows="all"), neighbours=True),
    "smollm3": Architecture(
        FolderFormat(("smollm3",), {**_USUAL, "tie_word_embeddings": True, "rope_theta": 2e6}),
        neighbours=True, every=4,
    ),
    "qwen2": Architecture(FolderFormat(("qwen2",), _USUAL, _BIASES)),
    "qwen3": Architecture(FolderFormat(("qwen3",), {**_USUAL, "head_dim": 128}, _NORMS)),
    "phi3": Architecture(FolderFormat(("phi3",), {"rms_norm_eps": 1e-5}, windows="all")),
    "gemma": Architecture(FolderFormat(("gemma",), _GEMMA, ones=True), gate="gelu", embedding=True),
    "gemma2": Architecture(
        FolderFormat(("gemma2",), {
            **_GEMMA, "sliding_window": 4096, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        }, ones=True),
        gate="gelu", embedding=True, posts=True, windows=2, roots=(46,),
    ),
    "gemma3": Architecture(
        FolderFormat(("gemma3_text", "gemma3"), {
            **_GEMMA, "sliding_window": 4096, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
        }, _NORMS, ones=True),
        gate="gelu", embedding=True, posts=True, windows=6, roots=(62,),
    ),
}  # fmt: skip


def architecture(name: str) -> Architecture:
    """The row of an architecture by GGUF's name.  Raises UnsupportedOp."""
    if name not in ARCHITECTURES:
        raise _unknown(name)
    return ARCHITECTURES[name]


def architecture_of_folder(kind: str) -> str:
    """The name of the row that has this `model_type`.  Raises UnsupportedOp."""
    names = [name for name, row in ARCHITECTURES.items() if kind in row.folder.types]
    if not names:
        raise _unknown(kind)
    return names[0]


def _unknown(name: str) -> UnsupportedOp:
    return UnsupportedOp(
        f"models of the architecture {name!r} are not supported",
        hint=f"Supported are {', '.join(ARCHITECTURES)}",
        architecture=name,
    )

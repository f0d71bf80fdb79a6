"""The sizes and the rotations of a GGUF model, read from its metadata and checked once.

Input: a `GgufFile`.  Output: `Hyperparameters` and `Rotation`s, or a typed error that names the
key.  Of tensors it reads only factors of rotations.
"""

from __future__ import annotations

from math import log

import numpy as np

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.gguf.file import GgufFile
from tilewright.frontend.language.architectures import architecture
from tilewright.frontend.language.hyperparameters import MOST_LAYERS, Hyperparameters
from tilewright.frontend.language.rotation import Rotation
from tilewright.graph.ops import Array


def hyperparameters_of(file: GgufFile) -> Hyperparameters:
    """The sizes of a model from the file's metadata.  Raises UnsupportedOp, InvalidModel."""
    name = file.text("general.architecture")
    kind = architecture(name)
    if file.whole(f"{name}.expert_count", 0):
        raise UnsupportedOp("mixtures of experts are not supported", architecture=name)
    width = file.size(f"{name}.embedding_length")
    heads = file.size(f"{name}.attention.head_count")
    head = file.size(f"{name}.attention.key_length", width // heads)
    if (other := file.size(f"{name}.attention.value_length", head)) != head:
        raise UnsupportedOp(
            f"heads of {head} numbers in keys and {other} in values are not supported",
            architecture=name,
        )
    layers = file.size(f"{name}.block_count", most=MOST_LAYERS)
    window = file.whole(f"{name}.attention.sliding_window", 0) if kind.windows else 0
    windows = _windows(file, name, kind.windows)
    return Hyperparameters(
        name=name, kind=kind, layers=layers, width=width, heads=heads, head=head,
        kv_heads=file.size(f"{name}.attention.head_count_kv", heads),
        trained=file.size(f"{name}.context_length"),
        epsilon=file.number(f"{name}.attention.layer_norm_rms_epsilon"),
        scale=float((width / heads if layers in kind.roots else head) ** -0.5),
        pairs=kind.neighbours,
        window=window,
        local=tuple(bool(window and windows) and (n + 1) % windows != 0 for n in range(layers)),
        turned=tuple(not kind.every or (n + 1) % kind.every != 0 for n in range(layers)),
        caps=(file.number(f"{name}.attn_logit_softcapping", 0.0),
              file.number(f"{name}.final_logit_softcapping", 0.0)),
    )  # fmt: skip


def _windows(file: GgufFile, name: str, usual: int) -> int:
    """Newer files may say how many layers share a pattern."""
    key = f"{name}.attention.sliding_window_pattern"
    return file.whole(key, usual) if isinstance(file.values.get(key), int) else usual


def rotations_of(file: GgufFile, sizes: Hyperparameters) -> tuple[Rotation, Rotation]:
    """The rotations of layers that see all keys, and of local layers.  Raises InvalidModel,
    UnsupportedOp."""
    name = sizes.name
    width = file.whole(f"{name}.rope.dimension_count", sizes.head)
    if width % 2 or not 0 < width <= sizes.head:
        raise InvalidModel(f"a head of {sizes.head} numbers cannot be rotated by {width}")
    scaling = f"{name}.rope.scaling"
    kind, factor = file.text(f"{scaling}.type", "none"), file.number(f"{scaling}.factor", 1.0)
    # LongRoPE has its factors in tensors, and no other one
    kind, factor = ("none", 1.0) if kind == "longrope" else (kind, factor)
    size = file.number(f"{scaling}.attn_factor", 1.0)
    if kind == "yarn" and factor > 0:
        size *= 1 + 0.1 * log(factor)
    every = _factors(file, "rope_freqs.weight", width // 2)
    short = _factors(file, "rope_factors_short.weight", width // 2)
    whole = Rotation(
        width, file.number(f"{name}.rope.freq_base", 10000.0), kind, factor,
        trained=file.whole(f"{scaling}.original_context_length", sizes.trained), size=size,
        divisors=short if every is None else every,
        far=_factors(file, "rope_factors_long.weight", width // 2),
    )  # fmt: skip
    # Gemma 3 gives its local layers another base and no scaling
    base = f"{name}.rope.freq_base_swa"
    return whole, Rotation(width, file.number(base, 10000.0)) if name == "gemma3" else whole


def _factors(file: GgufFile, name: str, pairs: int) -> Array | None:
    """The divisor of each pair's rate, from a tensor that Llama 3 and Phi 3 have; None without
    one."""
    tensor = file.tensors.get(name)
    if tensor is None:
        return None
    found = tensor.block.values(tensor.data).reshape(-1).astype(np.float64)
    if len(found) != pairs or not (found > 0).all():
        raise InvalidModel(f"the tensor {name!r} has no factor for each pair", tensor=name)
    return np.asarray(found)

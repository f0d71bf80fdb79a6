"""The sizes and the rotations of a folder's model, read from config.json and checked once.

Input: the settings of config.json.  Output: `Hyperparameters` and `Rotation`s, or a typed error
that names the key.  It reads no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi, sqrt

import numpy as np

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.language.architectures import (
    ARCHITECTURES,
    Architecture,
    architecture_of_folder,
)
from tilewright.frontend.language.hyperparameters import MOST_LAYERS, Hyperparameters
from tilewright.frontend.language.model_settings import ModelSettings
from tilewright.frontend.language.rotation import HINT, Rotation
from tilewright.graph.ops import Array

#: Functions of the gated part: ours by their names in config.json.
GATES = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu"}
#: The end of the class name of models that generate text.
GENERATES = ("ForCausalLM", "ForConditionalGeneration")
#: Settings whose null means that there is none of it.
NONE = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")


def settings_of(config: ModelSettings) -> tuple[str, ModelSettings]:
    """The architecture's name, and the settings of the text model with all defaults.

    Raises UnsupportedOp, InvalidModel.
    """
    classes = config.values.get("architectures") or []
    for name in classes if isinstance(classes, list) else []:
        if not str(name).endswith(GENERATES):
            raise UnsupportedOp(
                f"models of the class {str(name)[:80]!r} generate no text",
                hint="Get a model whose class ends with ForCausalLM",
            )
    name = architecture_of_folder(config.text("model_type"))
    inner = config.values.get("text_config")
    given = inner if isinstance(inner, dict) else config.values
    values = dict(ARCHITECTURES[name].folder.defaults)
    for key, value in given.items():
        if value is not None:
            values[key] = value
        elif key in NONE:
            values[key] = 0
    return name, ModelSettings(values, where=config.where)


def hyperparameters_of(name: str, config: ModelSettings) -> Hyperparameters:
    """The sizes of a model from config.json.  Raises UnsupportedOp, InvalidModel."""
    kind = ARCHITECTURES[name]
    _check(name, kind, config)
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head = config.size("head_dim", width // heads)
    layers = config.size("num_hidden_layers", most=MOST_LAYERS)
    turned = _turned(kind, config, layers)
    window = config.whole("sliding_window", 0) if config.flag("use_sliding_window", True) else 0
    return Hyperparameters(
        name=name, kind=kind, layers=layers, width=width, heads=heads, head=head,
        kv_heads=config.size("num_key_value_heads", heads),
        trained=config.size("max_position_embeddings"), epsilon=config.number("rms_norm_eps"),
        scale=_scale(config, head), pairs=False, window=window,
        local=_local(kind, config, turned) if window else (False,) * layers, turned=turned,
        caps=(config.number("attn_logit_softcapping", 0.0),
              config.number("final_logit_softcapping", 0.0)),
    )  # fmt: skip


def _check(name: str, kind: Architecture, config: ModelSettings) -> None:
    gate = config.text("hidden_activation", config.text("hidden_act", ""))
    # the first Gemma's files say gelu, and mean the approximation
    found = "gelu" if gate in ("", "gelu") and kind.gate == "gelu" else GATES.get(gate or "silu")
    if found != kind.gate:
        raise UnsupportedOp(
            f"{name} with the activation {gate[:40]!r} is not supported", activation=gate
        )
    if config.flag("use_bidirectional_attention", False):
        raise UnsupportedOp("attention that sees later tokens is not supported", architecture=name)


def _scale(config: ModelSettings, head: int) -> float:
    """The factor of attention scores before the softmax."""
    scalar = config.number("query_pre_attn_scalar", head)
    if scalar <= 0:
        raise InvalidModel(f"query_pre_attn_scalar cannot be {scalar}", hint=HINT)
    return float(scalar**-0.5)


def _turned(kind: Architecture, config: ModelSettings, layers: int) -> tuple[bool, ...]:
    """For each layer, whether its queries and keys are rotated."""
    if not kind.every:
        return (True,) * layers
    if "no_rope_layers" in config.values:
        return tuple(bool(n) for n in _list(config, "no_rope_layers", layers))
    every = config.size("no_rope_layer_interval", kind.every)
    return tuple((n + 1) % every != 0 for n in range(layers))


def _local(kind: Architecture, config: ModelSettings, turned: tuple[bool, ...]) -> tuple[bool, ...]:
    """For each layer, whether its rows see only a window of keys."""
    layers = len(turned)
    if kind.folder.windows == "all":
        return (True,) * layers
    if "layer_types" in config.values:
        return tuple(t == "sliding_attention" for t in _list(config, "layer_types", layers))
    if kind.windows:
        windows = config.size("sliding_window_pattern", kind.windows)
        return tuple((n + 1) % windows != 0 for n in range(layers))
    if kind.every:
        return tuple(not t for t in turned)
    first = config.whole("max_window_layers", 28)
    return tuple(n >= first for n in range(layers))


def _list(config: ModelSettings, key: str, count: int) -> list[object]:
    """A list with a value for each layer."""
    found = config.values.get(key)
    if not isinstance(found, list) or len(found) < count:
        raise config.wrong(key, f"a list of {count} values", found)
    return found[:count]


# ---- rotations -----------------------------------------------------------------------------------


def rotations_of(config: ModelSettings, sizes: Hyperparameters) -> tuple[Rotation, Rotation]:
    """The rotations of layers that see all keys, and of local layers.  Raises InvalidModel,
    UnsupportedOp."""
    given = config.values.get("rope_scaling") or config.values.get("rope_parameters") or {}
    if not isinstance(given, dict):
        raise config.wrong("rope_scaling", "an object", given)
    parts = [given.get(name) for name in ("full_attention", "sliding_attention")]
    whole, local = (part if isinstance(part, dict) else None for part in parts)
    if local is None and "rope_local_base_freq" in config.values:
        local = {"rope_theta": config.values["rope_local_base_freq"]}
    whole = given if whole is None else whole
    made = _rotation(config, whole, sizes)
    return made, made if local is None else _rotation(config, local, sizes)


def _rotation(
    config: ModelSettings, given: Mapping[str, object], sizes: Hyperparameters
) -> Rotation:
    values = {key: value for key, value in given.items() if value is not None}
    rope = ModelSettings(values, where=f"{config.where}rope_scaling.")
    part = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    width = int(sizes.head * part) if 0 < part <= 1 else 0
    if width % 2 or not width:
        raise UnsupportedOp(
            f"a head of {sizes.head} numbers cannot be rotated by {part} of it",
            architecture=sizes.name, head=sizes.head, partial_rotary_factor=part,
        )  # fmt: skip
    base = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    kind = rope.text("rope_type", rope.text("type", "default"))
    if sizes.name == "phi3" and kind in ("su", "yarn"):
        kind = "longrope"  # older names for it
    key = "original_max_position_embeddings"
    trained = config.size(key, rope.size(key, sizes.trained))
    # within the trained length, which no text exceeds here, "dynamic" changes nothing
    if kind in ("default", "dynamic"):
        return Rotation(width, base)
    if kind == "linear":
        return Rotation(width, base, "linear", rope.number("factor"))
    factor = rope.number("factor", sizes.trained / trained)
    if kind == "llama3":
        return Rotation(width, base, divisors=_by_length(rope, width, base, factor, trained))
    if kind == "longrope":
        short, far = (_factors(rope, f"{name}_factor", width // 2) for name in ("short", "long"))
        size = sqrt(1 + log(factor) / log(trained)) if factor > 1 and trained > 1 else 1.0
        size = rope.number("attention_factor", size)
        return Rotation(width, base, trained=trained, size=size, divisors=short, far=far)
    return Rotation(
        width, base, kind, factor, trained, rope.number("attention_factor", _mscale(rope, factor)),
        fast=rope.number("beta_fast", 32.0), slow=rope.number("beta_slow", 1.0),
        whole=rope.flag("truncate", True),
    )  # fmt: skip


def _mscale(rope: ModelSettings, factor: float) -> float:
    """The factor by which YaRN multiplies cosines and sines."""
    first, second = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    grown = 0.1 * log(factor) if factor > 1 else 0.0
    return (first * grown + 1) / (second * grown + 1) if first and second else grown + 1


def _by_length(rope: ModelSettings, width: int, base: float, factor: float, trained: int) -> Array:
    """Llama 3's divisors: 1 for pairs that turn often over the trained length, `factor` for those
    that turn rarely."""
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if base <= 1 or factor <= 0 or high <= low:
        raise InvalidModel(
            f"the rotation cannot be scaled by {factor} between {low} and {high} turns",
            hint=HINT, factor=factor, low_freq_factor=low, high_freq_factor=high,
        )  # fmt: skip
    turns = trained * base ** (-np.arange(0, width, 2, dtype=np.float64) / width) / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - kept) / factor + kept))


def _factors(rope: ModelSettings, key: str, pairs: int) -> Array:
    """The divisor of each pair's rate."""
    found = rope.values.get(key)
    if not isinstance(found, list) or len(found) != pairs:
        raise rope.wrong(key, f"a list of {pairs} numbers", found)
    factors = [ModelSettings({key: n}, where=rope.where).number(key) for n in found]
    if min(factors) <= 0:
        raise rope.wrong(key, "a list of positive numbers", found)
    return np.array(factors, np.float64)

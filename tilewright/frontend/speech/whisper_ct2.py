"""A Whisper model of CTranslate2: its variables by the names of Hugging Face's files.

Input: a folder with config.json and model.bin.  Output: `WhisperSource`.  Sizes follow from the
variables, because the folder's settings do not have them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tilewright.base.dtypes import F32, I8
from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.folder.folder_model import model_tensor
from tilewright.frontend.folder.safetensors_file import StoredTensor
from tilewright.frontend.language.hyperparameters import MOST_LAYERS
from tilewright.frontend.language.weights import ModelTensor
from tilewright.frontend.speech.ctranslate2_file import Ct2File, read_ct2
from tilewright.frontend.speech.whisper import (
    EMBEDDING,
    POSITIONS,
    WhisperSizes,
    WhisperSource,
    unsupported_setting,
)
from tilewright.graph.ops import Array

CT2_FILE, KIND = "model.bin", "WhisperSpec"
#: The model's own names by those of the file, of all parts and of a layer.
WHOLE = {
    "encoder/conv1": "encoder.conv1", "encoder/conv2": "encoder.conv2",
    "encoder/layer_norm": "encoder.layer_norm", "decoder/layer_norm": "decoder.layer_norm",
    "decoder/embeddings": "decoder.embed_tokens",
}  # fmt: skip
LAYER = {
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
ENDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
#: Settings that the graph has to agree with; the activation 3 is the exact GELU.
SETTINGS = {
    "decoder/activation": 3, "decoder/pre_norm": 1, "decoder/scale_embeddings": 0,
    "decoder/alibi": 0, "decoder/start_from_zero_embedding": 0,
}  # fmt: skip
#: Settings that the graph does not need.
IGNORED = ("decoder/alignment_heads", "decoder/alignment_layer")
SCALE, HEADS = "_scale", "/num_heads"
INTEGERS = {"I8": "i1", "I16": "<i2", "I32": "<i4"}


def converted_whisper(folder: Path, name: str) -> WhisperSource:
    """Raises InvalidModel, UnsupportedOp, UnsupportedDType."""
    file = read_ct2(folder / CT2_FILE)
    if file.kind != KIND:
        raise UnsupportedOp(
            f"models of the kind {file.kind[:80]!r} of CTranslate2 are not supported",
            hint=f"Supported is {KIND}", kind=file.kind[:80],
        )  # fmt: skip
    for setting, wanted in SETTINGS.items():
        if setting in file.variables and (found := _number(file, setting)) != wanted:
            raise unsupported_setting(setting, found)
    tensors: dict[str, ModelTensor] = {}
    for variable, stored in file.variables.items():
        if not _is_setting(variable):
            tensors |= _tensors(stored, file.variables.get(variable + SCALE))
    return WhisperSource(name, _sizes(file, tensors), tensors)


def _is_setting(name: str) -> bool:
    return name in SETTINGS or name in IGNORED or name.endswith((HEADS, SCALE))


def _number(file: Ct2File, name: str) -> int:
    """A setting.  Raises InvalidModel."""
    found = file.variables.get(name)
    if found is None or found.shape or found.dtype not in INTEGERS:
        raise InvalidModel(
            f"the setting {name!r} is missing, or is not a whole number",
            hint="The file is damaged, or of another kind of model", variable=name,
        )  # fmt: skip
    return int(found.data.view(INTEGERS[found.dtype])[0])


def _sizes(file: Ct2File, tensors: Mapping[str, ModelTensor]) -> WhisperSizes:
    words, width = _shape(tensors, EMBEDDING, 2)
    heads = tuple(_number(file, f"{part}{HEADS}") for part in ("encoder", "decoder"))
    return WhisperSizes(
        width=width, bands=_shape(tensors, "encoder.conv1.weight", 3)[1],
        positions=_shape(tensors, f"encoder{POSITIONS}", 2)[0],
        room=_shape(tensors, f"decoder{POSITIONS}", 2)[0], words=words,
        layers=(_layers(tensors, "encoder"), _layers(tensors, "decoder")),
        heads=(heads[0], heads[1]),
    )  # fmt: skip


def _shape(tensors: Mapping[str, ModelTensor], role: str, axes: int) -> tuple[int, ...]:
    tensor = tensors.get(role)
    if tensor is None or len(tensor.shape) != axes:
        raise InvalidModel(
            f"the model has no {role} of {axes} axes",
            hint="The file is damaged, or of another kind of model", tensor=role,
        )  # fmt: skip
    return tensor.shape


def _layers(tensors: Mapping[str, ModelTensor], part: str) -> int:
    found = (re.match(rf"{part}\.layers\.(\d+)\.", role) for role in tensors)
    numbers = {int(each[1]) for each in found if each is not None}
    if not numbers or max(numbers) >= MOST_LAYERS:
        raise InvalidModel(f"the {part} has no layers that can be counted", layers=len(numbers))
    return max(numbers) + 1


# ---- variables ---------------------------------------------------------------------------------


def _tensors(stored: StoredTensor, scale: StoredTensor | None) -> dict[str, ModelTensor]:
    """The tensors of a variable by role; a variable of an unknown name keeps it."""
    roles = _roles(stored.name)
    parts = _cut(stored, len(roles))
    scales = _cut(scale, len(roles)) if scale is not None else [None] * len(roles)
    return {
        role: _tensor(part, own)
        for role, part, own in zip(roles, parts, scales, strict=True)
        # keys have no bias: the file has zeros in its place
        if not (role.endswith(".k_proj.bias") and not part.data.any())
    }


def _roles(name: str) -> Sequence[str]:
    place, _, end = name.rpartition("/")
    part, _, rest = place.partition("/")
    if rest == "position_encodings":
        return (part + POSITIONS,)
    found = re.fullmatch(r"layer_(\d{1,5})/(.+)", rest)
    if end in ENDS and found is not None and found[2] in LAYER:
        return tuple(f"{part}.layers.{found[1]}.{own}.{ENDS[end]}" for own in LAYER[found[2]])
    if end in ENDS and place in WHOLE:
        return (f"{WHOLE[place]}.{ENDS[end]}",)
    return (name,)


def _cut(stored: StoredTensor, count: int) -> list[StoredTensor]:
    """Parts of one number of rows.  Raises InvalidModel."""
    if count == 1:
        return [stored]
    if not stored.shape or stored.shape[0] % count:
        raise InvalidModel(
            f"the variable {stored.name!r} cannot be cut into {count}",
            hint="The file is damaged, or of another kind of model",
            variable=stored.name, shape=list(stored.shape),
        )  # fmt: skip
    shape = (stored.shape[0] // count, *stored.shape[1:])
    return [
        StoredTensor(f"{stored.name}.{n}", stored.dtype, shape, data)
        for n, data in enumerate(np.split(stored.data, count))
    ]


def _tensor(stored: StoredTensor, scale: StoredTensor | None) -> ModelTensor:
    """Numbers, or integers that are the numbers of a row times its scale.

    Raises InvalidModel, UnsupportedDType.
    """
    if stored.dtype != "I8" or scale is None:
        return model_tensor(stored)
    if not stored.shape or scale.dtype != "F32" or scale.shape != stored.shape[:1]:
        raise InvalidModel(
            f"{stored.name!r} has no scale for each row", hint="The file is damaged",
            variable=scale.name, shape=list(scale.shape),
        )  # fmt: skip
    if len(stored.shape) != 2:
        return ModelTensor(stored.name, "I8", stored.shape, F32, partial(_products, stored, scale))
    return ModelTensor(
        stored.name, "I8", stored.shape, I8, partial(_integers, stored),
        group=stored.shape[1], scale=partial(_factors, scale),
    )  # fmt: skip


def _integers(stored: StoredTensor) -> Array:
    return stored.data.view(np.int8).reshape(stored.shape)


def _factors(scale: StoredTensor) -> Array:
    """[rows, 1]"""
    return np.asarray(1 / scale.data.view("<f4"), np.float32)[:, None]


def _products(stored: StoredTensor, scale: StoredTensor) -> Array:
    rows = _integers(stored).astype(np.float32).reshape(stored.shape[0], -1)
    return np.asarray(rows * _factors(scale)).reshape(stored.shape)

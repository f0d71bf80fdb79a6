"""A folder of Hugging Face's format as a source of graphs.

Input: a folder, how many tokens the caches hold, the bits of weights.  Output: `FolderModel`, a
`Decoder` whose tensors have the roles that `called` and `ROLES` give their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from tilewright.base.dtypes import F32
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.frontend.folder.config import hyperparameters_of, rotations_of, settings_of
from tilewright.frontend.folder.model_folder import ModelFolder, open_folder
from tilewright.frontend.folder.safetensors_file import StoredTensor
from tilewright.frontend.language.architectures import Architecture
from tilewright.frontend.language.decoder import Decoder, DecoderSource
from tilewright.frontend.language.hyperparameters import Hyperparameters
from tilewright.frontend.language.quantise import Quantiser
from tilewright.frontend.language.weights import ModelTensor
from tilewright.graph.ops import Array

#: Types of numbers.
NUMBERS = {
    "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)
}  # fmt: skip
#: The 16-bit types, as `ModelTensor.stored` has them.
STORED = {"F16": "f16", "BF16": "bf16"}

#: Names of a model's tensors and of a layer's by their roles, without `.weight` and `.bias`.
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: Where these differ in models with norms behind attention and the gated part.
POSTS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
OUTPUT = "output.weight"
#: The gated part's two products in one.
BOTH = "mlp.gate_up_proj"

#: Text models inside models that also see pictures: how their names begin, and begin otherwise.
INNER = {"language_model.": "", "model.language_model.": "model."}
#: Tensors that are not part of the text model, or that follow from the settings.
IGNORED = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*|.*\.rotary_emb\.inv_freq")


class FolderModel(Decoder):
    """A folder as a source of graphs; most arguments are those of `Decoder`.

    bits: of the weights of products: 4, 8, 16 or 32; None keeps them as they are
    """

    def __init__(
        self, source: Path | ModelFolder, room: int = 0, loose: str = "", most: int = 0,
        bits: int | None = None,
    ) -> None:  # fmt: skip
        """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError."""
        self.folder = source if isinstance(source, ModelFolder) else open_folder(source)
        self.quantiser = Quantiser(bits)
        name, config = settings_of(self.folder.config)
        sizes = hyperparameters_of(name, config)
        whole, local = rotations_of(config, sizes)
        names = TensorNames(sizes.kind)
        stored = names.by_role(self.folder.tensors)
        is_tied = config.flag("tie_word_embeddings", OUTPUT not in stored)
        if is_tied:
            stored.pop(OUTPUT, None)
        _check_needed(sizes, stored, names, is_tied)
        tensors = {
            role: self.quantiser.tensor(
                role, model_tensor(t, sizes.kind.folder.ones and role.endswith("norm.weight"))
            )
            for role, t in stored.items()
        }
        given = DecoderSource(self.folder.name, sizes, whole, local, tensors, names.called)
        super().__init__(given, room, loose, most)

    def weight_error(self, progress: Callable[[int, int], None]) -> float:
        """As of `Quantiser.error_of`."""
        return self.quantiser.error_of(self.source.tensors.values(), progress)


def _check_needed(
    sizes: Hyperparameters, stored: Mapping[str, StoredTensor], names: TensorNames, is_tied: bool
) -> None:
    """Tensors that the graph would do without, because other models have none of them."""
    needed = [f"blk.{n}.{part}" for n in range(sizes.layers) for part in sizes.kind.folder.needs]
    missing = [role for role in (*needed, *(() if is_tied else (OUTPUT,))) if role not in stored]
    if missing:
        raise InvalidModel(
            f"the tensor {names.called(missing[0])!r} is missing",
            hint="The model is not complete, or of a kind that is not supported",
            tensor=names.called(missing[0]), missing=len(missing),
        )  # fmt: skip


class TensorNames:
    """Names of an architecture's tensors, and their roles."""

    def __init__(self, kind: Architecture) -> None:
        self._layer = {**LAYER, **(POSTS if kind.posts else {})}
        self._roles = {name: role for role, name in self._layer.items()} | {BOTH: "ffn_up"}

    def by_role(self, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
        """Tensors of unknown names keep these.  Raises InvalidModel."""
        found: dict[str, StoredTensor] = {}
        for name, tensor in tensors.items():
            if IGNORED.fullmatch(name):
                continue
            role = self._role(name)
            if role in found:
                raise InvalidModel(
                    f"the tensors {found[role].name!r} and {name!r} have the same role", tensor=name
                )
            found[role] = tensor
        return found

    def called(self, role: str) -> str:
        """The name of a role."""
        part, _, end = role.rpartition(".")
        if part in WHOLE:
            return f"{WHOLE[part]}.{end}"
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", part)
        if found is None or found[2] not in self._layer:
            return role
        return f"model.layers.{found[1]}.{self._layer[found[2]]}.{end}"

    def _role(self, name: str) -> str:
        for start, other in INNER.items():
            if name.startswith(start):
                name = other + name.removeprefix(start)
        part, _, end = name.rpartition(".")
        for role, own in WHOLE.items():
            if part == own:
                return f"{role}.{end}"
        found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", part)
        if found is None or found[2] not in self._roles:
            return name
        return f"blk.{found[1]}.{self._roles[found[2]]}.{end}"


def model_tensor(stored: StoredTensor, is_less_one: bool = False) -> ModelTensor:
    """The numbers of a tensor, plus 1 if it is stored less one.  Raises UnsupportedDType."""
    if stored.dtype not in NUMBERS:
        raise UnsupportedDType(
            f"the tensor {stored.name!r} has the type {stored.dtype}",
            hint=f"Supported are {', '.join(NUMBERS)}: get the model in one of these",
            tensor=stored.name, dtype=stored.dtype,
        )  # fmt: skip
    load = partial(_numbers, stored, 1.0 if is_less_one else 0.0)
    kept = "" if is_less_one else STORED.get(stored.dtype, "")
    return ModelTensor(stored.name, stored.dtype, stored.shape, F32, load, kept)


def _numbers(stored: StoredTensor, more: float) -> Array:
    found = stored.data.view(NUMBERS[stored.dtype]).astype(np.float32).reshape(stored.shape)
    return np.asarray(found + np.float32(more)) if more else found

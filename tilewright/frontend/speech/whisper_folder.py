"""A folder with a Whisper model as a source of graphs.

Input: a folder as Hugging Face's libraries write them (config.json and safetensors files), or as
CTranslate2 converts models (config.json and model.bin).  Output: `WhisperFolder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tilewright.frontend.folder.folder_model import model_tensor
from tilewright.frontend.folder.model_folder import CONFIG, ModelFolder, open_folder, read_json
from tilewright.frontend.language.hyperparameters import MOST_LAYERS
from tilewright.frontend.language.model_settings import ModelSettings
from tilewright.frontend.language.quantise import TABLES, Quantiser
from tilewright.frontend.language.weights import ModelTensor
from tilewright.frontend.speech.whisper import (
    EMBEDDING,
    POSITIONS,
    Whisper,
    WhisperSizes,
    WhisperSource,
    unsupported_setting,
)
from tilewright.frontend.speech.whisper_ct2 import CT2_FILE, converted_whisper

MODEL_TYPE = "whisper"
#: What names of tensors begin with, and the output's copy of the embeddings.
INNER, OUTPUT = "model.", "proj_out.weight"


class WhisperFolder(Whisper):
    """bits: of the weights of products: 4, 8, 16 or 32; None keeps them as they are"""

    def __init__(self, path: Path, loose: str = "", bits: int | None = None) -> None:
        """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError."""
        self.quantiser = Quantiser(bits)
        if (path / CT2_FILE).is_file():
            config = ModelSettings(read_json(path / CONFIG), where=f"{CONFIG}: ")
            self.folder = ModelFolder(path, config, {})
            source = converted_whisper(path, self.folder.name)
        else:
            self.folder = open_folder(path)
            source = _published(self.folder)
        tensors = {role: self._rounded(role, tensor) for role, tensor in source.tensors.items()}
        super().__init__(replace(source, tensors=tensors), loose)

    def weight_error(self, progress: Callable[[int, int], None]) -> float:
        """As of `Quantiser.error_of`."""
        return self.quantiser.error_of(self.source.tensors.values(), progress)

    def _rounded(self, role: str, tensor: ModelTensor) -> ModelTensor:
        if role.endswith(POSITIONS) or tensor.group:
            return tensor
        return self.quantiser.tensor(TABLES[0] if role == EMBEDDING else role, tensor)


def is_whisper_folder(path: Path) -> bool:
    """Whether it is a folder of CTranslate2, or Hugging Face's of a Whisper model.

    Raises InvalidModel.
    """
    if not (path / CONFIG).is_file():
        return False
    return (path / CT2_FILE).is_file() or read_json(path / CONFIG).get("model_type") == MODEL_TYPE


def _published(folder: ModelFolder) -> WhisperSource:
    config = folder.config
    if (activation := config.text("activation_function", "gelu")) != "gelu":
        raise unsupported_setting("activation_function", activation)
    if config.flag("scale_embedding", False):
        raise unsupported_setting("scale_embedding", True)
    stored = {name.removeprefix(INNER): tensor for name, tensor in folder.tensors.items()}
    if config.flag("tie_word_embeddings", True):
        stored.pop(OUTPUT, None)
    sizes = WhisperSizes(
        width=config.size("d_model"), bands=config.size("num_mel_bins", 80),
        positions=config.size("max_source_positions", 1500),
        room=config.size("max_target_positions", 448), words=config.size("vocab_size"),
        layers=(config.size("encoder_layers", most=MOST_LAYERS),
                config.size("decoder_layers", most=MOST_LAYERS)),
        heads=(config.size("encoder_attention_heads"), config.size("decoder_attention_heads")),
    )  # fmt: skip
    tensors = {role: model_tensor(t) for role, t in stored.items()}
    return WhisperSource(folder.name, sizes, tensors, lambda role: INNER + role)

"""Finds the files of a language model that was exported to ONNX.

Input: an .onnx file, or a folder as exporters and people publish it.  Output: the .onnx file, and a
`ModelFolder` with the settings of the JSON files beside it.  It reads no ONNX and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright.base.errors import InvalidModel, UsageError
from tilewright.frontend.folder import ModelFolder, optional_json
from tilewright.frontend.language.model_settings import ModelSettings

ENDING = ".onnx"
#: The folder of .onnx files in what is published for transformers.js.
INNER = "onnx"
CONFIG, TOKENIZER, GENAI = "config.json", "tokenizer.json", "genai_config.json"
#: Optimum's files of one model, the most useful one first.  The last one has no caches.
DECODERS = tuple(f"decoder_{name}{ENDING}" for name in ("model_merged", "with_past_model", "model"))
#: Files of one encoder-decoder model, the most useful ones first: an encoder, then its decoder,
#: which may be two.  Those with weights of fewer bits have longer names with the same ending.
ENCODER_DECODERS = (
    ("encoder_model", "decoder_model_merged"),
    ("encoder_model", "decoder_model", "decoder_with_past_model"),
    ("encoder_model", "decoder_model"),
    ("encoder", "decoder"),
)
#: Where settings say how many tokens a model was trained for.
LENGTHS = ("context_length", "max_position_embeddings", "n_positions")
#: Settings of genai_config.json that take the place of those of config.json.
OWN = ("context_length", "bos_token_id", "eos_token_id")


def is_export_path(path: Path) -> bool:
    """Whether it is an .onnx file, or a folder with one and without other weights."""
    if path.is_dir():
        has_others = any(path.glob("*.safetensors"))
        return (path / GENAI).is_file() or (not has_others and any(_files(path)))
    return path.suffix == ENDING


def onnx_file(path: Path) -> Path:
    """The .onnx file of a folder: the one that genai_config.json names, or the only one in the
    folder and its folder `onnx`; of Optimum's decoders the first of `DECODERS`.  A file is itself.

    Raises UsageError if there are several, InvalidModel.
    """
    if not path.is_dir():
        return path
    named = _named(path)
    if named is not None:
        return named
    files = list(_files(path))
    if len(files) > 1 and {file.name for file in files} <= {*DECODERS}:
        files = sorted(files, key=lambda file: DECODERS.index(file.name))[:1]
    if not files:
        raise InvalidModel("the folder has no .onnx file", path=str(path))
    if len(files) > 1:
        raise UsageError(
            f"the folder has {len(files)} .onnx files",
            hint=f"Name one of them instead of the folder, such as {files[0]}",
            files=[str(file.relative_to(path)) for file in files[:16]],
        )
    return files[0]


def encoder_decoder_files(path: Path) -> tuple[Path, ...] | None:
    """The files of an encoder-decoder model, by its folder or its first decoder, if they are there:
    an encoder, then a decoder or two."""
    for names in ENCODER_DECODERS:
        more, places = "", [path, path / INNER]
        if not path.is_dir():
            if path.suffix != ENDING or not path.stem.startswith(names[1]):
                continue
            more, places = path.stem.removeprefix(names[1]), [path.parent]
        for place in places:
            files = tuple(place / f"{name}{more}{ENDING}" for name in names)
            if all(file.is_file() for file in files):
                return files
    return None


def text_folder(file: Path) -> ModelFolder:
    """The folder with the tokenizer of an .onnx file, and the settings there: those of config.json,
    and in place of some of them those of genai_config.json.  Raises InvalidModel."""
    around = file.absolute().parent
    places = (around, around.parent) if around.name == INNER else (around,)
    found = next((place for place in places if (place / TOKENIZER).is_file()), None)
    if found is None:
        raise InvalidModel(
            f"there is no {TOKENIZER} with the model {file.name}",
            hint=f"Put {TOKENIZER} of the same model into its folder, and tokenizer_config.json, "
            f"{CONFIG} and generation_config.json or {GENAI} if the model has them",
            searched=[str(place / TOKENIZER) for place in places],
        )
    values = {**optional_json(found / CONFIG)}
    genai = optional_json(found / GENAI).get("model")
    if isinstance(genai, dict):
        values |= {key: genai[key] for key in OWN if key in genai}
    return ModelFolder(found, ModelSettings(values, where=f"{CONFIG}: "), {})


def trained_tokens(config: ModelSettings) -> int:
    """How many tokens the model was trained for; 0 if the settings do not say it."""
    inner = config.values.get("text_config")
    for values in (config.values, inner if isinstance(inner, dict) else {}):
        settings = ModelSettings(values, where=config.where)
        for key in LENGTHS:
            if values.get(key) is not None:
                return settings.size(key)
    return 0


def _named(folder: Path) -> Path | None:
    """The file that genai_config.json names."""
    model = optional_json(folder / GENAI).get("model")
    decoder = model.get("decoder") if isinstance(model, dict) else None
    name = decoder.get("filename") if isinstance(decoder, dict) else None
    if name is None:
        return None
    if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
        raise InvalidModel(
            f"{GENAI} names the file {str(name)[:80]!r}, which is not in its folder",
            hint="The download was not complete: get the missing files", path=str(folder),
        )  # fmt: skip
    return folder / name


def _files(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / INNER):
        yield from sorted(file for file in place.glob(f"*{ENDING}") if file.is_file())

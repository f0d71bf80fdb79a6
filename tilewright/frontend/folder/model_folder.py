"""A folder with a language model: its settings, and the tensors of all its files.

Input: a path.  Output: `ModelFolder`, or a typed error that names the file.  It reads config.json
and the headers of safetensors files, and knows no architecture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.errors import InvalidModel, UnsupportedDType, UnsupportedOp
from tilewright.frontend.folder.safetensors_file import StoredTensor, read_safetensors
from tilewright.frontend.language.model_settings import ModelSettings

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
#: Bytes of a JSON file.
MOST_JSON = 1 << 24
#: Where libraries say how they quantised a model, and whose it is if that says no more.
QUANTISED = {"quantization_config": "an unknown method", "quantization": "MLX"}


@dataclass(frozen=True)
class ModelFolder:
    """config: of config.json;  tensors: by name, of all files"""

    path: Path
    config: ModelSettings
    tensors: Mapping[str, StoredTensor] = field(repr=False)

    @property
    def name(self) -> str:
        """Of the folder; in the cache of huggingface_hub that of the model."""
        path = self.path.resolve()
        if path.parent.name == "snapshots":  # models--owner--name/snapshots/commit
            return path.parents[1].name.split("--")[-1]
        return path.name


def is_folder(path: Path) -> bool:
    """Whether it is a folder with a model's settings."""
    return (path / CONFIG).is_file()


def open_folder(path: Path) -> ModelFolder:
    """Reads the settings and the headers.  Raises InvalidModel, UnsupportedOp, UnsupportedDType."""
    config = ModelSettings(read_json(path / CONFIG), where=f"{CONFIG}: ")
    _refuse_quantised(config)
    found: dict[str, StoredTensor] = {}
    for file in _files(path):
        made = read_safetensors(path / file)
        if both := found.keys() & made.keys():
            name = min(both)
            raise InvalidModel(f"the tensor {name!r} is in two files", tensor=name, file=file)
        found |= made
    return ModelFolder(path, config, found)


def read_json(path: Path) -> dict[str, object]:
    """A JSON object.  Raises InvalidModel."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_JSON + 1)
        if len(text) > MOST_JSON:
            raise ValueError(f"it has more than {MOST_JSON} bytes")
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as cause:
        raise InvalidModel(
            f"cannot read {path.name}: {getattr(cause, 'strerror', None) or cause}"[:200],
            hint="Check that the folder is complete", path=str(path),
        ) from cause  # fmt: skip
    return found


def optional_json(path: Path) -> Mapping[str, object]:
    """A JSON object; empty if there is no such file.  Raises InvalidModel."""
    return read_json(path) if path.is_file() else {}


def _refuse_quantised(config: ModelSettings) -> None:
    for key, usual in QUANTISED.items():
        if (found := config.values.get(key)) is None:
            continue
        method = found.get("quant_method") if isinstance(found, dict) else None
        raise UnsupportedDType(
            f"the folder's weights are quantised by {method or usual}, which is not supported",
            hint="Get the model in F32, F16 or BF16 and quantise it with --weights, or get a GGUF "
            "file of it",
            key=key,
        )


def _files(path: Path) -> list[str]:
    """Names of the safetensors files."""
    if (path / ONE).is_file():
        return [ONE]
    if not (path / INDEX).is_file():
        raise _no_weights(path)
    table = read_json(path / INDEX).get("weight_map")
    names = set(table.values()) if isinstance(table, dict) and _are_texts(table) else set()
    files = sorted(name for name in names if isinstance(name, str))
    for name in files:
        if name in ("", ".", "..") or Path(name).name != name or "\\" in name:
            raise InvalidModel(f"{INDEX} names the file {name[:80]!r} outside the folder")
    missing = [name for name in files if not (path / name).is_file()]
    if missing or not files:
        raise InvalidModel(
            f"the folder has no {missing[0]}" if missing else f"{INDEX} names no files",
            hint="The download was not complete: get the missing files", missing=missing,
        )  # fmt: skip
    return files


def _are_texts(table: Mapping[object, object]) -> bool:
    return all(isinstance(name, str) for name in table.values())


def _no_weights(path: Path) -> InvalidModel | UnsupportedOp:
    pickled = sorted(p.name for end in ("bin", "pt", "pth") for p in path.glob(f"*.{end}"))
    if pickled:
        return UnsupportedOp(
            f"the weights are in {pickled[0]}, a pickled file, which could run any code",
            hint="Save the model as safetensors: load it with the package transformers where you "
            "trust it, and call `model.save_pretrained(folder)`",
            files=pickled[:8],
        )  # fmt: skip
    return InvalidModel(
        f"the folder has no {ONE}",
        hint=f"It needs {ONE}, or {INDEX} with the files that this names", path=str(path),
    )  # fmt: skip

"""Recipes of TF.js's weights: written and rebuilt they are the same bytes, or they are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks.export import tfjs_recipe

Array = np.ndarray[Any, Any]
NAME = "made_up"
RNG = np.random.default_rng(0)
FILTER = RNG.standard_normal((8, 4, 3, 3), np.float32)
TAPS = RNG.standard_normal((8, 1, 3, 3), np.float32)
#: Numbers that equal others, or not even themselves.
ODD = np.array([np.nan, -0.0, 0.0, np.inf, np.nan, -0.0], np.float32)
TENSORS = {"filter": FILTER, "taps": TAPS, "odd": ODD, "scale": np.array(0.5, np.float32)}
CONSTANTS = {
    "permuted": FILTER.transpose(2, 3, 1, 0),
    "depthwise": TAPS.transpose(2, 3, 0, 1),
    "reshaped": FILTER.reshape(32, 9),
    "twice": FILTER,
    "odd": ODD.reshape(1, 2, 3),
    "scalar": np.array(0.5, np.float32),
    # the same elements in an order that no permutation of axes gives
    "raw": FILTER[::-1],
    "ints": np.array([1, -1, 384], np.int32),
    "flag": np.array([True, False, True]),
    "none": np.zeros((0, 3), np.float32),
}
RAW = ("raw", "ints", "flag", "none")


def save_model(folder: Path, tensors: dict[str, Array]) -> None:
    kept = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    folder.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(helper.make_graph([], "g", [], [], kept))
    onnx.save(model, folder / f"{NAME}.onnx")


def run(command: str, models: Path, recipes: Path, *more: str) -> None:
    tfjs_recipe.main([command, "--models", str(models), "--recipes", str(recipes), *more])


@pytest.fixture
def folders(tmp_path: Path) -> Sequence[Path]:
    """Models with TF.js's files, their recipes, and the ONNX models alone, as written elsewhere."""
    models, recipes, elsewhere = (tmp_path / n for n in ("models", "recipes", "elsewhere"))
    save_model(models, TENSORS)
    save_model(elsewhere, TENSORS)
    made = models / "tfjs" / NAME
    made.mkdir(parents=True)
    weights = [
        {"name": name, "shape": list(value.shape), "dtype": value.dtype.name}
        for name, value in CONSTANTS.items()
    ]
    manifest = [{"paths": ["weights.bin"], "weights": weights}]
    (made / "model.json").write_text(json.dumps({"weightsManifest": manifest}))
    content = b"".join(np.ascontiguousarray(value).tobytes() for value in CONSTANTS.values())
    (made / "weights.bin").write_bytes(content)
    run("write", models, recipes)
    return models, recipes, elsewhere


def test_rebuilt_weights_are_the_same_bytes(folders: Sequence[Path]) -> None:
    models, recipes, elsewhere = folders
    run("rebuild", elsewhere, recipes, NAME)
    for name in ("model.json", "weights.bin"):
        made, wanted = (folder / "tfjs" / NAME / name for folder in (elsewhere, models))
        assert made.read_bytes() == wanted.read_bytes()
    with pytest.raises(SystemExit, match="--force"):
        run("rebuild", elsewhere, recipes)


def test_only_what_no_tensor_gives_is_carried(folders: Sequence[Path]) -> None:
    recipe = json.loads((folders[1] / NAME / "recipe.json").read_text())
    parts = dict(zip(CONSTANTS, recipe["parts"], strict=True))
    assert [name for name, part in parts.items() if "rest" in part] == [*RAW]
    facts = {"dtype": "float32", "shape": [8, 4, 3, 3]}
    assert parts["permuted"] == {"from": "filter", **facts, "axes": [2, 3, 1, 0]}
    assert parts["depthwise"]["from"] == "taps"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"filter": FILTER + 1}, "DigestUnlike"),
        ({"filter": FILTER.reshape(8, 36)}, "ModelUnlike"),
        ({"filter": FILTER.astype(np.float64)}, "ModelUnlike"),
        ({"taps": None}, "ModelUnlike"),
    ],
)
def test_another_model_is_refused(
    folders: Sequence[Path], change: dict[str, Array | None], error: str
) -> None:
    _, recipes, elsewhere = folders
    changed = {name: value for name, value in (TENSORS | change).items() if value is not None}
    save_model(elsewhere, changed)
    with pytest.raises(SystemExit, match=f"^{NAME}: {error}: "):
        run("rebuild", elsewhere, recipes)
    assert not [*(elsewhere / "tfjs" / NAME).iterdir()]


def test_other_values_are_taken_where_that_is_asked_for(folders: Sequence[Path]) -> None:
    _, recipes, elsewhere = folders
    save_model(elsewhere, TENSORS | {"filter": FILTER + 1})
    run("rebuild", elsewhere, recipes, "--any-values")
    made = (elsewhere / "tfjs" / NAME / "weights.bin").read_bytes()
    wanted = np.ascontiguousarray((FILTER + 1).transpose(2, 3, 1, 0))
    assert made.startswith(wanted.tobytes())


def test_damaged_and_missing_files_are_refused(folders: Sequence[Path]) -> None:
    models, recipes, elsewhere = folders
    with pytest.raises(SystemExit, match="other: FileMissing: "):
        run("rebuild", elsewhere, recipes, "other")
    (recipes / NAME / "rest.xz").write_bytes(b"no archive")
    with pytest.raises(SystemExit, match="RecipeDamaged: "):
        run("rebuild", elsewhere, recipes)
    (models / "tfjs" / NAME / "weights.bin").write_bytes(b"too few")
    with pytest.raises(SystemExit, match="WeightsUnlike: "):
        run("write", models, recipes, "--force")

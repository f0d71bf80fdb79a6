"""TF.js's weights without their bytes: which tensor of the ONNX file each is, with axes permuted.

`write`: from a folder of ONNX models with tfjs/NAME/model.json and weights.bin, some kB for each:
model.json, recipe.json, and rest.xz with what is no tensor of the ONNX file.  `rebuild`: from those
and the same ONNX models, written on another machine, its tfjs/NAME.  Needs NumPy and onnx only:
tensorflow_models.py converts, this file carries.

    python tfjs_recipe.py write --models MODELS --recipes RECIPES [NAME ...]
    python tfjs_recipe.py rebuild --models MODELS --recipes RECIPES [NAME ...]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import math
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.export.target import add_force, free
from benchmarks.peers.cases import Model
from benchmarks.peers.examples import model_file

Array = np.ndarray[Any, Any]
#: Of a constant: {"from": a tensor's name, "dtype", "shape", "axes"}, or {"rest": bytes}.
Part = dict[str, Any]
FORMAT = 1
TOPOLOGY, WEIGHTS, RECIPE, REST = "model.json", "weights.bin", "recipe.json", "rest.xz"


class Refused(Exception):
    """Why a recipe or weights were not written."""


class FileMissing(Refused):
    """A model, a recipe or weights that are not there."""


class WeightsUnlike(Refused):
    """weights.bin is not what model.json describes."""


class RecipeDamaged(Refused):
    """The recipe is of another format, or its files do not fit each other."""


class ModelUnlike(Refused):
    """The ONNX file has not the tensors of the recipe, by name, type and shape."""


class DigestUnlike(Refused):
    """The ONNX file has the tensors of the recipe with other values."""


def bits(value: Array) -> Array:
    """As integers, of which each equals itself; NaNs do not."""
    return value.view(f"u{value.dtype.itemsize}")


def facts(value: Array) -> dict[str, Any]:
    return {"dtype": value.dtype.name, "shape": list(value.shape)}


def tensors_of(path: Path) -> dict[str, TensorProto]:
    return {i.name: i for i in onnx.load(path).graph.initializer}


# ---- write ---------------------------------------------------------------------------------------


def constants(topology: Path, weights: Path) -> Iterator[Array]:
    """What lies in weights.bin, one constant after the other."""
    (group,) = json.loads(topology.read_text())["weightsManifest"]
    kinds = [(np.dtype(w["dtype"]), math.prod(w["shape"])) for w in group["weights"]]
    content = np.fromfile(weights, np.uint8)
    if content.size != sum(dtype.itemsize * count for dtype, count in kinds):
        raise WeightsUnlike(f"{topology} describes more or fewer bytes than {weights} has")
    at = 0
    for dtype, count in kinds:
        end = at + dtype.itemsize * count
        yield bits(content[at:end].view(dtype))
        at = end


def fingerprint(value: Array) -> tuple[int, int, int]:
    """The same for the same elements in any order."""
    return value.dtype.itemsize, value.size, int(bits(value).sum(dtype=np.uint64))


def derived(value: Array, tensors: Sequence[tuple[str, Array]]) -> Part | None:
    """How a constant comes from one of `tensors`, which are of its size."""
    for name, tensor in tensors:
        for axes in permutations(range(tensor.ndim)):
            if np.array_equal(bits(tensor).transpose(axes).ravel(), value):
                return {"from": name, **facts(tensor), "axes": list(axes)}
    return None


def described(values: Iterator[Array], tensors: Mapping[str, TensorProto]) -> Iterator[Any]:
    """A part for each constant, with its bytes if they are part of the rest."""
    known: dict[tuple[int, int, int], list[tuple[str, Array]]] = defaultdict(list)
    for name, proto in tensors.items():
        tensor = numpy_helper.to_array(proto)
        known[fingerprint(tensor)].append((name, tensor))
    for value in values:
        part = derived(value, known.get(fingerprint(value), []))
        yield (part, b"") if part else ({"rest": value.nbytes}, value.tobytes())


def write(name: str, models: Path, recipes: Path, force: bool) -> None:
    source, folder = models / "tfjs" / name, recipes / name
    topology, recipe, rest = (free(folder / n, force) for n in (TOPOLOGY, RECIPE, REST))
    values = constants(there(source / TOPOLOGY), there(source / WEIGHTS))
    parts, left = zip(*described(values, tensors_of(onnx_file(name, models))), strict=True)
    with (source / WEIGHTS).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / TOPOLOGY, topology)
    rest.write_bytes(lzma.compress(b"".join(left)))
    recipe.write_text(json.dumps({"format": FORMAT, "sha256": digest, "parts": parts}))
    carried = sum(path.stat().st_size for path in (topology, recipe, rest))
    size, raw = (source / WEIGHTS).stat().st_size, sum(map(len, left))
    print(f"{name}: {carried:,} bytes for {size:,}, of which {raw:,} are not of the ONNX file")


# ---- rebuild -------------------------------------------------------------------------------------


def rebuilt(
    parts: Sequence[Part], rest: bytes, tensors: Mapping[str, TensorProto]
) -> Iterator[Array]:
    """The bytes of each constant."""
    at = 0
    for part in parts:
        if "rest" in part:
            yield np.frombuffer(rest[at : at + part["rest"]], np.uint8)
            at += part["rest"]
            continue
        name, wanted = part["from"], {key: part[key] for key in ("dtype", "shape")}
        tensor = numpy_helper.to_array(tensors[name]) if name in tensors else None
        if tensor is None or facts(tensor) != wanted:
            raise ModelUnlike(f"The ONNX file has no tensor {name} of {wanted}")
        yield np.ascontiguousarray(bits(tensor).transpose(part["axes"])).reshape(-1)
    if at != len(rest):
        raise RecipeDamaged(f"{REST} has not as many bytes as the recipe takes")


def opened(folder: Path) -> tuple[dict[str, Any], bytes]:
    try:
        recipe = json.loads(there(folder / RECIPE).read_text())
    except json.JSONDecodeError as error:
        raise RecipeDamaged(f"{RECIPE}: {error}") from error
    if recipe.get("format") != FORMAT or not {"sha256", "parts"} <= recipe.keys():
        raise RecipeDamaged(f"{RECIPE} is not of the format {FORMAT}")
    try:
        return recipe, lzma.decompress(there(folder / REST).read_bytes())
    except lzma.LZMAError as error:
        raise RecipeDamaged(f"{REST}: {error}") from error


def rebuild(name: str, recipes: Path, models: Path, force: bool, any_values: bool = False) -> None:
    """`any_values`: take a model of other numbers; its answers are compared in any case."""
    folder, made = recipes / name, models / "tfjs" / name
    topology, weights = free(made / TOPOLOGY, force), free(made / WEIGHTS, force)
    recipe, rest = opened(folder)
    tensors = tensors_of(onnx_file(name, models))
    made.mkdir(parents=True, exist_ok=True)
    # No reader must meet weights that were refused.
    unfinished, digest = made / f"{WEIGHTS}.part", hashlib.sha256()
    try:
        with unfinished.open("wb") as file:
            for value in rebuilt(recipe["parts"], rest, tensors):
                digest.update(value.data)
                file.write(value.data)
        same = digest.hexdigest() == recipe["sha256"]
        if not same and not any_values:
            raise DigestUnlike(
                "The ONNX file has other values than that of the recipe. If it is the same model "
                "with numbers of its own (another libm), --any-values takes them"
            )
        shutil.copyfile(there(folder / TOPOLOGY), topology)
        unfinished.replace(weights)
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{name}: {weights.stat().st_size:,} bytes{'' if same else ', of other values'}")


# ---- the command ---------------------------------------------------------------------------------


def there(path: Path) -> Path:
    if not path.exists():
        raise FileMissing(f"no {path}")
    return path


def onnx_file(name: str, models: Path) -> Path:
    return model_file(Model(name), models) or there(models / f"{name}.onnx")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    own = {name: commands.add_parser(name) for name in ("write", "rebuild")}
    for command in own.values():
        command.add_argument("--models", type=Path, required=True, help="of ONNX files and tfjs/")
        command.add_argument("--recipes", type=Path, required=True, help="a folder for each model")
        command.add_argument("names", nargs="*", help="only these models")
        add_force(command)
    own["rebuild"].add_argument(
        "--any-values", action="store_true", help="take a model of the same tensors, other numbers"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = parsed(arguments)
    run: Callable[..., None] = write
    found = given.models.glob(f"tfjs/*/{TOPOLOGY}")
    if given.command == "rebuild":
        run = partial(rebuild, any_values=given.any_values)
        found = given.recipes.glob(f"*/{RECIPE}")
    failed = []
    for name in given.names or sorted(path.parent.name for path in found):
        try:
            run(name, models=given.models, recipes=given.recipes, force=given.force)
        except Refused as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()

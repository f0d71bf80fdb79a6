"""Damaged bundles end as typed errors, or run after all; nothing aborts and nothing runs for ever.

Input: a seed.  A small bundle, one of whose files is damaged: manifest, tables, plans, lists of
kernels, plan images, code.  Most damage is sealed with right digests, as a forger would.  Output:
hosts raise nothing but typed errors.
"""

from __future__ import annotations

import json
import shutil
import struct
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from frontend_factory import model
from helpers.mutations import NUMBERS, damaged_json
from helpers.seeds import seeds
from onnx import helper

from tilewright.base.errors import CompilerBug, TilewrightError
from tilewright.bundle import open_bundle, write
from tilewright.bundle.format import digest
from tilewright.compiler import Options, compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost

#: One test has as many cases, so that their number costs little.
BATCH = 25

#: Seconds after which the host ends code of a damaged bundle.
PATIENCE = 1.0


@cache
def whole() -> dict[str, bytes]:
    """A small bundle with weights, a dimension that ends at run time, and several kernels."""
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=-1),
        helper.make_node("Concat", ["b", "x"], ["c"], axis=1),
        helper.make_node("ReduceSum", ["c"], ["y"], keepdims=1),
    ]
    proto = model(nodes, {"x": ["n", 8]}, ["y"], {"w": weight})
    made = compile_model(proto, Options(extents={"n": 8}, variants=("x86-simd",)))
    folder = Path(mkdtemp())
    write(made.contents, folder)
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*")
             if p.is_file()}  # fmt: skip
    shutil.rmtree(folder)
    return found


@cache
def parts() -> tuple[str, str, dict[str, str]]:
    """The manifest's file, then its text, and the kind of every blob that it names."""
    name = json.loads(whole()["bundle.json"])["manifest"]["file"]
    manifest = json.loads(whole()[name])
    section = manifest["targets"]["wasm"]
    build = section["builds"][0]
    kinds = {build["code"]["file"]: "bytes", section["kernels"]["file"]: "json"}
    kinds |= {ref["file"]: "image" for ref in build["plans"]}
    kinds |= {ref["file"]: "bytes" for n, ref in section["programs"].items() if n == "driver"}
    kinds |= {plan["file"]["file"]: "json" for plan in manifest["plans"]}
    kinds |= {manifest["kernels"]["file"]: "json", manifest["weights"]["tensors"]["file"]: "json"}
    kinds |= {ref["file"]: "bytes" for ref in manifest["weights"]["shards"]}
    return name, whole()[name].decode(), kinds


def warm() -> None:
    parts()


def case(number: int, folder: Path) -> Path:
    """A folder with the damaged bundle."""
    rng = Random(number)
    _name, text, kinds = parts()
    files = dict(whole())
    if rng.random() < 0.35:
        text = _json(damaged_json(json.loads(text), rng), rng)
    else:
        old = rng.choice(sorted(kinds))
        data = {"json": _damaged_text, "image": _image, "bytes": _bytes}[kinds[old]](
            files[old], rng
        )
        new = f"blobs/{digest(data)}.{old.rpartition('.')[2]}"
        files[new] = data
        if rng.random() < 0.95:  # else the digests tell
            manifest = json.loads(text)
            _refer(manifest, old, new, data)
            text = json.dumps(manifest)
        else:
            files[old] = data
    sealed = text.encode("utf-8", "surrogatepass")
    new = f"blobs/{digest(sealed)}.json"
    files[new] = sealed
    pointer = json.loads(files["bundle.json"])
    pointer["manifest"] = {"file": new, "digest": digest(sealed), "bytes": len(sealed)}
    if rng.random() < 0.02:
        pointer = damaged_json(pointer, rng)
    files["bundle.json"] = json.dumps(pointer).encode()
    shutil.rmtree(folder / "bundle", ignore_errors=True)
    for path, data in files.items():
        place = folder / "bundle" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder / "bundle"


def _json(data: Any, rng: Random) -> str:
    text = json.dumps(data)
    if rng.random() < 0.03:
        text = text[: rng.randrange(len(text))]
    if rng.random() < 0.03:
        text = text.replace("0", "[" * 100_000 + "]" * 100_000, 1)
    if rng.random() < 0.03:
        text = text.replace("1", "9" * 5000, 1)
    return text


def _damaged_text(data: bytes, rng: Random) -> bytes:
    return _json(damaged_json(json.loads(data), rng), rng).encode()


def _image(data: bytes, rng: Random) -> bytes:
    """Words of an image changed, or its end lost."""
    words = list(struct.unpack(f"<{len(data) // 4}I", data))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(words))
        near = words[at] + rng.choice((-1, 1, 4, 64))
        words[at] = rng.choice((near, rng.choice(NUMBERS), rng.choice(words))) % 2**32
    if rng.random() < 0.1:
        del words[rng.randrange(len(words)) :]
    return struct.pack(f"<{len(words)}I", *words)


def _bytes(data: bytes, rng: Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        made[rng.randrange(len(made))] = rng.randrange(256)
    if rng.random() < 0.1:
        del made[rng.randrange(len(made)) :]
    return bytes(made)


def _refer(data: Any, old: str, new: str, content: bytes) -> None:
    """References to a file that has become another."""
    if isinstance(data, dict):
        if data.get("file") == old:
            data |= {"file": new, "digest": digest(content), "bytes": len(content)}
        for value in data.values():
            _refer(value, old, new, content)
    elif isinstance(data, list):
        for value in data:
            _refer(value, old, new, content)


def attempt(number: int, path: Path) -> None:
    """Opens, verifies and runs it on two hosts.  Raises what is not typed."""
    x = {"x": np.ones((5, 8), np.float32)}
    for use in (
        lambda: open_bundle(path).verify(),
        lambda: ReferenceHost(path).run(x),
        lambda: WasmtimeHost(path, seconds=PATIENCE).run(x),
    ):
        try:
            use()
        except CompilerBug:
            raise
        except TilewrightError:
            pass


def test_the_bundle_runs_as_it_is(tmp_path: Path) -> None:
    for name, data in whole().items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(data)
    x = {"x": np.ones((5, 8), np.float32)}
    wanted = ReferenceHost(tmp_path).run(x).outputs["y"]
    found = WasmtimeHost(tmp_path, seconds=60).run(x).outputs["y"]
    assert np.allclose(found, wanted, rtol=1e-5)  # sums of 16 numbers in another order


@pytest.mark.parametrize("batch", seeds(500 // BATCH, nightly=9500 // BATCH))
def test_damaged_bundles_raise_typed_errors(batch: int, tmp_path: Path) -> None:
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        path = case(number, tmp_path)
        try:
            attempt(number, path)
        except BaseException as error:
            error.add_note(f"case {number}")
            raise

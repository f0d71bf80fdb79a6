"""Small bundles, one of whose files is damaged: manifest, tables, plans, images, code.

Input: a bundle's files, a random generator.  Output: its files after the damage.  Most damage is
sealed with right digests, as a forger would.  Mutations themselves are in mutations.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import getitem
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from helpers.mutations import NUMBERS, damaged_json
from tilewright.bundle import Contents, write
from tilewright.bundle.format import digest


@dataclass(frozen=True)
class Damaged:
    """A bundle after its damage.

    files: by their paths; what: `manifest`, or the kind of the blob (`json`, `image`, `bytes`)
    """

    files: Mapping[str, bytes]
    what: str


@dataclass(frozen=True)
class Whole:
    """A bundle that can be damaged; files: by their paths."""

    files: Mapping[str, bytes]

    @classmethod
    def of(cls, contents: Contents) -> Whole:
        with TemporaryDirectory() as folder:
            write(contents, Path(folder))
            return cls(
                {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*")
                 if p.is_file()}
            )  # fmt: skip

    @cached_property
    def manifest(self) -> tuple[str, str]:
        """Its path and its text."""
        name = json.loads(self.files["bundle.json"])["manifest"]["file"]
        return name, self.files[name].decode()

    @cached_property
    def kinds(self) -> dict[str, str]:
        """How each blob that the manifest names is damaged."""
        manifest = json.loads(self.manifest[1])
        (section,) = manifest["targets"].values()
        build = section["builds"][0]
        kinds = {build["code"]["file"]: "bytes", section["kernels"]["file"]: "json"}
        kinds |= {ref["file"]: "image" for ref in build["plans"]}
        # Where a target has texts instead.
        kinds |= {file: "json" for file in kinds if file.endswith(".json")}
        kinds |= {ref["file"]: "bytes" for n, ref in section["programs"].items() if n == "driver"}
        kinds |= {plan["file"]["file"]: "json" for plan in manifest["plans"]}
        tables = manifest["kernels"], manifest["weights"]["tensors"]
        kinds |= {ref["file"]: "json" for ref in tables}
        kinds |= {ref["file"]: "bytes" for ref in manifest["weights"]["shards"]}
        return kinds

    def edited(self, where: Sequence[str | int], edit: Callable[[Any], object]) -> Damaged:
        """With other JSON in the manifest, or in the file of the reference at `where` in it."""
        files = dict(self.files)
        manifest = json.loads(self.manifest[1])
        if where:
            ref = reduce(getitem, where, manifest)
            data = json.loads(files[ref["file"]])
            edit(data)
            text = json.dumps(data).encode()
            file = f"blobs/{digest(text)}.json"
            files[file] = text
            _refer(manifest, ref["file"], file, text)
        else:
            edit(manifest)
        files["bundle.json"] = json.dumps(_sealed(files, json.dumps(manifest))).encode()
        return Damaged(files, "json" if where else "manifest")

    def damaged(self, rng: Random) -> Damaged:
        text = self.manifest[1]
        files = dict(self.files)
        what = "manifest"
        if rng.random() < 0.35:
            text = json_text(damaged_json(json.loads(text), rng), rng)
        else:
            old = rng.choice(sorted(self.kinds))
            what = self.kinds[old]
            data = {"json": _damaged_text, "image": _image, "bytes": damaged_bytes}[what](
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
        pointer = _sealed(files, text)
        if rng.random() < 0.02:
            pointer = damaged_json(pointer, rng)
        files["bundle.json"] = json.dumps(pointer).encode()
        return Damaged(files, what)


def _sealed(files: dict[str, bytes], text: str) -> Any:
    """Adds the manifest; returns the pointer to it."""
    data = text.encode("utf-8", "surrogatepass")
    pointer = json.loads(files["bundle.json"])
    pointer["manifest"] = {"file": f"blobs/{digest(data)}.json", "digest": digest(data)}
    pointer["manifest"]["bytes"] = len(data)
    files[pointer["manifest"]["file"]] = data
    return pointer


def json_text(data: Any, rng: Random) -> str:
    """The text, sometimes cut, or with what is nested or long beyond measure."""
    text = json.dumps(data)
    if rng.random() < 0.03:
        text = text[: rng.randrange(len(text))]
    if rng.random() < 0.03:
        text = text.replace("0", "[" * 100_000 + "]" * 100_000, 1)
    if rng.random() < 0.03:
        text = text.replace("1", "9" * 5000, 1)
    return text


def _damaged_text(data: bytes, rng: Random) -> bytes:
    return json_text(damaged_json(json.loads(data), rng), rng).encode()


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


def damaged_bytes(data: bytes, rng: Random) -> bytes:
    """Some bytes changed, or the end lost."""
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

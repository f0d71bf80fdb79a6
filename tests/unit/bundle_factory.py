"""A tiny bundle for tests of the bundle, the server and the command line.

Input: nothing.  Output: `Contents` with every kind of file in it.  Its modules are no real Wasm: no
host can run it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tilewright.bundle import (
    Asset,
    BuildEntry,
    Contents,
    FileRef,
    Manifest,
    PlanEntry,
    SectionEntry,
    StepEntry,
    TensorEntry,
    TensorInfo,
    Weights,
    add,
)
from tilewright.bundle.owned_files import RECORD, STAYS_S


def fields(ref: FileRef) -> dict[str, object]:
    return {"file": ref.file, "digest": ref.digest, "bytes": ref.bytes}


def sample(weight_bytes: int = 1000, name: str = "sample") -> Contents:
    """A bundle with one dimension `n` in two buckets."""
    blobs: dict[str, bytes | bytearray | memoryview] = {}
    tokenizer = add(blobs, b'{"vocab": {}}', "json")
    manifest = Manifest(
        tool="tilewright test",
        name=name,
        dims={"n": (16, 32)},
        inputs=(TensorInfo(name="x", dtype="f32", shape=(1, "n")),),
        outputs=(TensorInfo(name="y", dtype="f32", shape=(1, "n")),),
        weights=Weights(bytes=weight_bytes),
        kernels=add(blobs, b"[]", "json"),
        plans=tuple(_plan(blobs, n) for n in (16, 32)),
        targets={
            "wasm": SectionEntry(
                builds=(
                    _build(blobs, "x86", ("relaxed_simd",), b"\0asm relaxed"),
                    _build(blobs, "x86-simd", (), b"\0asm plain"),
                ),
                slots=1,
                memory=65536,
                programs={"driver": add(blobs, b"\0asm driver", "wasm")},
                plans=tuple(
                    {"address": 2048, "arena_bytes": 1024, "inputs": [4096], "outputs": [4608]}
                    for _ in (16, 32)
                ),
                kernels=add(blobs, b"[{}]", "json"),
                facts={
                    "memory": {
                        "bytes": 65536,
                        "control": 0,
                        "weights": 1024,
                        "arena": 4096,
                        "arena_bytes": 8192,
                        "scratch": 16384,
                        "scratch_bytes": 1024,
                    },
                    "states": [],
                },
            )
        },
        assets=(Asset(name="tokenizer.json", type="application/json", **fields(tokenizer)),),
    )
    cut = min(weight_bytes, 300)
    tensors = (
        TensorEntry(dtype="u8", shape=(cut,), offset=0, bytes=cut),
        TensorEntry(dtype="u8", shape=(weight_bytes - cut,), offset=cut, bytes=weight_bytes - cut),
    )
    return Contents(manifest, blobs, lambda: weights(weight_bytes), tensors)


def weights(size: int) -> Iterator[bytes]:
    """Uneven pieces, so that shard borders fall inside them."""
    rest = size
    while rest > 0:
        piece = min(rest, 700_001)
        yield bytes(i % 251 for i in range(min(piece, 1000))).ljust(piece, b"w")
        rest -= piece


def _build(
    blobs: dict[str, bytes | bytearray | memoryview],
    variant: str,
    features: tuple[str, ...],
    module: bytes,
) -> BuildEntry:
    return BuildEntry(
        variant=variant,
        features=features,
        code=add(blobs, module, "wasm"),
        plans=tuple(add(blobs, b"image" + bytes([n]), "bin") for n in (16, 32)),
        facts={"registers": 15},
    )


def _plan(blobs: dict[str, bytes | bytearray | memoryview], n: int) -> PlanEntry:
    return PlanEntry(
        dims={"n": n},
        inputs=((1, n),),
        outputs=((1, n),),
        steps=(StepEntry(spec=0, kernel="double", node="Mul_0", flops=n, bytes=8 * n),),
        file=add(blobs, b"plan" + bytes([n]), "json"),
    )


def later(folder: Path) -> None:
    """What was written last has been there for long enough."""
    then = time.time() - 2 * STAYS_S
    os.utime(folder / RECORD, (then, then))

"""A tiny bundle for tests of the bundle, the server and the command line.

Input: nothing.  Output: `Contents` with every kind of file in it.  Its modules are no real Wasm: no
host can run it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.bundle import (
    Asset,
    Code,
    Contents,
    FileRef,
    Manifest,
    Memory,
    Placed,
    Plan,
    Step,
    TensorInfo,
    Weights,
    add,
)


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
        memory=Memory(
            bytes=65536,
            control=0,
            weights=1024,
            arena=4096,
            arena_bytes=8192,
            scratch=16384,
            scratch_bytes=1024,
        ),
        weights=Weights(bytes=weight_bytes),
        driver=add(blobs, b"\0asm driver", "wasm"),
        code=(
            _code(blobs, "x86", ("relaxed_simd",), b"\0asm relaxed"),
            _code(blobs, "x86-simd", (), b"\0asm plain"),
        ),
        slots=1,
        kernels=add(blobs, b"[]", "json"),
        plans=tuple(_plan(n) for n in (16, 32)),
        assets=(Asset(name="tokenizer.json", type="application/json", **fields(tokenizer)),),
    )
    return Contents(manifest, blobs, lambda: weights(weight_bytes))


def weights(size: int) -> Iterator[bytes]:
    """Uneven pieces, so that shard borders fall inside them."""
    rest = size
    while rest > 0:
        piece = min(rest, 700_001)
        yield bytes(i % 251 for i in range(min(piece, 1000))).ljust(piece, b"w")
        rest -= piece


def _code(
    blobs: dict[str, bytes | bytearray | memoryview],
    variant: str,
    features: tuple[str, ...],
    module: bytes,
) -> Code:
    return Code(
        variant=variant,
        features=features,
        registers=15,
        images=tuple(add(blobs, b"image" + bytes([n]), "bin") for n in (16, 32)),
        **fields(add(blobs, module, "wasm")),
    )


def _plan(n: int) -> Plan:
    return Plan(
        dims={"n": n},
        address=2048,
        inputs=(Placed(name="x", dtype="f32", shape=(1, n), address=4096, bytes=4 * n),),
        outputs=(Placed(name="y", dtype="f32", shape=(1, n), address=4608, bytes=4 * n),),
        arena_bytes=1024,
        steps=(Step(slot=0, spec=0, kernel="double", node="Mul_0", flops=n, bytes=8 * n),),
    )

"""What is narrower in files becomes f32 in place (web/engine/wasm.js), whatever follows it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from node import run

from tilewright.base.abi import align

Array = np.ndarray[Any, np.dtype[Any]]

SCRIPT = """
const { widener } = await import('TUNE/../engine/wasm.js');
const table = <table>, memory = <memory>, stored = Buffer.from(<stored>, 'base64');
const files = { bytes: async () => new TextEncoder().encode(JSON.stringify(table)) };
const weights = { bytes: stored.length, memory, tensors: {} };
const { start, arrived } = await widener({ weights }, files);
const region = new Uint8Array(memory);
for (let end = 0; end < stored.length;) {
  const piece = stored.subarray(end, end + 4096);
  region.set(piece, start + end);
  arrived(region, end += piece.length);
}
console.log(JSON.stringify(Buffer.from(region).toString('base64')));
"""


@dataclass
class Table:
    """Tensors in files, and in memory as they must be."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    stored: bytes = b""
    wanted: bytes = b""

    def add(self, value: Array, inside: Array, kind: str = "", **parts: int) -> int:
        """A tensor with this value, which files hold as `inside`."""
        dtype = {"float32": "f32", "int8": "i8", "uint8": "u8"}[value.dtype.name]
        entry = {
            "dtype": dtype, "shape": value.shape, "stored": kind, "scale": None, "zero": None,
            "offset": len(self.stored), "bytes": inside.nbytes,
        }  # fmt: skip
        self.entries.append(entry | parts)
        self.stored += inside.tobytes() + bytes(align(inside.nbytes) - inside.nbytes)
        self.wanted += value.tobytes() + bytes(align(value.nbytes) - value.nbytes)
        return len(self.entries) - 1

    def check(self) -> None:
        stored, memory = b64encode(self.stored).decode(), len(self.wanted)
        found = b64decode(run(SCRIPT, table=self.entries, memory=memory, stored=stored))
        assert self._numbers(found) == self._numbers(self.wanted)

    def _numbers(self, memory: bytes) -> list[bytes]:
        """The tensors' bytes; what is between them means nothing."""
        found, at = [], 0
        for entry in self.entries:
            size = int(np.prod(entry["shape"])) * (4 if entry["dtype"] == "f32" else 1)
            found.append(memory[at : at + size])
            at += align(size)
        return found


SIZES = [
    [(kind, n)]
    for kind in ("bf16", "i8")
    for n in (1, 10, 16, 17, 31, 32, 33, 40, 48, 64, 1000, 65544)
] + [
    [("bf16", 1002), ("", 40)],
    [("i8", 1002), ("", 40)],
    [("", 7), ("bf16", 48), ("", 1), ("bf16", 40), ("i8", 47), ("bf16", 33), ("i8", 33)],
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_no_number_is_overtaken(sizes: list[tuple[str, int]]) -> None:
    table = Table()
    half = np.full((1,), 0.5, np.float32)
    scale = table.add(half, half)
    for kind, n in sizes:
        value = 1 + np.arange(n, dtype=np.float32) % 60
        if kind == "i8":
            table.add(value, (2 * value).astype(np.int8), kind, scale=scale)
        else:
            inside = (value.view(np.uint32) >> 16).astype(np.uint16)
            table.add(value, inside if kind else value, kind)
    table.check()


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("scales", "zeros"),
    [
        ((6, 1, 1, 8), None),
        ((6, 1, 1, 8), (6, 1, 1, 8)),
        ((1, 5, 7, 1), (6, 1, 7, 1)),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
        ((6, 5, 7, 1), (1, 1, 1, 8)),
    ],
    ids=str,
)
def test_scales_and_zero_points_of_any_axes(
    kind: str, scales: Sequence[int], zeros: Sequence[int] | None
) -> None:
    source, shape = np.random.default_rng(0), (6, 5, 7, 8)
    info = np.iinfo(kind)
    whole, zero = (
        source.integers(info.min, info.max + 1, s).astype(kind) for s in (shape, zeros or (1,) * 4)
    )
    scale = source.random(scales).astype(np.float32)
    table = Table()
    parts = {"scale": table.add(scale, scale)}
    if zeros:
        parts["zero"] = table.add(zero, zero)
    else:
        zero[...] = 0
    value = (whole.astype(np.float32) - zero) * scale
    table.add(value, whole, kind.replace("uint", "u").replace("int", "i"), **parts)
    table.check()

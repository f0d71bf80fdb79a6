"""Lowering without placement: the naive base of the ablation computes the same, at each use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.benchkernel import compile_matmul
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets import wasm

X = np.random.default_rng(1).standard_normal((48, 32), np.float32)
PASSES = frozenset(name for name, _ in wasm.PASSES)


def made(folder: Path, enabled: frozenset[str]) -> tuple[int, bytes]:
    """Bytes of code, and of the product."""
    options = Options(variants=("x86",), without=wasm.ALL - enabled)
    compiled = compile_matmul(48, 32, 64, options)
    write(compiled.contents, folder)
    found = WasmtimeHost(folder, threads=1).run({"x": X})
    return compiled.manifest.targets["wasm"].builds[0].code.bytes, found.outputs["y"].tobytes()


@pytest.mark.parametrize("enabled", [frozenset(), *map(frozenset, ([p] for p in PASSES)), PASSES])
def test_naive_code_gives_the_same_bits(enabled: frozenset[str], tmp_path: Path) -> None:
    naive, ours = made(tmp_path / "a", enabled), made(tmp_path / "b", enabled | {"placement"})
    assert naive[1] == ours[1]
    assert naive[0] > ours[0]

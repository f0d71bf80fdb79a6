"""Lowering without placement: the naive base of the ablation computes the same, at each use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lab.subjects import compile_matmul, matmul_step
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.kernel.loops import Let, Stmt
from tilewright.targets import wasm
from tilewright.targets.simd.strategies import default_schedule, lower
from tilewright.targets.wasm import VARIANTS, emit_text
from tilewright.targets.wasm.inline_indices import inline_indices

X = np.random.default_rng(1).standard_normal((48, 32), np.float32)
PASSES = frozenset(name for name, _ in wasm.PASSES)
SETS = frozenset[str](), PASSES, wasm.ALL


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


def test_naive_code_keeps_no_index() -> None:
    """Each address is computed from loop variables, also where loops have named a part of it."""
    step = matmul_step(48, 32, 64)
    fn = lower(step.kernel, default_schedule(step.kernel, VARIANTS["x86"].machine))
    lets, left = (
        [s for s in every(f.body) if isinstance(s, Let)] for f in (fn, inline_indices(fn))
    )
    assert any(s.value.is_affine for s in lets)
    assert not any(s.value.is_affine for s in left)
    naive, passes, ours = (emit_text(fn, VARIANTS["x86"], on) for on in SETS)
    assert naive.count("i32.mul") > 10 * ours.count("i32.mul")
    assert passes.count("v128.load") == ours.count("v128.load"), (
        "addresses are equal where they were"
    )


def every(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, those in loops and branches included."""
    for s in stmts:
        yield s
        for inside in ("body", "then", "orelse"):
            yield from every(getattr(s, inside, ()))

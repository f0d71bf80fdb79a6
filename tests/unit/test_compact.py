"""Tensors that memory holds as f16 on WebAssembly, too: the numbers that kernels read, which
tensors these are, and how bundles and hosts place them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.gguf_files import ALL_TYPES, Tiny, write_tiny
from wasm_machine import run

from tilewright.base.dtypes import F32, I8
from tilewright.bundle import open_bundle, write
from tilewright.bundle.linear_memory import facts_of
from tilewright.bundle.weight_decoding import memory_of, tensors_of
from tilewright.compiler import Options, compile_model
from tilewright.frontend.gguf import GgufModel
from tilewright.frontend.language.weights import ModelTensor, WeightTable
from tilewright.kernel.expr import Load
from tilewright.kernel.index import Var, index
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import Buffer, Kernel
from tilewright.targets.simd.strategies import default_schedule, lower
from tilewright.targets.wasm import VARIANTS

BITS = np.arange(1 << 16, dtype=np.uint16)
FINITE = BITS.view(np.float16)[np.isfinite(BITS.view(np.float16))]


def copy(size: int) -> Kernel:
    axis = Var("a", size)
    buffers = (Buffer(F32, size), Buffer(F32, size, as_f16=True, compact=True))
    return Kernel("copy", (axis,), (), Load(1, index(axis), F32), index(axis), buffers)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 3, len(FINITE) - 1])
def test_every_finite_number_is_read_exactly(variant: str, size: int) -> None:
    kernel, given = copy(size), FINITE[-size:]
    fn = lower(kernel, default_schedule(kernel, VARIANTS[variant].machine))
    found = run(fn, [np.full(size, 7, "f4"), given], variant)
    np.testing.assert_array_equal(found.view("u4"), given.astype("f4").view("u4"))
    assert kernel_from_data(kernel_to_data(kernel)) == kernel


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 3, 1 << 16])
def test_every_number_is_stored_as_the_nearest(variant: str, size: int) -> None:
    """All f32 whose lowest bits are those of a tie, just above or below it; and beyond f16."""
    ties = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.random.default_rng(size).choice([0, 0x0FFF, 0x1000, 0x1001, 0x3000, 0xFFFF], 1 << 16)
    given = (ties | low.astype("u4")).view("f4")[-size:]
    given = np.where(np.isnan(given), np.float32(np.inf), given)
    if size < len(ties):
        given = np.linspace(-1e-7, 2 / 3, size, dtype="f4")
    axis = Var("a", size)
    buffers = (Buffer(F32, size, compact=True), Buffer(F32, size))
    kernel = Kernel("store", (axis,), (), Load(1, index(axis), F32), index(axis), buffers)
    fn = lower(kernel, default_schedule(kernel, VARIANTS[variant].machine))
    found = run(fn, [np.full(size, 7, "f2"), given], variant)
    wanted = np.clip(given, -65504, 65504).astype("f2")
    np.testing.assert_array_equal(found.view("u2"), wanted.view("u2"))


def matrix(scale: float) -> bool:
    """Whether the scales of a matrix, one of which is this, may be compact."""
    scales = np.ones((8, 2), "f4")
    scales[3, 1] = scale
    tensor = ModelTensor(
        "w", "Q8_0", (8, 64), I8, lambda: np.ones((8, 64), "i1"), group=32,
        scale=lambda: scales, halves=True,
    )  # fmt: skip
    node = WeightTable({"w": tensor}, str).matrix("w", (8, 64)).scale
    assert node is not None
    return bool(getattr(node.op, "compact", False))


def test_scales_that_are_not_finite_stay_f32() -> None:
    assert matrix(-0.25)
    assert not matrix(float("inf"))
    assert not matrix(float("nan"))


@pytest.mark.parametrize("tiny", [Tiny(type="Q4_1", tied=True), ALL_TYPES], ids=["alone", "mixed"])
def test_memory_is_that_of_the_files_but_for_what_is_widened(tiny: Tiny, tmp_path: Path) -> None:
    """Beside F16 and BF16 matrices, which are widened, and scales of f32."""
    model = GgufModel(write_tiny(tmp_path / "model.gguf", tiny))
    made = compile_model(model, Options(states=model.states, variants=("x86",)))
    write(made.contents, tmp_path / "bundle")
    bundle = open_bundle(tmp_path / "bundle")
    table, weights = bundle.tensors(), bundle.manifest.weights
    parts = b"".join(memory_of(bundle))
    assert len(parts) == (weights.memory or weights.bytes)
    assert {t.stored for t in table if t.compact} == {"f16"}
    assert (weights.memory == 0) == all(t.compact or not t.stored for t in table)
    memory = facts_of(bundle.manifest.section("wasm")).memory
    assert memory.weights + len(parts) <= memory.arena
    for tensor, entry, value in zip(made.program.tensors, table, tensors_of(bundle), strict=True):
        kind = np.float16 if entry.compact else value.dtype
        found = np.frombuffer(parts, kind, value.size, tensor.offset)
        np.testing.assert_array_equal(found.astype(value.dtype), value)
    for step, kernel in ((s, made.program.kernels[s.kernel]) for p in made.program.plans
                         for s in p.steps):  # fmt: skip
        values = [made.program.plans[0].values[a.value] for a in step.accesses]
        for value, buffer in zip(values, kernel.buffers, strict=True):
            assert buffer.compact == (value.kind == "weight" and bool(table[value.tensor].compact))

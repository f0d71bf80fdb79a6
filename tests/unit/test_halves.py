"""Weights that are halves: which may lie so, what sections say of them, how trials write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers import halves
from helpers.halves import DEPTH
from node import run
from onnx import helper

from tilewright.bundle import open_bundle, write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.frontend import load
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import key_of, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.relink import relink

OPTIONS = Options(targets=("wgsl", "wasm"))


def compiled(proto: onnx.ModelProto) -> Compiled:
    return compile_model(load(proto), OPTIONS)


def test_a_section_names_them_and_needs_half_the_memory() -> None:
    first = compiled(halves.model()).manifest.targets["wgsl"]
    assert first.facts["halves"] == list(range(len(halves.weights())))
    proto = halves.model()
    for tensor in proto.graph.initializer:  # numbers that f16 does not have
        value = onnx.numpy_helper.to_array(tensor).astype(np.float32) * np.float32(1 + 2**-20)
        tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    second = compiled(proto).manifest.targets["wgsl"]
    assert "halves" not in second.facts
    saved = second.facts["memory"]["bytes"] - first.facts["memory"]["bytes"]
    assert saved > 1.9 * sum(v.size for v in halves.weights().values())


def test_what_the_host_reads_is_f32() -> None:
    """An output that is a weight itself, so that nobody may read that weight as halves."""
    proto = halves.model()
    proto.graph.output.append(helper.make_tensor_value_info("bias_", 1, None))
    made = compiled(proto)
    halved = made.manifest.targets["wgsl"].facts["halves"]
    wide = set(range(len(made.program.tensors))) - set(halved)
    assert len(wide) == 1
    readers = [
        kernel.buffers[n].as_f16
        for plan in made.program.plans
        for step in plan.steps
        for n, access in enumerate(step.accesses)
        for kernel in [made.program.kernels[step.kernel]]
        if plan.values[access.value].kind == "weight" and plan.values[access.value].tensor in wide
    ]
    assert readers
    assert not any(readers)


def test_kernels_keep_the_mark_and_differ_by_it() -> None:
    kernels = [
        k for k in compiled(halves.model()).program.kernels if any(b.as_f16 for b in k.buffers)
    ]
    assert len(kernels) >= 4
    for kernel in kernels:
        assert kernel_from_data(kernel_to_data(kernel)) == kernel
        plain = replace(kernel, buffers=tuple(replace(b, as_f16=False) for b in kernel.buffers))
        assert key_of(plain) != key_of(kernel)
        assert all(len(b) == 4 for b in kernel_to_data(plain)["buffers"])


def test_weights_are_rounded_if_one_asks_for_it() -> None:
    """Matrices become f16; vectors, and what f16 has no number for, stay as they are."""
    proto = halves.model()
    large = np.full((DEPTH, 4), 1e5, np.float32)
    for tensor in list(proto.graph.initializer):
        wide = onnx.numpy_helper.to_array(tensor).astype(np.float32) * np.float32(1 + 2**-20)
        tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(large, "large"))
    proto.graph.node.append(helper.make_node("MatMul", ["x", "large"], ["more"]))
    proto.graph.output.append(helper.make_tensor_value_info("more", 1, None))
    made = compile_model(load(proto), replace(OPTIONS, halves=True))
    stored = {t.shape: t.stored for t in made.program.tensors}
    assert sorted(stored.values()) == ["", "", *["f16"] * 4]
    assert stored[(37,)] == ""
    assert all(t.stored == "" for t in compiled(proto).program.tensors)
    assert len(made.manifest.targets["wgsl"].facts["halves"]) == 4


SCRIPT = """
const { halvesOf } = await import('TUNE/trial/gpu_trial_memory.js');
console.log(JSON.stringify([...halvesOf(Float32Array.from(<numbers>))]));
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_trial_writes_the_nearest_half_towards_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    exact = every[np.isfinite(every)].astype(np.float32)
    chosen = rng.choice(exact, 301)
    between = (rng.standard_normal(300) * 10.0 ** rng.uniform(-9, 6, 300)).astype(np.float32)
    for numbers in (chosen, between):
        words = np.array(run(SCRIPT, numbers=numbers.tolist()), np.uint32)
        found = words.view(np.float16)[: numbers.size].astype(np.float32)
        assert (np.abs(found) <= np.abs(numbers)).all()
        size = np.abs(found).astype(np.float16)
        above = (size.view(np.uint16) + np.uint16(1)).view(np.float16).astype(np.float32)
        assert ((np.abs(numbers) < above) | (size == 65504)).all()
        if numbers is chosen:
            np.testing.assert_array_equal(found, numbers)


def test_a_relinked_bundle_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    write(compiled(halves.model()).contents, path)
    bundle, device = open_bundle(path), find("webgpu")
    kernels = kernels_of(bundle)
    spaces = {n: space_of(k, device) for n, k in enumerate(kernels)}
    winners = {n: s.schedules[s.order[0]] for n, s in spaces.items() if s.order}
    assert winners
    made = relink(bundle, device, winners)
    assert made.manifest.targets["wgsl"].facts == bundle.manifest.targets["wgsl"].facts

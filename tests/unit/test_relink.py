"""A relinked bundle computes the same with other schedules, and all else in it stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tilewright.base.abi import COUNT, HEADER, RECORD, SLOT
from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import UsageError
from tilewright.bundle import Bundle, open_bundle, section_files, write
from tilewright.bundle.linear_memory import facts_of
from tilewright.compiler import Options, compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets.device_classes import CLASSES, DeviceClass
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.strategies import schedule_from_json
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.relink import relink

MODELS = Path(__file__).parents[1] / "models"
MODEL = MODELS / "bert-tiny-eager-dynamo.onnx"
RELAXED, PLAIN = CLASSES["wasm-x86-relaxed-48k"], CLASSES["wasm-x86-simd"]
VARIANTS = ("x86", "arm", "x86-simd")


Winners = dict[int, Schedule]


def inputs(length: int) -> dict[str, np.ndarray]:
    ids = np.arange(length, dtype="i8").reshape(1, length) % 50
    return {"input_ids": ids, "attention_mask": np.ones((1, length), "i8")}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A model at two lengths: kernels of both share slots."""
    folder = tmp_path_factory.mktemp("bundle")
    options = Options(buckets={"n": (8, 16)}, variants=VARIANTS)
    write(compile_model(MODEL, options).contents, folder)
    return open_bundle(folder)


def winners(bundle: Bundle, device: DeviceClass, seed: int, share: float = 0.6) -> Winners:
    """Any candidates of some kernels."""
    rng = Random(seed)
    spaces = [space_of(kernel, device) for kernel in kernels_of(bundle)]
    return {n: rng.choice(s.schedules) for n, s in enumerate(spaces) if rng.random() < share}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("device", [RELAXED, PLAIN], ids=lambda d: d.id)
@pytest.mark.parametrize("seed", range(4))
def test_a_relinked_bundle_computes_the_same(
    bundle: Bundle, device: DeviceClass, seed: int, tmp_path: Path
) -> None:
    write(relink(bundle, device, winners(bundle, device, seed)), tmp_path)
    before = WasmtimeHost(bundle.folder, variant=device.variant)
    after = WasmtimeHost(tmp_path, variant=device.variant, threads=2)
    meant = ReferenceHost(tmp_path)
    for length in (5, 8, 16):
        got, want = after.run(inputs(length)), before.run(inputs(length))
        for name, value in want.outputs.items():
            np.testing.assert_allclose(got.outputs[name], value, rtol=1e-4, atol=1e-5)
            found = meant.run(inputs(length)).outputs[name]
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)


@pytest.mark.seldom(4)
@pytest.mark.parametrize(
    ("name", "buckets"),
    [("resnet-tiny-dynamo", {}), ("gru-tiny-dynamo", {}), ("gpt2-tiny-dynamo", {"n": (8,)})],
    ids=["resnet", "gru", "gpt2"],
)
def test_other_models_compute_the_same(name: str, buckets: dict, tmp_path: Path) -> None:
    """Convolutions and pooling; steps that repeat with other addresses; causal attention."""
    variants = {"x86": RELAXED, "x86-simd": PLAIN}
    options = Options(buckets=buckets, variants=tuple(variants))
    write(compile_model(MODELS / f"{name}.onnx", options).contents, tmp_path)
    bundle = open_bundle(tmp_path)
    numbers = np.random.default_rng(0)
    manifest = bundle.manifest
    given = {
        i.name: numbers.integers(0, 2, shape).astype(DTYPES[i.dtype].numpy)
        if i.dtype.startswith(("i", "b"))
        else numbers.standard_normal(shape).astype("f4")
        for i, shape in zip(manifest.inputs, manifest.plans[0].inputs, strict=True)
    }
    for seed, (variant, device) in enumerate(variants.items()):
        want = WasmtimeHost(tmp_path, variant=variant).run(given).outputs
        out = tmp_path / variant
        write(relink(bundle, device, winners(bundle, device, seed, share=1.0)), out)
        got = WasmtimeHost(out, variant=variant, threads=2).run(given).outputs
        for key, value in want.items():
            scale = float(np.abs(value).max(initial=1e-6))
            np.testing.assert_allclose(got[key], value, rtol=1e-4, atol=1e-4 * scale)


def test_equal_winners_give_equal_bytes_and_none_change_nothing(bundle: Bundle) -> None:
    chosen = winners(bundle, RELAXED, 7)
    one, two = relink(bundle, RELAXED, chosen), relink(bundle, RELAXED, dict(chosen))
    assert one.manifest == two.manifest
    assert one.blobs == two.blobs
    assert relink(bundle, RELAXED, {}).manifest == bundle.manifest
    usual = {n: s.schedules[0] for n, s in _spaces(bundle)}
    assert relink(bundle, RELAXED, usual).manifest == bundle.manifest
    assert one.manifest != bundle.manifest


def _spaces(bundle: Bundle) -> Iterator[tuple[int, Space]]:
    for n, kernel in enumerate(kernels_of(bundle)):
        yield n, space_of(kernel, RELAXED)


def test_other_variants_and_weights_stay(bundle: Bundle, tmp_path: Path) -> None:
    contents = relink(bundle, RELAXED, winners(bundle, RELAXED, 3))
    old, new = bundle.manifest, contents.manifest
    one, two = (m.section("wasm") for m in (old, new))
    assert [b for b in two.builds if b.variant != "x86"] == [
        b for b in one.builds if b.variant != "x86"
    ]
    assert new.weights == old.weights
    assert not {ref.file for ref in new.weights.shards} & set(contents.blobs)
    assert (two.programs["driver"], two.plans) == (one.programs["driver"], one.plans)
    assert (new.plans, new.kernels) == (old.plans, old.kernels)
    assert write(contents, tmp_path) == new
    np.testing.assert_array_equal(
        WasmtimeHost(tmp_path, variant="arm").run(inputs(8)).outputs["last_hidden_state"],
        WasmtimeHost(bundle.folder, variant="arm").run(inputs(8)).outputs["last_hidden_state"],
    )


def test_kernels_that_share_code_part_where_schedules_differ(bundle: Bundle) -> None:
    section = bundle.manifest.section("wasm")
    entries = section_files.unpack_slots(bundle.read(section.kernels))
    slots = [e.slot for e in entries]
    number = next(n for n, slot in enumerate(slots) if slots.count(slot) > 1)
    space = space_of(kernels_of(bundle)[number], RELAXED)
    chosen = space.schedules[space.order[0]]
    contents = relink(bundle, RELAXED, {number: chosen})
    made = contents.manifest.section("wasm")
    assert made.slots == section.slots + 1
    listed = section_files.unpack_slots(bytes(contents.blobs[made.kernels.file]))
    assert schedule_from_json(listed[number].builds["x86"]["schedule"]) == chosen
    assert listed[number].builds["arm"] == entries[number].builds["arm"]
    build = made.build("x86")
    assert build is not None
    for plan, ref in zip(bundle.manifest.plans, build.plans, strict=True):
        image = np.frombuffer(contents.blobs[ref.file], "<u4")
        called = image[(HEADER + SLOT) // 4 :: RECORD // 4][: image[COUNT // 4]]
        for step, slot in zip(plan.steps, called, strict=True):
            moved = step.spec == number
            assert slot == (section.slots if moved else slots[step.spec])


def test_a_relinked_bundle_can_be_relinked(bundle: Bundle, tmp_path: Path) -> None:
    """What won before stays, slot or no slot of its own."""
    first = winners(bundle, RELAXED, 11)
    write(relink(bundle, RELAXED, first), tmp_path / "one")
    one = open_bundle(tmp_path / "one")
    second = {n: s for n, s in winners(bundle, RELAXED, 12).items() if n not in first}
    write(relink(one, RELAXED, second), tmp_path / "two")
    two = open_bundle(tmp_path / "two")
    listed = section_files.unpack_slots(two.read(two.manifest.section("wasm").kernels))
    for number, schedule in {**first, **second}.items():
        assert schedule_from_json(listed[number].builds["x86"]["schedule"]) == schedule
    want = WasmtimeHost(bundle.folder, variant="x86").run(inputs(16)).outputs
    got = WasmtimeHost(two.folder, variant="x86").run(inputs(16)).outputs
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)


def test_scratch_areas_grow_with_what_winners_need(bundle: Bundle, tmp_path: Path) -> None:
    number = next(n for n, s in _spaces(bundle) if s.kind == "contract")
    large = ContractionSchedule(x0=4, y0=8, r0=4, x1=64, y1=1 << 12, stage=True)
    contents = relink(bundle, RELAXED, {number: large})
    old, new = (facts_of(m.section("wasm")) for m in (bundle.manifest, contents.manifest))
    assert new.memory.scratch_bytes >= old.memory.scratch_bytes
    write(contents, tmp_path)
    WasmtimeHost(tmp_path, variant="x86", threads=2).run(inputs(16))


def test_what_does_not_fit_is_a_typed_error(bundle: Bundle) -> None:
    with pytest.raises(UsageError, match="no kernel 999"):
        relink(bundle, RELAXED, {999: ContractionSchedule()})
    with pytest.raises(UsageError, match="arm-simd"):
        relink(bundle, CLASSES["wasm-arm-simd"], {})
    with pytest.raises(UsageError, match="webgpu-apple"):
        relink(bundle, CLASSES["webgpu-apple"], {})

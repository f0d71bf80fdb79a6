"""What gpu.kernels and cuda.kernels measure, without a GPU: bundles, check and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.cuda import kernels
from benchmarks.gpu import ablation, products
from benchmarks.gpu.ablation_models import wholes
from benchmarks.report import webgpu as report
from tilewright.bundle import open_bundle, write
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.matrix.strategies import MATRIX_GEMM

#: What an NVIDIA GPU has.
MATRIX = "chromium-experimental-subgroup-matrix"
NVIDIA = (
    "shader-f16", "subgroups", "subgroups-32", MATRIX, "packed_4x8_integer_dot_product",
    "shared-memory-32768", "shared-memory-49152",
    "subgroup-matrix-f16-f32-16x16x16", "subgroup-matrix-i8-i32-16x16x32",
)  # fmt: skip


class Wrong:
    """Takes the place of a host's run: all outputs are a little too large."""

    def __init__(self, run: Any) -> None:
        self.before = run

    def __call__(self, inputs: Any) -> Any:
        found = self.before(inputs)
        for array in found.outputs.values():
            array *= 1.001
        return found


CASES = {
    "product": (("a", "mk,kn->mn", (5, 40), (40, 24)), 3, 3),
    "batches": (("a", "bmk,bkn->bmn", (2, 5, 7), (2, 7, 3), False), 4, 4),
    "layers": (("a", "mk,kn->mn", (1, 40), (40, 24), True, 2), 7, 2),
}


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, times, steps = CASES[name]
    case = products.Case(*arguments)
    subject = case.subject(times, kernels.CUDA)
    write(subject.contents, tmp_path / "plan")
    (plan,) = open_bundle(tmp_path / "plan").manifest.plans
    assert len(plan.steps) == steps
    assert subject.flops == steps * case.flops
    monkeypatch.setattr(products, "RUN_MS", 1e-3)
    for warm in ("WARM_MS", "KEPT_MS"):
        monkeypatch.setattr(products, warm, 1e-3)
    ours = kernels.OnCuda(CpuDevice(), case, tmp_path / "one")
    assert ours.error < 1e-6
    row = products.measure(ours, None, case, 2)
    assert row["n"] == 2 * products.RUNS
    assert row["ms"] > 0
    monkeypatch.setattr(CudaHost, "run", Wrong(ours.host.run))
    with pytest.raises(SystemExit, match="the error is"):
        kernels.OnCuda(CpuDevice(), case, tmp_path / "two")


def test_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "RUN_MS", 1e-3)
    case = products.Attention("a", "", (5, 24), (7, 24), heads=3)
    assert case.flops == 2 * 2 * 3 * 5 * 7 * 8
    assert kernels.OnCuda(CpuDevice(), case, tmp_path).error < 1e-6


class Timed:
    """Takes the place of a browser and its model: candidate n takes so many milliseconds, the first
    one `bare` where features are withheld."""

    def __init__(self, times: Sequence[float], bare: float = 0.0) -> None:
        self.times, self.bare, self.withheld = times, bare, False

    def load(self, folder: Path, features: Sequence[str] | None = None) -> Timed:
        assert open_bundle(folder).manifest.plans[-1].dims == {"candidate": len(self.times) - 1}
        self.withheld = features is not None
        return self

    def time(
        self, runs: int, warmup: int, bucket: dict[str, int], *, repeat: int
    ) -> SimpleNamespace:
        ms = self.bare if self.withheld else self.times[bucket["candidate"]]
        return SimpleNamespace(milliseconds=[ms] * runs)

    def dispose(self) -> None:
        pass


BYTES = ("packed_4x8_integer_dot_product",)


def test_a_withheld_feature_leaves_the_best_that_does_not_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of bytes by a weight of 4 bits: by packed dot products, or in f32."""
    monkeypatch.setattr(ablation, "WARM_S", 0.0)
    case = replace(products.matmul("row", 1, 512, 512, bits=4), rounded=True)
    schedules = ablation.tried(ablation.step_of(case), CLASSES["webgpu-nvidia"], BYTES)
    assert all(set(schedule.features) <= set(BYTES) for schedule in schedules)
    assert not schedules[0].features  # and so gives way to the first by packed dots
    packed = [s for s in schedules if s.features]
    subject = ablation.Subject("row", ablation.step_of(case), [schedules[0], *packed[:2]], 2**19)
    readers = products.READERS  # of one copy of the rows, in each run
    times = [ms * readers for ms in (2.5, 2.0, 3.0)]
    row = ablation.measure(Timed(times, bare=8.0 * readers), subject, BYTES, tmp_path)
    assert (row["ms"], row["default_ms"], row["uses"]) == (2.0, 2.5, ["packed dot"])
    assert row["tflops"] == round(2**19 / 2.0 / 1e9, 3)
    assert row["without"] == {"packed dot": 8.0}
    assert ablation.better(subject.step.kernel, BYTES).tag == "rounded"
    rows = [{"gpu": "A", **row}, {"gpu": "B", **row, "case": "of another card"}]
    told = report.ablation({"machine": {"gpu": "A"}, "rows": rows})
    told = told.partition("\n\n")[0].splitlines()[-1]
    assert "another card" not in told
    assert "| 2,000.0 |" in told
    assert told.endswith("| 1.25× | packed dot | packed dot 4.00× |")


def test_without_packed_dots_products_of_bytes_have_no_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What engines run instead would say nothing of the feature alone."""
    monkeypatch.setattr(ablation, "WARM_S", 0.0)
    case = products.matmul("bytes", 64, 64, 64, bits=8)
    schedules = ablation.tried(ablation.step_of(case), CLASSES["webgpu"], BYTES)
    subject = ablation.Subject("bytes", ablation.step_of(case), schedules[:2], 1)
    row = ablation.measure(Timed([2.0, 8.0], bare=3.0), subject, BYTES, tmp_path)
    assert "packed dot" not in row["without"]
    assert row["inseparable"] == {"packed dot": ["tiles"]}


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_what_walks_in_bands_has_a_twin_that_does_not(bits: int) -> None:
    halves = "matrices" if bits == 16 else ""
    case = products.matmul("K", 2048, 2048, 2048, bits=bits, halves=halves)
    schedules = ablation.tried(ablation.step_of(case), CLASSES["webgpu-nvidia"], NVIDIA)
    banded = [s for s in schedules if s.to_json().get("band", 1) > 1]
    assert {s.tag for s in banded} >= ({"matrix"} if bits < 32 else {"group", "shuffle"})
    assert all(replace(s, band=1) in schedules for s in banded)
    assert len(set(schedules)) == len(schedules)


def ways(*uses: str) -> list[tuple[bool, ...]]:
    """By initials: f16, packed dot, subgroups, matrices, swizzle."""
    return [tuple(initial in each for initial in "fpsmz") for each in uses]


def test_what_needs_a_feature_is_withheld_from_both_sides() -> None:
    """Without f16 there are no matrices, so it is compared with the best that has none either."""
    kinds = ways("fsmz", "fsm", "fz", "f", "z", "", "s")
    found = ablation.worth([1.0, 1.5, 5.0, 5.5, 7.0, 8.0, 9.0], kinds)
    assert found.without == {
        "f16": 7.0, "subgroups": 5.0, "subgroup matrices": 5.0, "swizzle": 1.5
    }  # fmt: skip
    assert found.base == {
        "f16": 5.0, "subgroups": 5.0, "subgroup matrices": 1.0, "swizzle": 1.0
    }  # fmt: skip
    matrices = ["subgroup matrices"]
    assert found.along == {"f16": matrices, "subgroups": matrices}
    assert ablation.worth([1.0, 1.5, 2.0], ways("sm", "", "")).inseparable == {
        "subgroups": matrices
    }
    rows = [{"gpu": "A", "case": "K", "candidates": 7, "ms": 1.0, "default_ms": 1.0, "uses": []}]
    rows[0] |= vars(found) | {"inseparable": {"packed dot": ["tiles"]}}
    record = {"machine": {"gpu": "A"}, "rows": rows}
    told = report.ablation(record)
    lost = "f16 1.40×\\*, subgroups 1.00×\\*, subgroup matrices 5.00×, swizzle 1.50×"
    assert f"| {lost} |" in told
    assert "withheld from both sides" in told
    assert "K: packed dot (without it there are no tiles" in told


def test_later_rounds_run_what_may_be_the_best_of_its_kind() -> None:
    found = ablation.close([9.0, 1.0, 1.2, 1.3, 5.0], ways("f", "f", "f", "f", ""))
    assert list(found) == [1, 2, 4]


class Loaded:
    """Takes the place of a browser and a model: f16 saves 1 ms of 8, matrices with it 4 more, and
    subgroups alone serve nothing."""

    def load(self, folder: Path, features: Sequence[str]) -> Loaded:
        halves = "shader-f16" in features
        matrices = halves and {MATRIX, "subgroups"} <= set(features)
        self.ms = 8.0 - halves - 4 * matrices
        used = ["shader-f16"] * halves + [MATRIX, "subgroups"] * matrices
        self.info = {"variant": {"features": used}}
        return self

    def time(self, runs: int, warmup: int, bucket: Any = None, *, repeat: int) -> SimpleNamespace:
        return SimpleNamespace(milliseconds=[self.ms] * runs)

    def dispose(self) -> None:
        pass


def test_a_whole_model_is_loaded_without_each_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation, "WARM_S", 0.0)
    monkeypatch.setattr(ablation, "write", lambda contents, folder: None)
    whole = ablation.Whole("a model", lambda folder: SimpleNamespace(contents=None))
    row = ablation.measure_whole(Loaded(), whole, NVIDIA, tmp_path / "whole")
    assert (row["ms"], row["uses"]) == (3.0, ["f16", "subgroups", "subgroup matrices"])
    assert row["without"] == {"f16": 8.0, "subgroup matrices": 7.0}
    assert row["base"] == {"f16": 7.0, "subgroup matrices": 3.0}
    assert row["inseparable"] == {"subgroups": ["subgroup matrices"]}


def test_whole_models_of_a_language_model_have_inputs_for_their_rows() -> None:
    """And what the ablation builds in halves uses f16 and matrices, if the device has them."""
    models = {whole.name: whole for whole in wholes(small=True)}
    token = next(whole for name, whole in models.items() if name.endswith("a token"))
    assert token.inputs["input_ids"].shape == (1, 1)
    assert list(models)[:2] == ["RoBERTa-base", "RoBERTa-base, halves"]


def test_products_by_subgroups_are_timed_where_there_are_some(tmp_path: Path) -> None:
    """And withheld with them: then the best is one of the tiles."""
    case = products.matmul("K", 128, 128, 256)
    step, device = ablation.step_of(case), CLASSES["webgpu-nvidia"]
    features = ("subgroups", "subgroups-32")
    schedules = ablation.tried(step, device, features)
    ours = [n for n, s in enumerate(schedules) if s.tag == "shuffle"]
    banded = [n for n in ours if schedules[n].to_json()["band"] > 1]
    assert 0 < len(banded) <= ablation.SAME
    assert len(ours) <= 2 * ablation.SAME
    assert not any(s.tag == "shuffle" for s in ablation.tried(step, device, ("subgroups",)))
    straight = next(s for s in schedules if s.to_json()["band"] == 1)
    timed = [schedules[0], schedules[ours[0]], straight]
    subject = ablation.Subject("K", step, timed, case.flops)
    readers = products.READERS
    times = Timed([ms * readers for ms in (3.0, 2.0, 4.0)])
    row = ablation.measure(times, subject, features, tmp_path)
    assert (row["ms"], row["schedule"]["form"]) == (2.0, "shuffle")
    assert "subgroups" in row["uses"]
    assert row["without"]["subgroups"] == 3.0


def test_figures() -> None:
    case = products.matmul("x", 1, 1000, 500, layers=2)
    found = products.figures(case, [0.1, 0.2, 0.3, 0.2, 0.2])
    assert (found["ms"], found["n"]) == (0.2, 5)
    assert found["tflops"] == pytest.approx(2 * 1000 * 500 / 0.2 / 1e9, abs=1e-3)
    assert found["gb_per_s"] == pytest.approx(4 * 1000 * 500 / 0.2 / 1e6)


def test_products_of_bytes_start_with_the_tile_that_sweeps_found_best() -> None:
    """On an H100; halves have smaller ones (decision 48)."""
    kernel = ablation.step_of(products.matmul("bytes", 2048, 2048, 2048, bits=8)).kernel
    tiles = {(s.m, s.n): (s.x1, s.y1) for s in MATRIX_GEMM.defaults_with_features(kernel)[::-1]}
    assert tiles[16, 16] == (256, 128)

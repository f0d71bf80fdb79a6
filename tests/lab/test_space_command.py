"""`python -m lab space`: lists, counts, notes and errors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_call import LabCalled
from helpers.lengths import rows, saved

from lab.paper_spaces import PAPER, RELAXATIONS, naive
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.lite_space import lite

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "models" / "bert-tiny-eager-dynamo.onnx"
Capture = pytest.CaptureFixture[str]
SCHEDULE = {"form": "contraction", "x0": 3, "y0": 4, "x1": 6, "y1": 8}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write(compile_model(MODEL, Options(buckets={"n": (8,)}, variants=("x86",))).contents, folder)
    return folder


def test_the_space_of_a_matmul(capsys: Capture) -> None:
    asked = ("space", "matmul", "384x768x768", "--device", "wasm-x86-relaxed-32k")
    found = LabCalled(capsys, *asked, "--json").json
    assert (found["lite"], found["naive"]) == (24, 2_099_520)
    assert found["all"] == 1 + found["lite"] + found["extended"] == len(found["candidates"])
    first = found["candidates"][0]
    assert (first["number"], first["mark"]) == (0, "default")
    lite_rows = [c for c in found["candidates"] if c["mark"] == "lite"]
    assert all(48 <= c["reg_thread"] <= 60 and c["l1_block"] <= 32768 for c in lite_rows)
    text = LabCalled(
        capsys, "space", "matmul", "384x768x768", "--device", "wasm-x86-relaxed-32k"
    ).out
    assert "the lite space has 24" in text
    assert "2,099,520" in text


def test_kernels_that_end_at_run_time(capsys: Capture, tmp_path: Path) -> None:
    """Why they have no candidates is in the list, and in words where one is asked for."""
    options = Options(extents={"n": 64}, variants=("x86",))
    write(compile_model(saved(rows(), tmp_path), options).contents, tmp_path / "bundle")
    listed = LabCalled(capsys, "space", tmp_path / "bundle", "--json").json["kernels"]
    assert [(k["fixed"], k["all"]) for k in listed] == [("extents", 1)] * len(listed)
    assert "extents" in LabCalled(capsys, "space", tmp_path / "bundle").out
    one = LabCalled(capsys, "space", tmp_path / "bundle", "--spec", 0)
    assert "kernels that end at run time are not tuned" in one.out


def test_a_batched_product_on_a_gpu(capsys: Capture) -> None:
    called = LabCalled(
        capsys, "space", "batchmatmul", "12x384x384x64", "--device", "webgpu-nvidia-ampere",
        "--json",
    )  # fmt: skip
    assert called.json["shape"] == "12x384x384x64"
    assert called.json["all"] == called.json["lite"] + 1 == 53
    default, *others = called.json["candidates"]
    assert (default["number"], default["mark"]) == (0, "default")
    assert {c["mark"] for c in others} == {"lite"}
    assert all(c["thread_block"] <= 256 for c in others)


def test_an_objective_tells_what_serves_it(capsys: Capture) -> None:
    """All are listed, the least first; how many need less of it than the default is a number."""
    given = ("space", "matmul", "128x384x384", "--device", "wasm-x86-relaxed-32k")
    plain, traffic = (
        LabCalled(capsys, *given, "--json", *more).json for more in ((), ("--objective", "traffic"))
    )
    assert plain["useful"] == plain["all"] - 1
    assert 0 < traffic["useful"] < traffic["all"] - 1
    assert traffic["checksum"] == plain["checksum"]
    numbers = [[c["number"] for c in found["candidates"]] for found in (plain, traffic)]
    assert numbers[0] != numbers[1]
    assert sorted(numbers[0]) == sorted(numbers[1])
    text = LabCalled(capsys, *given, "--objective", "traffic").out
    assert f"{traffic['useful']} of them need less traffic than the default" in " ".join(
        text.split()
    )


def test_relaxation_moves_the_count(capsys: Capture) -> None:
    counts = [
        LabCalled(
            capsys, "space", "matmul", "384x768x768", "--device", "wasm-x86-relaxed-32k",
            "--relaxation", ratio, "--json",
        ).json["lite"]
        for ratio in (1.0, 1.1, 1.25)
    ]  # fmt: skip
    assert counts == [0, 16, 24]


def test_a_bundle_and_one_of_its_kernels(capsys: Capture, bundle: Path) -> None:
    rows = LabCalled(capsys, "space", bundle, "--json").json["kernels"]
    assert {r["kind"] for r in rows} >= {"contract", "rowwise", "map"}
    one = LabCalled(capsys, "space", bundle, "--spec", 1, "--json").json
    assert one["checksum"] == rows[1]["checksum"]
    gpu = LabCalled(capsys, "space", bundle, "--device", "webgpu-apple", "--json").json
    assert [r["kind"] for r in gpu["kernels"]] == [r["kind"] for r in rows]
    tuned = {r["kind"] for r in gpu["kernels"] if r["all"] > 1}
    assert tuned == {"attention", "contract", "rowwise"}


def test_an_unknown_class_is_an_error_or_a_note(capsys: Capture) -> None:
    asked = ("space", "matmul", "8x8x8", "--device", "wasm-x86-relaxed-96k", "--json")
    failed = LabCalled(capsys, *asked)
    assert failed.code == 2
    assert "wasm-x86-relaxed" in failed.json["error"]["facts"]["known"]
    found = LabCalled(capsys, *asked, "--fallback").json
    assert found["device"] == "wasm-x86-relaxed"
    assert "wasm-x86-relaxed-96k" in found["note"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("matmul",),
        ("matmul", "1x2"),
        ("batchmatmul", "1x2x3"),
        ("matmul", "8x8x8", "--objective", "beauty"),
        ("matmul", "8x8x8", "--relaxation", "0.5"),
        ("nothing-here",),
    ],
    ids=" ".join,
)
def test_usage_errors(capsys: Capture, arguments: tuple[str, ...]) -> None:
    assert LabCalled(capsys, "space", *arguments).code == 2


@pytest.mark.parametrize(
    ("what", "sizes"),
    [
        ("matmul", "1000000000000000003x8x8"),
        ("matmul", "8x1000000000000000003x8"),
        ("matmul", "8x8x1073741825"),
        ("matmul", f"8x{'9' * 5000}x8"),
        ("matmul", "32768x32768x32768"),
        ("batchmatmul", "1000000007x8x8x8"),
    ],
    ids=lambda text: text[:30],
)
def test_sizes_that_no_bundle_has(capsys: Capture, what: str, sizes: str) -> None:
    called = LabCalled(capsys, "space", what, sizes, "--json")
    assert (called.code, called.json["error"]["code"]) == (7, "memory-limit")


def test_the_largest_sizes_have_a_space(capsys: Capture) -> None:
    """A prime one, too, for which all of its divisors are looked for."""
    for sizes in ("1x1x536870909", "0000000000008x8x8", "18917x18917x18917"):
        called = LabCalled(capsys, "space", "matmul", sizes, "--json")
        assert called.code == 0, called.out


def test_classes(capsys: Capture) -> None:
    assert [c["id"] for c in LabCalled(capsys, "space", "--classes", "--json").json] == list(
        CLASSES
    )


def test_the_page_about_spaces_tells_the_counts_of_this_code() -> None:
    page = (ROOT / "docs" / "paper-spaces.md").read_text()
    rows = re.findall(r"^\| ((?:wasm|webgpu)-[^ ]+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) >= 10
    for id, cells in rows:
        core = CLASSES[id].core
        counts = [len(lite(PAPER["K0"], core, ratio)) for ratio in RELAXATIONS]
        counts.append(len(lite(PAPER["K2"], core)))
        told = [c.strip("* ") for c in cells.split("|")]
        if core.kind == "simd":
            # 1 / 1.25 of an L1 that is 1.25 times as large: heuristic 3 as in the paper
            counts.append(len(lite(PAPER["K0"], replace(core, l1=core.l1 * 5 // 4))))
        else:
            assert told.pop() == "–"
        assert [int(c) for c in told] == counts, id


def test_the_stored_counts_are_of_this_code() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "lab.space.counts.json").read_text())
    assert {r["device"] for r in rows} == set(CLASSES)
    for row in rows[:: len(rows) // 20]:
        matrix, device = PAPER[row["kernel"]], CLASSES[row["device"]]
        assert row["naive"] == naive(matrix, device.core.kind)
        assert row["1.25"] == len(lite(matrix, device.core))


@pytest.mark.nightly
def test_the_page_about_spaces_tells_all_readings(capsys: Capture) -> None:
    page = (ROOT / "docs" / "paper-spaces.md").read_text()
    told = {
        tuple(cell.strip() for cell in row.split("|"))
        for row in re.findall(r"^\| ((?:bytes|elements) \|.*) \|$", page, re.MULTILINE)
    }
    found = LabCalled(capsys, "space", "--readings", "--json").json
    stored = ROOT / "benchmarks" / "results" / "lab.space.readings.json"
    assert json.loads(stored.read_text()) == found
    shown = [r for r in found if r["device"] == "webgpu-nvidia-ampere"]
    assert told == {
        tuple(str(r[c]) for c in ("unit", "columns", "blocks", "kernel", "block_tiles"))
        + tuple(str(r[str(ratio)]) for ratio in RELAXATIONS)
        for r in shown
    }
    assert len(told) == 16

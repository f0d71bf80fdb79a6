"""`tilewright space` and `relink`: lists, counts, notes and errors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_call import Called
from helpers.lengths import rows, saved

from tilewright.bundle import open_bundle, write
from tilewright.cli.space import PAPER, RELAXATIONS
from tilewright.compiler import Options, compile_model
from tilewright.targets.classes import CLASSES
from tilewright.targets.lite import lite, naive

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
    called = Called(
        capsys, "space", "matmul", "384x768x768", "--device", "wasm-x86-relaxed-32k", "--json"
    )
    found = called.json
    assert (found["lite"], found["naive"]) == (24, 2_099_520)
    assert found["all"] == 1 + found["lite"] + found["extended"] == len(found["candidates"])
    first = found["candidates"][0]
    assert (first["number"], first["mark"]) == (0, "default")
    lite_rows = [c for c in found["candidates"] if c["mark"] == "lite"]
    assert all(48 <= c["reg_thread"] <= 60 and c["l1_block"] <= 32768 for c in lite_rows)
    text = Called(capsys, "space", "matmul", "384x768x768", "--device", "wasm-x86-relaxed-32k").out
    assert "the lite space has 24" in text
    assert "2,099,520" in text


def test_kernels_that_end_at_run_time(capsys: Capture, tmp_path: Path) -> None:
    """Why they have no candidates is in the list, and in words where one is asked for."""
    options = Options(extents={"n": 64}, variants=("x86",))
    write(compile_model(saved(rows(), tmp_path), options).contents, tmp_path / "bundle")
    listed = Called(capsys, "space", tmp_path / "bundle", "--json").json["kernels"]
    assert [(k["fixed"], k["all"]) for k in listed] == [("extents", 1)] * len(listed)
    assert "extents" in Called(capsys, "space", tmp_path / "bundle").out
    one = Called(capsys, "space", tmp_path / "bundle", "--spec", 0)
    assert "kernels that end at run time are not tuned" in one.out


def test_a_batched_product_on_a_gpu(capsys: Capture) -> None:
    called = Called(
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
        Called(capsys, *given, "--json", *more).json for more in ((), ("--objective", "traffic"))
    )
    assert plain["useful"] == plain["all"] - 1
    assert 0 < traffic["useful"] < traffic["all"] - 1
    assert traffic["checksum"] == plain["checksum"]
    numbers = [[c["number"] for c in found["candidates"]] for found in (plain, traffic)]
    assert numbers[0] != numbers[1]
    assert sorted(numbers[0]) == sorted(numbers[1])
    text = Called(capsys, *given, "--objective", "traffic").out
    assert f"{traffic['useful']} of them need less traffic than the default" in " ".join(
        text.split()
    )


def test_relaxation_moves_the_count(capsys: Capture) -> None:
    counts = [
        Called(
            capsys, "space", "matmul", "384x768x768", "--device", "wasm-x86-relaxed-32k",
            "--relaxation", ratio, "--json",
        ).json["lite"]
        for ratio in (1.0, 1.1, 1.25)
    ]  # fmt: skip
    assert counts == [0, 16, 24]


def test_a_bundle_and_one_of_its_kernels(capsys: Capture, bundle: Path) -> None:
    rows = Called(capsys, "space", bundle, "--json").json["kernels"]
    assert {r["kind"] for r in rows} >= {"contract", "rowwise", "map"}
    one = Called(capsys, "space", bundle, "--spec", 1, "--json").json
    assert one["checksum"] == rows[1]["checksum"]
    gpu = Called(capsys, "space", bundle, "--device", "webgpu-apple", "--json").json
    assert [r["kind"] for r in gpu["kernels"]] == [r["kind"] for r in rows]
    tuned = {r["kind"] for r in gpu["kernels"] if r["all"] > 1}
    assert tuned == {"attention", "contract", "rowwise"}


def test_an_unknown_class_is_an_error_or_a_note(capsys: Capture) -> None:
    asked = ("space", "matmul", "8x8x8", "--device", "wasm-x86-relaxed-96k", "--json")
    failed = Called(capsys, *asked)
    assert failed.code == 2
    assert "wasm-x86-relaxed" in failed.json["error"]["facts"]["known"]
    found = Called(capsys, *asked, "--fallback").json
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
    assert Called(capsys, "space", *arguments).code == 2


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
    called = Called(capsys, "space", what, sizes, "--json")
    assert (called.code, called.json["error"]["code"]) == (7, "memory-limit")


def test_the_largest_sizes_have_a_space(capsys: Capture) -> None:
    """A prime one, too, for which all of its divisors are looked for."""
    for sizes in ("1x1x536870909", "0000000000008x8x8", "18917x18917x18917"):
        called = Called(capsys, "space", "matmul", sizes, "--json")
        assert called.code == 0, called.out


def test_classes(capsys: Capture) -> None:
    assert [c["id"] for c in Called(capsys, "space", "--classes", "--json").json] == list(CLASSES)


def test_the_page_about_spaces_tells_the_counts_of_this_code() -> None:
    page = (ROOT / "docs" / "spaces.md").read_text()
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
    rows = json.loads((ROOT / "benchmarks" / "results" / "spaces.json").read_text())
    assert {r["device"] for r in rows} == set(CLASSES)
    for row in rows[:: len(rows) // 20]:
        matrix, device = PAPER[row["kernel"]], CLASSES[row["device"]]
        assert row["naive"] == naive(matrix, device.core.kind)
        assert row["1.25"] == len(lite(matrix, device.core))


@pytest.mark.nightly
def test_the_page_about_spaces_tells_all_readings(capsys: Capture) -> None:
    page = (ROOT / "docs" / "spaces.md").read_text()
    told = {
        tuple(cell.strip() for cell in row.split("|"))
        for row in re.findall(r"^\| ((?:bytes|elements) \|.*) \|$", page, re.MULTILINE)
    }
    found = Called(capsys, "space", "--readings", "--json").json
    stored = ROOT / "benchmarks" / "results" / "readings.json"
    assert json.loads(stored.read_text()) == found
    shown = [r for r in found if r["device"] == "webgpu-nvidia-ampere"]
    assert told == {
        tuple(str(r[c]) for c in ("unit", "columns", "blocks", "kernel", "block_tiles"))
        + tuple(str(r[str(ratio)]) for ratio in RELAXATIONS)
        for r in shown
    }
    assert len(told) == 16


def test_relink(capsys: Capture, bundle: Path, tmp_path: Path) -> None:
    rows = Called(capsys, "space", bundle, "--json").json["kernels"]
    spec = next(r["spec"] for r in rows if r["kind"] == "contract")
    listed = Called(capsys, "space", bundle, "--spec", spec, "--json").json["candidates"]
    winners, of = tmp_path / "winners.json", ("--device", "wasm-x86-relaxed")
    for given in (listed[1]["number"], SCHEDULE):
        winners.write_text(json.dumps({str(spec): given}))
        out = tmp_path / "out"
        called = Called(capsys, "relink", bundle, "--winners", winners, "-o", out, "--json", *of)
        assert called.code == 0
        assert called.json["variant"] == "x86"
        assert open_bundle(out).manifest.targets != open_bundle(bundle).manifest.targets
    for text in (
        "{",
        "[]",
        '{"1": 9999}',
        '{"1": -1}',
        '{"999": 1}',
        '{"1": {"form": "contraction", "width": 3}}',
        '{"1": {"x0": 3}}',
        '{"a": 1}',
    ):
        winners.write_text(text)
        assert Called(capsys, "relink", bundle, "--winners", winners, "-o", out, *of).code == 5
    winners.write_text(json.dumps({str(spec): SCHEDULE | {"x0": 0}}))
    assert Called(capsys, "relink", bundle, "--winners", winners, "-o", out, *of).code == 2


def test_relink_asks_for_the_class_that_was_measured(
    capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    winners, out = tmp_path / "winners.json", tmp_path / "out"
    rows = Called(capsys, "space", bundle, "--json").json["kernels"]
    spec = next(r["spec"] for r in rows if r["kind"] == "contract")
    saved = {"class": "wasm-x86-relaxed-48k", "schedules": {str(spec): SCHEDULE}}
    winners.write_text(json.dumps(saved))

    def relink(*more: str) -> Called:
        return Called(capsys, "relink", bundle, "--winners", winners, "-o", out, "--json", *more)

    other = relink("--device", "wasm-x86-relaxed-32k")
    assert other.code == 2
    assert "wasm-x86-relaxed-48k" in other.json["error"]["message"]
    assert relink().json["device"] == "wasm-x86-relaxed-48k"
    winners.write_text(json.dumps({"0": 1}))
    assert relink().code == 2

"""`tilewright relink`: a bundle with other schedules, and files that name none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_call import Called, LabCalled

from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "models" / "bert-tiny-eager-dynamo.onnx"
Capture = pytest.CaptureFixture[str]
SCHEDULE = {"form": "contraction", "x0": 3, "y0": 4, "x1": 6, "y1": 8}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write(compile_model(MODEL, Options(buckets={"n": (8,)}, variants=("x86",))).contents, folder)
    return folder


def test_relink(capsys: Capture, bundle: Path, tmp_path: Path) -> None:
    rows = LabCalled(capsys, "space", bundle, "--json").json["kernels"]
    spec = next(r["spec"] for r in rows if r["kind"] == "contract")
    listed = LabCalled(capsys, "space", bundle, "--spec", spec, "--json").json["candidates"]
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
    rows = LabCalled(capsys, "space", bundle, "--json").json["kernels"]
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

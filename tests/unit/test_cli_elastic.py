"""`tilewright elastic`: the file, the report, and errors with their codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from cli_call import Called

from tilewright.elastic.transform import cuda_source
from tilewright.elastic.transform.eligibility import LAUNCHES

GOOD = "// Müller\n__global__ void good(int *p) { p[blockIdx.x] = 1; }\n"
BAD = "__global__ void bad(int *p) {\n  good<<<1, 1>>>(p);\n}\n"
Capture = pytest.CaptureFixture[str]


def test_a_source_with_both(capsys: Capture, tmp_path: Path) -> None:
    given, out = tmp_path / "k.cu", tmp_path / "out.cu"
    given.write_bytes((GOOD + BAD).encode("latin-1"))  # such files exist
    found = Called(capsys, "elastic", given, "-o", out, "--json").json["kernels"]
    assert [(k["kernel"], k["elastic"]) for k in found] == [("good", True), ("bad", False)]
    assert found[0]["forms"] == ["good_elastic", "good_slice"]
    assert found[1]["reasons"] == [{"file": "k.cu", "line": 4, "why": LAUNCHES}]
    assert "Müller".encode("latin-1") in out.read_bytes()
    told = Called(capsys, "elastic", given, "-o", out).out
    assert f"k.cu:4: {LAUNCHES.split(',')[0]}" in told


def test_what_it_does_not_do(capsys: Capture, tmp_path: Path) -> None:
    given, out = tmp_path / "k.cu", tmp_path / "out.cu"
    given.write_text(BAD)
    called = Called(capsys, "elastic", given, "-o", out, "--json")
    assert (called.code, called.json["error"]["code"]) == (4, "not-elastic")
    assert called.json["error"]["facts"] == {"file": "k.cu", "line": 2, "kernels": 1}
    assert not out.exists()
    given.write_text(GOOD)
    assert Called(capsys, "elastic", given, "-o", out).code == 0
    again = Called(capsys, "elastic", out, "-o", tmp_path / "more.cu")
    assert (again.code, "already" in again.err) == (2, True)
    own = Called(capsys, "elastic", given, "-o", given)
    assert (own.code, "--force" in own.err) == (2, True)
    assert Called(capsys, "elastic", tmp_path / "none.cu", "-o", out).code == 2


def test_threads_of_a_block(capsys: Capture, tmp_path: Path) -> None:
    given, out = tmp_path / "k.cu", tmp_path / "out.cu"
    given.write_text(GOOD)
    assert Called(capsys, "elastic", given, "-o", out, "--threads", "good=64").code == 0
    assert "__launch_bounds__(64) good_elastic" in out.read_text()
    for wrong in (["good"], ["good="], ["=64"], ["good=0"], ["other=64"], ["good=64", "good=32"]):
        more = [part for one in wrong for part in ("--threads", one)]
        called = Called(capsys, "elastic", given, "-o", tmp_path / "no.cu", *more)
        assert called.code == 2, wrong
    assert not (tmp_path / "no.cu").exists()


def test_without_the_parser(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_source._parser.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter_cuda", None)
    (tmp_path / "k.cu").write_text(GOOD)
    called = Called(capsys, "elastic", tmp_path / "k.cu", "-o", tmp_path / "out.cu")
    assert (called.code, "tilewright[elastic]" in called.err) == (2, True)


def test_what_is_no_source(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "out.cu"
    os.mkfifo(tmp_path / "pipe.cu")
    (tmp_path / "loop.cu").symlink_to("loop.cu")
    (tmp_path / "zero.cu").write_bytes(b"\0" + GOOD.encode())
    (tmp_path / "large.cu").write_text(GOOD + " " * (1 << 20))
    (tmp_path / "folder.cu").mkdir()
    for name in ("pipe", "loop", "zero", "large", "folder"):
        called = Called(capsys, "elastic", tmp_path / f"{name}.cu", "-o", out)
        assert (called.code, "Traceback" in called.err) == (2, False), name
    (tmp_path / "deep.cu").write_text(GOOD.replace("= 1", "= " + "- " * 2000 + "1"))
    (tmp_path / "brackets.cu").write_text(GOOD.replace("= 1", "= " + "(" * 9000 + "1" + ")" * 9000))
    for name in ("deep", "brackets"):
        assert Called(capsys, "elastic", tmp_path / f"{name}.cu", "-o", out).code == 4
    assert not out.exists()

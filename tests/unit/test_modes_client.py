"""Tuning without a server: the compiler's source and Pyodide, for a page that compiles by itself.

Input: a small bundle.  Output: what pages get.  No browser runs here: tests/browser/test_modes.py.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cli_call import Called
from helpers.waiting import PATIENCE
from modes_factory import NARROW, files_below, given, read_json, small
from starlette.testclient import TestClient
from test_cli_models import save_model

from tilewright.base.compiler_digest import ROOT, compiler_digest
from tilewright.base.errors import CompilerBug, HostError
from tilewright.bundle import Bundle
from tilewright.bundle.owned_files import RECORD
from tilewright.kernel.spec import Kernel
from tilewright.server import create_app
from tilewright.server.pyodide import FILES, core
from tilewright.server.static import write_compiler, write_pages
from tilewright.targets.device_classes import find
from tilewright.targets.schedule import Schedule
from tilewright.tuning import page_compiler, source_zip
from tilewright.tuning.candidate_folder import write_candidates
from tilewright.tuning.candidates import Built, build, space_of
from tilewright.tuning.catalogue import kernels_of


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return small(tmp_path / "bundle")


def test_source_is_what_a_page_needs_and_no_more() -> None:
    names = zipfile.ZipFile(io.BytesIO(source_zip.source_zip())).namelist()
    assert {"tilewright/tuning/page_compiler.py", "tilewright/targets/wasm/choices.py"} <= set(
        names
    )
    assert {name.split("/")[1] for name in names} <= {
        "__init__.py", "base", "compiler-digest.txt", "kernel", "plan", "targets", "tuning",
    }  # fmt: skip
    assert not {"tilewright/base/numpy_scalars.py", "tilewright/tuning/candidate_folder.py"} & set(
        names
    )
    assert names == sorted(names)


def test_the_digest_is_of_all_that_makes_kernels(tmp_path: Path) -> None:
    """The version stays while the source changes: keys of caches and of the store tell."""
    root = tmp_path / "tilewright"
    for name in ("base", "kernel", "plan", "targets", "server"):
        shutil.copytree(ROOT / name, root / name)
    compiler_digest.cache_clear()
    same = compiler_digest(root)
    assert same == compiler_digest()
    (root / "server" / "app.py").write_text("other")
    compiler_digest.cache_clear()
    assert compiler_digest(root) == same
    with (root / "targets" / "simd" / "strategies.py").open("a") as file:
        file.write("\n")
    compiler_digest.cache_clear()
    assert compiler_digest(root) != same


def test_a_page_has_the_digest_of_the_whole_compiler(tmp_path: Path) -> None:
    zipfile.ZipFile(io.BytesIO(source_zip.source_zip())).extractall(tmp_path)
    assert compiler_digest(tmp_path / "tilewright") == compiler_digest()


def test_source_has_the_same_bytes_again() -> None:
    again = source_zip.source_zip.__wrapped__
    assert again((source_zip.ENTRY,)) == source_zip.source_zip()


def test_source_refuses_other_packages() -> None:
    with pytest.raises(CompilerBug, match="numpy"):
        source_zip.source_zip(("tilewright.base.numpy_scalars",))


def test_the_page_leaves_out_what_cannot_be_made(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only that: it is told, and the next one comes."""

    def built(kernel: Kernel, schedule: Schedule, *target: str) -> Built:
        if schedule == space.schedules[3]:
            raise CompilerBug("this one cannot be made")
        return build(kernel, schedule, *target)

    space = space_of(kernels_of(bundle)[0], find(NARROW))
    monkeypatch.setattr("tilewright.tuning.page_compiler.build", built)
    page_compiler.answer("open", json.dumps(given(bundle, specs=[0])))
    assert page_compiler.answer("make", 0, 3) == ["", "null"]
    assert "A candidate is left out: " in caplog.text
    assert "this one cannot be made" in caplog.text
    error, header, module = page_compiler.answer("make", 0, 4)
    assert not error
    assert json.loads(header)["digest"] == hashlib.sha256(module).hexdigest()  # type: ignore[arg-type]


def test_source_alone_makes_the_same_candidates(bundle: Bundle, tmp_path: Path) -> None:
    """From the zip, in a Python that has nothing else installed."""
    unpacked = tmp_path / "source"
    zipfile.ZipFile(io.BytesIO(source_zip.source_zip())).extractall(unpacked)
    code = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
from tilewright.tuning import page_compiler
error, offers = page_compiler.answer("open", sys.stdin.read())
assert not error, error
made = []
for candidate in [0, *json.loads(offers)[0]["order"]]:
    error, header, module = page_compiler.answer("make", 0, candidate)
    assert json.loads(header)["digest"] == hashlib.sha256(module).hexdigest()
    made.append(json.loads(header))
error, = page_compiler.answer("open", json.dumps({"device": "nothing"}))
print(json.dumps({"offers": json.loads(offers), "made": made, "error": json.loads(error)}))
"""
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(unpacked)],
        input=json.dumps(given(bundle, specs=[0])), capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    write_candidates(bundle, [find(NARROW)])
    folder = bundle.folder / "tuning"
    index = read_json(folder / "index.json")
    (listed,) = read_json(folder / index["spaces"][NARROW]["file"])["kernels"]
    made = {header["candidate"]: header for header in found["made"]}
    assert made.keys() == set(range(listed["count"]))
    for number, candidate in enumerate(listed["candidates"]):
        assert candidate.items() <= made[number].items()
    (offer,) = found["offers"]
    assert offer.items() <= listed.items()
    assert found["error"]["code"] == "usage"
    assert found["error"]["hint"]


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    """A folder that looks like Pyodide's."""
    folder = tmp_path / "node_modules" / "pyodide"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(name)
    return folder


def test_core_is_found_as_node_finds_it(pyodide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = pyodide.parents[1] / "some" / "where"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert core() == pyodide


def test_core_that_is_none(pyodide: Path) -> None:
    assert core(pyodide) == pyodide
    (pyodide / "pyodide.asm.wasm").unlink()
    with pytest.raises(HostError, match=r"lacks pyodide\.asm\.wasm") as caught:
        core(pyodide)
    assert "npm install" in caught.value.hint


def test_server_gives_the_compiler(bundle: Bundle, pyodide: Path) -> None:
    page = TestClient(create_app({"b": bundle.folder}, pyodide=pyodide))
    answer = page.get("/compiler/source.zip")
    assert answer.content == source_zip.source_zip()
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
    assert page.get("/compiler/pyodide.asm.wasm").headers["content-type"] == "application/wasm"
    assert page.get("/compiler/nothing").status_code == 404
    assert page.get("/tune/sources/folder.js").status_code == 200
    without = TestClient(create_app({"b": bundle.folder}))
    assert without.get("/compiler/source.zip").status_code == 404


def test_pages_and_compiler_as_files(tmp_path: Path, pyodide: Path) -> None:
    into = tmp_path / "site"
    size = write_pages(into) + write_compiler(into, pyodide)
    found = files_below(into)
    assert size == sum(map(len, found.values())) - len(found[RECORD])
    assert {
        "index.html",
        "sw.js",
        "static/static.js",
        "engine/engine.js",
        "tune/sources/folder.js",
        "tune/sources/pyodide.js",
    } <= set(found)
    assert found["compiler/source.zip"] == source_zip.source_zip()
    assert found["compiler/pyodide.mjs"] == b"pyodide.mjs"


@pytest.mark.seldom(4)
def test_build_static(tmp_path: Path, capsys: pytest.CaptureFixture[str], pyodide: Path) -> None:
    model = save_model(tmp_path / "model.onnx")
    options = [
        "--buckets",
        "n=4",
        "--static",
        "--classes",
        NARROW,
        "--client",
        "--pyodide",
        pyodide,
        "--json",
    ]
    called = Called(capsys, "build", model, "-o", tmp_path / "b", *options)
    assert called.code == 0, called.err
    data = called.json
    assert (data["classes"], data["objective"]) == ([NARROW], "latency")
    assert data["candidates"] >= data["candidate_modules"] > 0
    folder = tmp_path / "b"
    assert data["tuning_bytes"] == sum(map(len, files_below(folder / "tuning").values()))
    assert data["compiler_bytes"] == sum(map(len, files_below(folder / "compiler").values()))
    assert (folder / "index.html").is_file()
    assert data["left_out"] == []

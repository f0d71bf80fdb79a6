"""The wheel: pure Python, with the browser engine, minified, pages and licences inside.

Input: the checkout.  Output: a wheel in a temporary folder, looked at; nothing is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from helpers.delivered import need_bundler

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that `uv build` makes."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [uv, "build", "--wheel", "--quiet", "--out-dir", str(folder)], cwd=ROOT, check=True
    )
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def names(wheel: zipfile.ZipFile) -> set[str]:
    assert len(wheel.namelist()) == len(set(wheel.namelist()))
    return set(wheel.namelist())


def test_every_web_file_is_inside(names: set[str]) -> None:
    web = ROOT / "tilewright" / "web"
    files = {str(p.relative_to(ROOT)) for p in web.rglob("*") if p.is_file()}
    assert files
    assert files <= names


def test_engine_is_minified(wheel: zipfile.ZipFile) -> None:
    need_bundler()
    for name in ("engine/core.js", "engine/engine.js", "engine/worker.js", "tune/tuner.js"):
        script = wheel.read(f"tilewright/web/{name}")
        assert b"@type" not in script, name
        assert script.count(b"\n") < 5, name


def test_licences_and_types_are_inside(names: set[str]) -> None:
    assert "tilewright/py.typed" in names
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert any(n.startswith("tilewright/web/vendor/") and "LICENSE" in n for n in names)


def test_nothing_else_is_inside(names: set[str]) -> None:
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"tilewright"}


def test_the_laboratory_stays_in_the_checkout(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tilewright"}

"""The npm package: all that a page needs is inside, nothing else, and TypeScript understands it.

Input: the checkout.  Output: the package in a temporary folder, packed by npm and unpacked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import __version__
from tilewright.server.pyodide import VERSION
from tilewright.tuning.source import source_zip

ROOT = Path(__file__).parents[2]
WEB = ROOT / "tilewright" / "web"
TSC = ROOT / "node_modules" / ".bin" / "tsc"

USER = """
import { EngineError, load, type Engine } from 'tilewright-web';
import { tune } from 'tilewright-web/tune';
import { folderSource } from 'tilewright-web/tune/sources/folder';
import { pyodideSource } from 'tilewright-web/tune/sources/pyodide';

const engine: Engine = await load('/bundle/', { threads: 2 });
const { outputs, milliseconds } = await engine.run({ x: new Float32Array(4) });
const shape: number[] = outputs.y.shape;
const threads: number = engine.info.features.threads;
const sent = await folderSource('/tuning/').next();
const tiles: number | undefined = sent && 'header' in sent ? sent.header.tiles : undefined;
const { rounds } = await tune(engine, { source: folderSource('/tuning/'), seconds: 5 });
const made = pyodideSource({ bundle: '/bundle/', pyodide: '/node_modules/pyodide/' });
try {
  await made.close();
} catch (error) {
  if (error instanceof EngineError) console.log(error.code, error.hint);
}
export { milliseconds, rounds, shape, threads, tiles };
"""
#: Each is a mistake; types that are all `any` would allow them.
MISTAKES = (
    "import { load } from 'tilewright-web'; (await load('/b/')).runn;",
    "import { load } from 'tilewright-web'; (await load('/b/')).info.features.thread;",
    "import { folderSource } from 'tilewright-web/tune/sources/folder'; folderSource('/t/').nextt;",
    "import { tune } from 'tilewright-web/tune'; tune(1, 2);",
)


def made(into: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "npm_package.py", "--into", into]
    environment = {**os.environ, "npm_config_offline": "true"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the package installed."""
    if shutil.which("npm") is None or not TSC.exists():
        pytest.skip("the JavaScript tools are not installed: npm ci")
    folder = tmp_path_factory.mktemp("npm")
    for _ in range(2):  # over its own files
        done = made(folder / "staged")
        assert done.returncode == 0, done.stderr
    (packed,) = folder.glob("tilewright-web-*.tgz")
    shutil.unpack_archive(packed, folder / "node_modules", "gztar")
    (folder / "node_modules" / "package").rename(folder / "node_modules" / "tilewright-web")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.fixture(scope="module")
def package(project: Path) -> Path:
    return project / "node_modules" / "tilewright-web"


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_source_is_inside_unchanged(package: Path) -> None:
    inside = names(package)
    for folder in ("engine", "tune"):
        for path in (p for p in (WEB / folder).rglob("*") if p.is_file()):
            name = f"src/{path.relative_to(WEB).as_posix()}"
            assert name in inside
            assert (package / name).read_bytes() == path.read_bytes()
            assert path.suffix != ".js" or name.replace(".js", ".d.ts") in inside


def test_each_script_is_inside_without_comments(package: Path) -> None:
    """With a map that leads to its source."""
    for folder in ("engine", "tune"):
        scripts = {path.relative_to(WEB) for path in (WEB / folder).rglob("*.js")}
        inside = {path.relative_to(package) for path in (package / folder).rglob("*.js")}
        assert inside - scripts == ({Path("engine/core.js")} if folder == "engine" else set())
        assert all("@type" not in (package / path).read_text() for path in inside)
    for path in package.rglob("*.js.map"):
        for source in json.loads(path.read_text())["sources"]:
            assert (path.parent / source).is_file(), source


def test_compiler_is_inside(package: Path) -> None:
    found = hashlib.sha256((package / "compiler" / "source.zip").read_bytes())
    assert found.digest() == hashlib.sha256(source_zip()).digest()


def test_nothing_else_is_inside(package: Path) -> None:
    tops = {name.split("/")[0] for name in names(package)}
    files = {"package.json", "README.md", "LICENSE"}
    assert tops == {"engine", "tune", "src", "compiler"} | files


def test_versions_agree(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    assert about["version"] == __version__
    checks = json.loads((ROOT / "package.json").read_text())
    assert about["dependencies"] == {"pyodide": VERSION}
    assert checks["devDependencies"]["pyodide"] == VERSION
    locked = json.loads((ROOT / "package-lock.json").read_text())
    assert locked["packages"]["node_modules/pyodide"]["version"] == VERSION


def test_every_export_leads_to_a_file(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    for target in about["exports"].values():
        for path in target.values() if isinstance(target, dict) else [target]:
            assert list(package.glob(path)), path


def test_declared_names_are_those_of_the_engine(package: Path) -> None:
    declared = (package / "src" / "index.d.ts").read_text()
    found = re.findall(r"^export (?:function (\w+)|\{ (\w+) \})", declared, re.MULTILINE)
    code = f"console.log(JSON.stringify(Object.keys(await import('{package}/engine/engine.js'))))"
    command = ["node", "--input-type=module", "-e", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {a or b for a, b in found} == set(json.loads(told.stdout))


def typed(project: Path, code: str) -> subprocess.CompletedProcess[str]:
    (project / "user.ts").write_text(code)
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2023"]
    options += ["--lib", "es2024,dom,dom.iterable,dom.asynciterable", "--types", ""]
    return subprocess.run([TSC, *options, "user.ts"], cwd=project, capture_output=True, text=True)


def test_typescript_understands_it(project: Path) -> None:
    """Its own declarations are checked as well."""
    found = typed(project, USER)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("code", MISTAKES)
def test_typescript_finds_mistakes(project: Path, code: str) -> None:
    assert "error TS2" in typed(project, f"{code}\nexport {{}};").stdout


@pytest.mark.usefixtures("project")
def test_a_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("README.md", "notes.txt"):
        (tmp_path / "mine" / name).write_text("mine")
    done = made(tmp_path / "mine")
    assert done.returncode != 0
    assert "README.md exists" in done.stderr
    assert {p.name: p.read_text() for p in (tmp_path / "mine").iterdir()} == {
        "README.md": "mine", "notes.txt": "mine"
    }  # fmt: skip

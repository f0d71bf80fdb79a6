"""The npm package: all that a page needs is inside, nothing else, and TypeScript understands it.

Input: the checkout.  Output: the package in a temporary folder, packed by npm and unpacked again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers.npm import ROOT, TSC, archive, npm_package

from tilewright import __version__
from tilewright.bundle.owned_files import RECORD
from tilewright.server.pyodide import VERSION
from tilewright.tuning.source_zip import source_zip

WEB = ROOT / "tilewright" / "web"

USER = """
import { EngineError, load, type Engine } from 'tilewright-web';
import { languageModel, type Message } from 'tilewright-web/language';
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
const lm = await languageModel('/bundles/x/', { device: 'auto' });
const messages: Message[] = [{ role: 'user', content: 'Hello' }];
const answer = lm.chat(messages, { most: 9, temperature: 0.7, seed: 1, stop: ['.'] });
for await (const text of answer) console.log(text.length, answer.speed);
const tokens: number = await lm.count(messages);
try {
  await made.close();
} catch (error) {
  if (error instanceof EngineError) console.log(error.code, error.hint);
}
export { milliseconds, rounds, shape, threads, tiles, tokens };
"""
#: Each is a mistake; types that are all `any` would allow them.
MISTAKES = (
    "import { load } from 'tilewright-web'; (await load('/b/')).runn;",
    "import { load } from 'tilewright-web'; (await load('/b/')).info.features.thread;",
    "import { folderSource } from 'tilewright-web/tune/sources/folder'; folderSource('/t/').nextt;",
    "import { tune } from 'tilewright-web/tune'; tune(1, 2);",
    "import { languageModel } from 'tilewright-web/language'; (await languageModel('/')).chat(1);",
    "import { languageModel } from 'tilewright-web/language'; languageModel('/', { devices: 1 });",
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_package(tmp_path_factory)


@pytest.fixture(scope="module")
def project(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the package installed."""
    folder = tmp_path_factory.mktemp("npm")
    shutil.unpack_archive(archive(packed), folder / "node_modules", "gztar")
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
    for folder in ("engine", "tune", "language", "vendor/jinja", "vendor/tokenizers"):
        for path in (p for p in (WEB / folder).rglob("*") if p.is_file()):
            name = f"src/{path.relative_to(WEB).as_posix()}"
            assert name in inside
            assert (package / name).read_bytes() == path.read_bytes()
            assert path.suffix != ".js" or name.replace(".js", ".d.ts") in inside


def test_each_script_is_inside_without_comments(package: Path) -> None:
    """With a map that leads to its source."""
    made = {"engine": {Path("engine/core.js")}, "language": {Path("language/packages.js")}}
    for folder in ("engine", "tune", "language"):
        scripts = {path.relative_to(WEB) for path in (WEB / folder).rglob("*.js")}
        inside = {path.relative_to(package) for path in (package / folder).rglob("*.js")}
        assert inside - scripts == made.get(folder, set())
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
    assert tops == {"engine", "tune", "language", "src", "compiler"} | files


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


@pytest.mark.parametrize(
    ("types", "script", "inner"),
    [
        ("index.d.ts", "engine/engine.js", set()),
        ("language/index.d.ts", "language/language.js", {"Model"}),
    ],
)
def test_declared_names_are_those_of_the_script(
    package: Path, types: str, script: str, inner: set[str]
) -> None:
    declared = (package / "src" / types).read_text()
    found = re.findall(r"^export (?:function (\w+)|\{ (\w+) \})", declared, re.MULTILINE)
    code = f"console.log(JSON.stringify(Object.keys(await import('{package}/{script}'))))"
    command = ["node", "--input-type=module", "-e", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {a or b for a, b in found} == set(json.loads(told.stdout)) - inner


def test_typescript_understands_it_and_finds_mistakes(project: Path) -> None:
    """Its own declarations are checked as well."""
    codes = {"user": USER} | {f"mistake{n}": f"{m}\nexport {{}};" for n, m in enumerate(MISTAKES)}
    for name, code in codes.items():
        (project / f"{name}.ts").write_text(code)
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2023"]
    options += ["--lib", "es2024,dom,dom.iterable,dom.asynciterable", "--types", ""]
    files = [f"{name}.ts" for name in codes]
    told = subprocess.run([TSC, *options, *files], cwd=project, capture_output=True, text=True)
    found = re.findall(r"^(.*?)\(\d+,\d+\): error (TS\d)", told.stdout, re.MULTILINE)
    assert set(found) == {(f"mistake{n}.ts", "TS2") for n in range(len(MISTAKES))}, told.stdout


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("npm_package")


def test_it_is_written_over_its_own_files(packed: Path, tmp_path: Path, script: ModuleType) -> None:
    files = {name: (packed / name).read_bytes() for name in names(packed) - {RECORD}}
    for _ in range(2):
        script.put(files, tmp_path)
        assert names(tmp_path) == names(packed)


def test_a_folder_of_somebody_else_stays(
    packed: Path, tmp_path: Path, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = names(packed / "staged")
    (tmp_path / "mine").mkdir()
    for name in ("README.md", "notes.txt"):
        (tmp_path / "mine" / name).write_text("mine")
    monkeypatch.setattr(script, "packed", lambda name: {f"{name}/{n}": b"" for n in inside})
    monkeypatch.setattr(sys, "argv", ["npm_package.py", "--into", str(tmp_path / "mine")])
    with pytest.raises(SystemExit, match=r"README\.md exists"):
        script.main()
    assert {p.name: p.read_text() for p in (tmp_path / "mine").iterdir()} == {
        "README.md": "mine", "notes.txt": "mine"
    }  # fmt: skip

"""The npm package in a real Vite project, by the commands of its README.

Input: examples/vite with the packed package installed and a small bundle.  Output: what its page
computes on one thread and on several, and after tuning, against the graph interpreter.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.npm import ROOT, archive, npm_package

from tilewright.bundle import open_bundle
from tilewright.graph.node import evaluate
from tilewright.targets.device_classes import find
from tilewright.tuning.candidate_folder import write_candidates

from .bundles import Library
from .conftest import Visit

EXAMPLE = ROOT / "examples" / "vite"
README = (ROOT / "tilewright" / "web" / "README.md").read_text()
#: Arguments of Vite in the README: of those that serve, and of the one that builds.
COMMANDS = re.findall(r"^npx vite *([^#\n]*?) *(?:#.*)?$", README, re.MULTILINE)
BUILD = "build"
SERVERS = [c for c in COMMANDS if c != BUILD]
VITE = ROOT / "node_modules" / "vite" / "bin" / "vite.js"
PYODIDE = ROOT / "node_modules" / "pyodide"
MODEL = "linear"
#: Seconds until a server of Vite listens.
PATIENCE = 300.0


def vite(command: str) -> list[str]:
    return ["node", str(VITE), *shlex.split(command)]


@pytest.fixture(scope="session")
def project(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as a user has it, built; Pyodide is the checkout's, so nothing is downloaded."""
    packed = archive(npm_package(tmp_path_factory))
    project = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("vite") / "project")
    about = json.loads((project / "package.json").read_text())
    about["dependencies"]["tilewright-web"] = f"file:{packed}"
    about["overrides"] = {"pyodide": f"file:{PYODIDE}"}
    del about["devDependencies"]  # Vite is the checkout's, too
    (project / "package.json").write_text(json.dumps(about))
    install = ["npm", "install", "--offline", "--no-audit"]
    subprocess.run(install, cwd=project, check=True)
    public = library.copied(MODEL, project / "public" / "model")
    write_candidates(open_bundle(public), [find("wasm")])
    shutil.copytree(PYODIDE, project / "public" / "pyodide")
    subprocess.run(vite(BUILD), cwd=project, check=True)
    return project


@pytest.fixture(params=SERVERS, ids=lambda command: f"vite-{command or 'dev'}")
def url(request: pytest.FixtureRequest, project: Path) -> Iterator[str]:
    """A running server of the project."""
    process = subprocess.Popen(
        [*vite(request.param), "--port", "0"],
        cwd=project, stdout=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        yield address(process)
    finally:
        process.terminate()
        process.wait()


def address(process: subprocess.Popen[bytes]) -> str:
    """What Vite prints once it listens."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    said = b""
    while select.select([pipe], [], [], PATIENCE)[0] and (part := os.read(pipe, 4096)):
        said += part
        if found := re.search(rb"http://\S+(?=\s)", said):
            return found.group().decode()
    raise AssertionError(f"Vite does not listen: {said.decode()}")


# What a bundler does is the same for all browsers.
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "browser", [pytest.param("chromium", marks=pytest.mark.browser)], indirect=True
)
@pytest.mark.parametrize("tune", ["folder", "client"])
def test_page_runs_and_tunes(visit: Visit, library: Library, url: str, tune: str) -> None:
    page = visit(f"{url}?tune={tune}")
    told = json.loads(page.do("text", selector="#result", contains="{"))
    assert "error" not in told, told
    graph = library.graph(MODEL)
    ((name, x),), ((_, y),) = graph.inputs, graph.outputs
    values = np.sin(np.arange(np.prod(x.shape))).astype(np.float32).reshape(x.shape)
    (expected,) = evaluate([y], {name: values})
    assert [run["threads"] for run in told["runs"]][:2] == [1, 2]
    for run in told["runs"]:
        np.testing.assert_allclose(run["y"], expected.ravel(), rtol=0, atol=1e-5)
    assert told["rounds"] > 0
    assert page.do("log")["errors"] == []


def test_readme_tells_what_is_tested() -> None:
    assert set(COMMANDS) == {"", "build", "preview"}
    config = (EXAMPLE / "vite.config.js").read_text()
    (shown,) = re.findall(r"`vite\.config\.js`:\n\n```js\n(.*?)```", README, re.DOTALL)
    assert shown == re.sub(r"^//.*\n", "", config, flags=re.MULTILINE)
    pinned, ours = (
        json.loads((folder / "package.json").read_text())["devDependencies"]["vite"]
        for folder in (EXAMPLE, ROOT)
    )
    assert pinned == ours

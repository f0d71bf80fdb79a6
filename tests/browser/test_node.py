"""The engine in Node, on WebAssembly: results, what it lacks, the command, tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.subjects import matmul
from tilewright.base.errors import HostError
from tilewright.bundle import write
from tilewright.cli import main
from tilewright.compiler import Options
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_programs import node

from .rounds import only_rounds

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node") / "product"
    write(matmul(96, 40, 24, Options()).contents, folder)
    return folder


def test_it_computes_on_one_thread_and_says_so(bundle: Path) -> None:
    x = np.random.default_rng(1).standard_normal((96, 40), np.float32)
    weight = np.random.default_rng(0).standard_normal((40, 24), np.float32)
    with BrowserHost("node") as host:
        model = host.load(bundle, threads=2)
        (found,) = model.run({"x": x}).outputs.values()
        assert model.info["device"] == "wasm"
        assert any("2 threads were asked for" in said for said in model.info["lost"])
    np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-4)


def test_the_command_tunes(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only_rounds(monkeypatch, 2)
    with pytest.raises(SystemExit, match="0"):
        main(["tune", str(bundle), "--host", "node", "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["class"].startswith("wasm-")
    assert found["rounds"] == 2


def test_node_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NODE", "/nowhere/node")
    node.cache_clear()
    with pytest.raises(HostError, match="Node is not installed") as caught:
        node()
    assert caught.value.facts["host"] == "node"


@pytest.mark.parametrize(
    ("major", "known", "given"),
    [
        (20, "--no-warnings --turboshaft-wasm", ("--no-warnings",)),
        (22, "--no-warnings --turboshaft-wasm", ("--no-warnings", "--turboshaft-wasm")),
        (26, "--no-warnings", ("--no-warnings",)),
    ],
)
def test_flags_are_those_that_this_node_knows_and_should_have(
    major: int, known: str, given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script answers as such a Node does: with its version, and to flags that it knows."""
    script = tmp_path / "node"
    script.write_text(
        "#!/bin/sh\n"
        f'[ "$1 $2" = "-p parseInt(process.versions.node)" ] && echo {major} && exit\n'
        f'for known in {known}; do [ "$1" = "$known" ] && echo 1 && exit; done; exit 9\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("TILEWRIGHT_NODE", str(script))
    node.cache_clear()
    try:
        assert node().flags == given
    finally:
        node.cache_clear()

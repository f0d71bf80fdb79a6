"""The commands that need a browser, in either of the browsers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_call import Called
from helpers.waiting import PATIENCE
from test_cli_models import WEIGHT, save_inputs, save_model

from tilewright.hosts.browser_discovery import find

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        find("chromium") is None or find("firefox") is None, reason="needs Chromium and Firefox"
    ),
]
Capture = pytest.CaptureFixture[str]


@pytest.mark.by_turns
@pytest.mark.parametrize("host", ["chromium", "firefox"])
def test_run(capsys: Capture, tmp_path: Path, host: str) -> None:
    model = save_model(tmp_path / "tiny.onnx")
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    files = ("--inputs", save_inputs(tmp_path / "in.npz", x=x), "--outputs", tmp_path / "out.npz")
    called = Called(capsys, "run", model, "--host", host, "--buckets", "n=4,16", *files, "--json")
    assert called.code == 0, called.json
    assert called.json["bucket"] == {"n": 16}
    found = np.load(tmp_path / "out.npz")["y"]
    np.testing.assert_allclose(found, np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
    short = save_inputs(tmp_path / "short.npz", x=x[:, :7])
    called = Called(
        capsys, "run", model, "--host", host, "--buckets", "n=4", "--inputs", short, "--json"
    )
    assert (called.code, called.json["error"]["code"]) == (5, "input")


def test_reports_preview(capsys: Capture) -> None:
    """Without a bundle; people can read it.  The session ends once all candidates were tried."""
    called = Called(capsys, "reports", "preview", "--budget", PATIENCE)
    assert called.code == 0, called.err
    for words in ("nonce", "128 random bits", "only if results are shared", "Never sent"):
        assert words in called.out


def test_doctor(capsys: Capture) -> None:
    called = Called(capsys, "doctor", "--json")
    assert called.code == 0
    assert [b["name"] for b in called.json["browsers"]] == ["chromium", "firefox"]
    assert called.json["node"]["version"].startswith("Node v")
    for name in ("wgpu", "cuda"):
        assert called.json[name].keys() in ({"name", "version"}, {"name", "error"})
    for browser in called.json["browsers"]:
        assert browser["version"]
        assert browser["features"]["simd"]
        assert browser["features"]["isolated"]

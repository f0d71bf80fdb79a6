"""What the host without a browser does differently: adapters, threads, commands, its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.waiting import until

from lab.subjects import matmul
from tilewright.base.errors import HostError, TilewrightError
from tilewright.bundle import write
from tilewright.cli import main
from tilewright.compiler import Options
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_dawn import Dawn

pytestmark = pytest.mark.browser


@pytest.fixture
def host(dawn: Dawn) -> Iterator[BrowserHost]:
    with BrowserHost(dawn) as host:
        yield host


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dawn") / "product"
    write(matmul(6, 40, 24, Options(targets=("wgsl",))).contents, folder)
    return folder


def inputs(seed: int = 1) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((6, 40), np.float32)}


def expected(given: dict[str, Any]) -> Any:
    return given["x"] @ np.random.default_rng(0).standard_normal((40, 24), np.float32)


def test_the_adapter_is_named(host: BrowserHost, dawn: Dawn, bundle: Path) -> None:
    info = host.load(bundle).info
    adapter = info["adapter"]
    assert (adapter["description"], adapter["software"]) == (
        dawn.adapter["description"],
        dawn.adapter["software"],
    )
    assert any("software" in text for text in info["lost"]) == adapter["software"]


def test_several_models_and_disposal(host: BrowserHost, bundle: Path) -> None:
    """Each has a process and a device of its own."""
    models = [host.load(bundle) for _ in range(3)]
    for seed, model in enumerate(models):
        given = inputs(seed)
        np.testing.assert_allclose(model.run(given).outputs["y"], expected(given), atol=1e-4)
    models[1].dispose()
    with pytest.raises(TilewrightError, match="disposed"):
        models[1].run(inputs())
    np.testing.assert_allclose(models[2].run(inputs()).outputs["y"], expected(inputs()), atol=1e-4)


def processes(host: BrowserHost) -> int:
    """Of engines: children of the session's process."""
    assert host._process is not None
    threads = Path(f"/proc/{host._process.pid}/task").iterdir()
    return sum(len((thread / "children").read_text().split()) for thread in threads)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are listed by Linux")
def test_what_a_disposed_engine_took_is_given_back(host: BrowserHost, bundle: Path) -> None:
    """A driver keeps what a device took until its process ends."""
    models = [host.load(bundle) for _ in range(2)]
    assert processes(host) == 2
    models[0].dispose()
    until(lambda: processes(host) == 1)
    np.testing.assert_allclose(models[1].run(inputs()).outputs["y"], expected(inputs()), atol=1e-4)


def test_times_by_the_clock_of_the_adapter(host: BrowserHost, dawn: Dawn, bundle: Path) -> None:
    model = host.load(bundle)
    if "timestamp-query" not in dawn.adapter["features"]:
        pytest.skip("the adapter has no clock")
    times = model.time(3, 1, repeat=40).milliseconds
    assert len(times) == 3
    assert all(ms >= 0 for ms in times)
    assert sum(model.time(1, 0, repeat=4000).milliseconds) > 0
    with pytest.raises(TilewrightError, match="repeat"):
        model.time(3, 1, repeat=0)
    in_order = model.profile(3, in_order=True)
    assert [s["kernel"] for s in in_order] == [s["kernel"] for s in model.profile(3)]
    assert all(step["milliseconds"] >= 0 for step in in_order)
    assert sum(step["milliseconds"] for step in in_order) > 0


def test_a_bundle_without_its_section(host: BrowserHost, tmp_path: Path) -> None:
    write(matmul(6, 40, 24).contents, tmp_path)
    with pytest.raises(TilewrightError, match="wgsl"):
        host.load(tmp_path)


def test_a_process_that_dies(host: BrowserHost, bundle: Path) -> None:
    model = host.load(bundle)
    assert host._process is not None
    os.kill(host._process.pid, signal.SIGKILL)
    with pytest.raises(HostError) as caught:
        model.run(inputs())
    assert caught.value.facts["host"] == "dawn"
    assert caught.value.facts["exit_code"] == -signal.SIGKILL


def test_it_ends_with_its_session(dawn: Dawn, bundle: Path) -> None:
    with BrowserHost(dawn) as host:
        host.load(bundle).run(inputs())
        process = host._process
    assert process is not None
    assert process.exit_code in (0, -signal.SIGTERM)


def test_commands(dawn: Dawn, bundle: Path, tmp_path: Path, capsys: Any) -> None:
    np.savez(tmp_path / "in.npz", **inputs())

    def said(*arguments: object) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--host", "dawn", "--json"])
        (line,) = capsys.readouterr().out.splitlines()
        assert ended.value.code == 0, line
        return json.loads(line)

    out = tmp_path / "out.npz"
    found = said("run", bundle, "--inputs", tmp_path / "in.npz", "--outputs", out)
    assert found["adapter"]["software"] == dawn.adapter["software"]
    # what slows it down is told as the page tells it
    assert any("is software" in said for said in found["lost"]) == dawn.adapter["software"]
    np.testing.assert_allclose(np.load(out)["y"], expected(inputs()), atol=1e-4)

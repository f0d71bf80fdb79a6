"""The browser host against a stand-in browser: arrays go through, death and silence are told."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bundle_factory import sample
from helpers.orphans import orphaned
from helpers.waiting import PATIENCE, until
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tilewright.base.errors import BundleCorrupt, HostError, InputError, UsageError
from tilewright.bundle import write
from tilewright.hosts import browser as browser_module
from tilewright.hosts import browser_connection as link_module
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_connection import Link
from tilewright.hosts.browser_discovery import find, require
from tilewright.server import create_app

FAKE = Path(__file__).with_name("fake_browser.py")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TILEWRIGHT_CHROMIUM", str(program))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return monkeypatch


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write(sample(), tmp_path / "bundle")
    return tmp_path / "bundle"


ARRAYS = {
    "f32": np.array([[1.5, np.nan, np.inf]], np.float32),
    "i64": np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::-1],
    "bool": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(7, np.int32),
    "big endian": np.array([1, 2], ">f4"),
}


def test_arrays_go_through(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    heard: list[dict[str, Any]] = []
    with BrowserHost("chromium") as host:
        assert host.info["features"] == {"simd": True}
        model = host.load(bundle, features=(), on_progress=heard.append)
        assert model.info["options"] == {"features": []}
        result = model.run(ARRAYS)
        assert model.asset("tokenizer.json") == b"file"
        model.dispose()
    assert heard[0]["loadedBytes"] == 1
    assert list(result.outputs) == list(ARRAYS)
    for name, array in ARRAYS.items():
        found = result.outputs[name]
        assert found.shape == array.shape
        assert found.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, array)
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_unknown_element_type(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    with BrowserHost("chromium") as host, pytest.raises(InputError, match="complex64"):
        host.load(bundle).run({"f32": np.zeros(2, np.complex64)})


def test_no_bundle(fake: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with BrowserHost("chromium") as host, pytest.raises(BundleCorrupt, match="not a bundle"):
        host.load(tmp_path)


def test_browser_that_does_not_start(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_MODE", "die")
    with pytest.raises(HostError, match="ended") as caught, BrowserHost("chromium"):
        pass
    assert caught.value.facts["stderr"] == "cannot open display"
    assert caught.value.facts["exit_code"] == 1
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_browser_that_dies_during_a_run(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    fake.setenv("FAKE_MODE", "crash")
    with BrowserHost("chromium") as host:
        model = host.load(bundle)
        with pytest.raises(HostError, match=r"ended|closed") as caught:
            model.run({})
        assert caught.value.facts["stderr"] == "out of memory"
        assert caught.value.facts["exit_code"] == 1
        with pytest.raises(HostError):
            model.run({})
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_silent_page(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_MODE", "silent")
    fake.setattr(browser_module, "START_SECONDS", 0.3)
    with pytest.raises(HostError, match="did not start its page"), BrowserHost("chromium"):
        pass


def test_silent_run(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    fake.setenv("FAKE_MODE", "hang")
    fake.setattr(browser_module, "CLOSE_SECONDS", 0.2)
    with BrowserHost("chromium") as host:
        model = host.load(bundle)
        host.timeout = 0.5
        with pytest.raises(HostError, match=r"answer `run` within 0\.5 s"):
            model.run({})


def test_progress_keeps_a_request_alive(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    """A word a minute: never as long without one as the time-out, but longer altogether."""
    fake.setenv("FAKE_MODE", "slow")
    clock = [begin := time.monotonic()]

    def word(_: dict[str, Any]) -> None:
        clock[0] += 60

    with BrowserHost("chromium", timeout=90) as host:
        fake.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        assert host.load(bundle, on_progress=word).handle == 1
    assert clock[0] - begin > 2 * 90


def test_progress_that_fails_ends_its_request_only(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise KeyError("mine")

    with BrowserHost("chromium") as host:
        with pytest.raises(KeyError, match="mine"):
            host.load(bundle, on_progress=fail)
        assert host.load(bundle).handle == 1


@pytest.mark.parametrize(("code", "kind"), [("input", InputError), ("disposed", HostError)])
def test_page_errors(fake: pytest.MonkeyPatch, bundle: Path, code: str, kind: type) -> None:
    fake.setenv("FAKE_MODE", code)
    with BrowserHost("chromium") as host:
        model = host.load(bundle)
        with pytest.raises(kind, match="Said so") as caught:
            model.run({})
        assert caught.value.facts["input"] == "x"
        assert caught.value.hint == "Do"


def pressed_at(place: int) -> Callable[[FrameType, str, object], Any]:
    """A trace function: Ctrl-C at that line of a request, at the latest where it waits."""
    lines, sent = 0, False

    def trace(frame: FrameType, event: str, _value: object) -> Any:
        nonlocal lines, sent
        name = frame.f_code.co_name
        if frame.f_code.co_filename != link_module.__file__:
            return None
        if event == "line" and not sent and name in ("request", "_ctrl_c", "_wait"):
            lines += 1
            if lines == place or name == "_wait":
                sent = True
                signal.raise_signal(signal.SIGINT)
        return trace

    return trace


def test_ctrl_c_at_every_place(fake: pytest.MonkeyPatch, bundle: Path) -> None:
    """A page that got the request is told of it and answers; one that did not is not waited for.

    The stand-in ends only when it is told, and fails on what it does not expect.
    """
    fake.setenv("FAKE_MODE", "early")
    fake.setattr(browser_module, "ABORT_SECONDS", PATIENCE)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ends = set()
    try:
        with BrowserHost("chromium") as host:
            model = host.load(bundle)
            for place in range(1, 24):
                sys.settrace(pressed_at(place))
                try:
                    ends.add(model.tune({}, lambda _: None)["cancelled"])
                except KeyboardInterrupt:
                    ends.add("not sent")
                finally:
                    sys.settrace(None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ends == {True, "not sent"}


def test_other_protocol(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_MODE", "protocol")
    with pytest.raises(HostError, match="protocol 99"), BrowserHost("chromium"):
        pass


def test_children_are_ended(fake: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake.setenv("FAKE_MODE", "child")
    fake.setenv("FAKE_CHILD", str(tmp_path / "child"))
    with BrowserHost("chromium"):
        child = int((tmp_path / "child").read_text())
        os.kill(child, 0)
    until(lambda: not alive(child))


def alive(process: int) -> bool:
    """A zombie that nobody collects in a container counts as dead."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_wrong_token() -> None:
    link = Link(lambda: None)
    client = TestClient(create_app({}, host_socket=link.socket))
    for token in ("", "?token=guess", "?token=%C3%A9"):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"/_host/socket{token}"):
            pass
    with client.websocket_connect(f"/_host/socket?token={link.token}") as page:
        page.send_json({"hello": {"protocol": 1}})
        assert link.wait_for_page(PATIENCE) == {"protocol": 1}
        again = f"/_host/socket?token={link.token}"
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(again):
            pass


def test_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_FIREFOX", raising=False)
    assert find("firefox") is None or "/Applications" in str(require("firefox").path)
    for name in ("firefox", "firefox-esr"):
        (tmp_path / name).write_text("#!/bin/sh\necho noise\necho Mozilla Firefox 1.0\n")
        (tmp_path / name).chmod(0o755)
    assert require("firefox").path == tmp_path / "firefox-esr"
    assert require("firefox").version() == "Mozilla Firefox 1.0"
    monkeypatch.setenv("TILEWRIGHT_FIREFOX", str(tmp_path / "gone"))
    with pytest.raises(HostError, match="TILEWRIGHT_FIREFOX"):
        find("firefox")
    with pytest.raises(UsageError, match="netscape"):
        find("netscape")


def test_missing_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_CHROMIUM", raising=False)
    if find("chromium") is not None:
        pytest.skip("Chromium lies outside of PATH here (macOS)")
    with pytest.raises(HostError, match=r"apt-get install chromium.*TILEWRIGHT_CHROMIUM"):
        require("chromium")


def test_a_browser_ends_with_a_process_that_is_killed(
    fake: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also a child that does not react to SIGTERM."""
    fake.setenv("FAKE_MODE", "child")
    fake.setenv("FAKE_CHILD", str(tmp_path / "child"))
    with orphaned("chromium") as orphan:
        until(lambda: not orphan.processes())
        until(lambda: not orphan.folders())


def test_a_program_that_cannot_be_started(fake: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "browser").write_text("#!/there/is/no/such/shell\n")
    with pytest.raises(HostError, match="Could not start chromium: No such file"):
        BrowserHost("chromium").__enter__()
    assert not list(Path(tempfile.gettempdir()).iterdir())

"""`Host`: the server answers to its own names, whatever page or program asks."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from cli_call import Called
from starlette.testclient import TestClient, WebSocketDenialResponse
from test_server_front import PATIENCE, rest
from tuning_site import app as tuning_app

from tilewright.base.errors import UsageError
from tilewright.server import BackgroundServer, create_app
from tilewright.server.headers import host_names

NAMES = ("tuner.example", "203.0.113.5", "[2001:db8::1]")


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app({}, names=NAMES), base_url="http://192.0.2.7:8000")


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True), ("LOCALHOST:8000", True), ("127.0.0.1:8000", True),
        ("127.1.2.3", True), ("[::1]:8000", True), ("[::ffff:127.0.0.1]", True),
        ("192.0.2.7:8000", True), ("tuner.example", True), ("Tuner.Example:443", True),
        ("203.0.113.5", True), ("[2001:db8::1]:443", True),
        ("evil.example", False), ("tuner.example.evil.example", False), ("192.0.2.8", False),
        ("localhost.evil.example", False), ("x.tuner.example", False), ("0.0.0.0", False),
        ("", False),
        ("[::1", False), ("[::2]", False), ("tuner.example@evil.example", False),
        ("evil.example@localhost", False), ("localhost/evil", False), ("localhost?x", False),
        ("localhost#x", False), ("localhost:abc", False), ("127.0.0.1%evil.example", False),
    ],
)  # fmt: skip
def test_known_hosts(client: TestClient, host: str, known: bool) -> None:
    answer = client.get("/healthz", headers={"host": host})
    assert answer.status_code == (200 if known else 421)
    assert "content-security-policy" in answer.headers
    if not known:
        error = answer.json()["error"]
        assert error["code"] == "unknown-host"
        assert "--host-name" in error["hint"]
        assert error["facts"] == {"host": [host]}


def test_a_rebound_page_cannot_tune() -> None:
    """To the browser it has one origin with the server: only the name tells."""
    client = TestClient(tuning_app(), base_url="http://127.0.0.1")
    own, rebound = ({"host": h, "origin": f"http://{h}"} for h in ("127.0.0.1", "evil.example"))
    with client.websocket_connect("/api/tune", headers=own):
        pass
    socket = client.websocket_connect("/api/tune", headers=rebound)
    with pytest.raises(WebSocketDenialResponse) as refused, socket:
        pass
    assert refused.value.status_code == 421


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /healthz HTTP/1.1", 400),
        (b"GET /healthz HTTP/1.0", 421),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost, evil.example", 421),
        (b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost", 404),
        (b"GET /api/tune HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\n"
         b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", 421),
    ],
    ids=["none", "none in 1.0", "two", "a list", "another in the target", "a handshake"],
)  # fmt: skip
def test_hosts_on_the_wire(head: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"Upgrade" if b"Upgrade" in head else b"close"
    with BackgroundServer(create_app({})) as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE) as plain:
            plain.sendall(head + b"\r\nConnection: " + upgrade + b"\r\n\r\n")
            answer = rest(plain)
    assert int(answer.split()[1]) == status
    if status == 421:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "unknown-host"
        assert not caplog.records


@pytest.mark.parametrize(
    "name", ["https://a.example", "a.example:80", "a.example/", "", "ä.example"]
)
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(UsageError, match="--host-name"):
        host_names([name])


def test_a_name_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bundle_factory import sample

    from tilewright.bundle import write

    write(sample(), tmp_path)
    given = ("--port", 0, "--host-name", "https://a.example", "--json")
    called = Called(capsys, "serve", tmp_path, *given)
    assert (called.code, called.json["error"]["code"]) == (2, "usage")

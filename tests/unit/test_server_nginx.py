"""The nginx settings of docs/serving.md, with a real nginx in front of a server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from test_server_front import PATIENCE, rest
from tuning_client import Client, hello
from tuning_site import app, digest
from websockets.exceptions import InvalidStatus

from tilewright.server import BackgroundServer
from tilewright.server.session import SessionLimits

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
NAME = "tuner.example"
#: Beside the block of the docs: what an installation's nginx.conf has, in a folder of the test.
AROUND = """
daemon off;
pid nginx.pid;
error_log stderr notice;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    %s
}
"""
pytestmark = [
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses"),
]


def settings(upstream: str, place: str) -> str:
    """The block of the docs: other addresses, no TLS, five seconds, two connections."""
    found = re.search(r"```nginx\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found
    block = found.group(1)
    for old, new in (
        (r"server 127\.0\.0\.1:8000;", f"server {upstream};"),
        (r"listen 443 ssl;", f"listen {place};"),
        (r"ssl_certificate.*", ""),
        (r"client_header_timeout 15s;", "client_header_timeout 5s;"),
        (r"limit_conn visitors 64;", "limit_conn visitors 2;"),
    ):
        assert re.search(old, block), f"docs/serving.md lacks {old}"
        block = re.sub(old, new, block)
    return AROUND % block


def free_place() -> tuple[str, int]:
    """An address of this process alone, whose ports no other test's connection can take."""
    host = f"127.83.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of nginx; behind it a site with two sessions per network."""
    assert NGINX is not None
    place = tmp_path_factory.mktemp("nginx")
    with BackgroundServer(app(limits=SessionLimits(each=2), names=(NAME,))) as server:
        host, port = free_place()
        config = place / "nginx.conf"
        config.write_text(settings(server.url.removeprefix("http://"), f"{host}:{port}"))
        process = subprocess.Popen([NGINX, "-p", str(place), "-c", str(config)])
        try:
            while socket.socket().connect_ex((host, port)):
                assert process.poll() is None, "nginx refuses the settings"
                time.sleep(0.02)
            yield f"http://{host}:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def status(url: str, host: str) -> int:
    request = urllib.request.Request(url + "/healthz", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_name_reaches_the_server(proxied: str) -> None:
    assert status(proxied, NAME) == 200
    assert status(proxied, "evil.example") == 421


def test_visitors_are_told_apart_and_cannot_pose_as_others(proxied: str) -> None:
    origin = f"http://{NAME}"
    with ExitStack() as stack:

        def visit(source: str, address: str = "127.0.0.1") -> Client:
            client = Client(proxied, origin, host=NAME, source=source, address=address)
            return stack.enter_context(client)

        for source in ("127.0.2.1", "127.0.2.3", "127.0.3.1"):
            visit(source).start(hello("m", digest()))
        assert visit("127.0.2.2", address="203.0.113.9").refusal()[1] == 4503


def test_half_a_request_ends_at_the_proxy(proxied: str) -> None:
    host, _, port = proxied.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n")
        rest(plain)


def test_an_address_has_so_many_connections(proxied: str) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Client(proxied, host=NAME, source="127.0.4.1"))
        with pytest.raises(InvalidStatus) as refused:
            Client(proxied, host=NAME, source="127.0.4.1")
        assert refused.value.response.status_code == 503
        with Client(proxied, host=NAME, source="127.0.5.1"):
            pass

"""The running server: port taken, URL when ready, shutdown by signal, big files in pieces."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bundle_factory import sample
from helpers.waiting import a_while, until

from tilewright.base.errors import PortInUse, UsageError
from tilewright.bundle import write
from tilewright.server import BackgroundServer, create_app
from tilewright.server.run import listen

#: Seconds for a process to end, however busy the machine is; and the time that a server gives
#: connections at its end, if they must not be waited for: a test would see it.
PATIENCE = 300.0
FOR_EVER = 3600.0
PROGRAM = """
import pathlib, sys
from tilewright.server import create_app, run
run.SHUTDOWN_SECONDS = float(sys.argv[2])
app = create_app({"m": pathlib.Path(sys.argv[1])})
run.serve(app, "127.0.0.1", 0, lambda url: print(url, flush=True))
"""


def start(
    bundle: Path = Path("none"), program: str = PROGRAM, shutdown: float = FOR_EVER
) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(bundle), str(shutdown)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(PATIENCE)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_with_code_0(number: signal.Signals) -> None:
    process, url = start()
    # The URL is printed when connections are accepted: no retry here.
    with urllib.request.urlopen(url + "/healthz", timeout=PATIENCE) as answer:
        assert answer.status == 200
    process.send_signal(number)
    assert finish(process) == 0
    assert not listens(url)


HELD = """
import asyncio, contextlib
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tilewright.server import serve

@contextlib.asynccontextmanager
async def life(_app):
    yield
    print("closed", flush=True)

async def held(_request):
    print("held", flush=True)
    await asyncio.sleep(3600)
    return PlainTextResponse("")

app = Starlette(routes=[Route("/held", held)], lifespan=life)
serve(app, "127.0.0.1", 0, lambda url: print(url, flush=True))
"""


def test_a_second_signal_ends_it_at_once_and_the_app_still_hears_of_it() -> None:
    process, url = start(program=HELD)
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
    connection.request("GET", "/held")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    try:
        process.send_signal(signal.SIGINT)
        until(lambda: not listens(url))  # two signals that are sent together may be one
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        connection.close()
    assert (process.returncode, out.strip()) == (0, "closed")


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port)) == 0


def test_an_idle_connection_does_not_delay_the_end() -> None:
    process, url = start()
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    process.send_signal(signal.SIGTERM)
    code = finish(process)
    connection.close()
    assert code == 0


def test_a_stalled_download_does_not_delay_the_end_for_ever(tmp_path: Path) -> None:
    manifest = write(sample(), tmp_path)
    blob = manifest.weights.shards[0].file
    os.truncate(tmp_path / blob, 100 * 1024 * 1024)
    process, url = start(tmp_path, shutdown=0.5)
    with urllib.request.urlopen(f"{url}/bundles/m/{blob}") as answer:
        answer.read(1)
        process.send_signal(signal.SIGTERM)
        assert finish(process) == 0


def test_port_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=str(port)) as caught:
            listen("127.0.0.1", port)
        assert caught.value.exit_code == 9
        assert "--port" in caught.value.hint


def test_second_server_on_the_same_port() -> None:
    with BackgroundServer(create_app({})) as server, pytest.raises(PortInUse):
        BackgroundServer(create_app({}), port=urlsplit(server.url).port or 0)


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("192.0.2.1", 0)])
def test_no_such_address(host: str, port: int) -> None:
    with pytest.raises(UsageError, match="--host"):
        listen(host, port)


def test_background_server_leaves_nothing() -> None:
    before = set(threading.enumerate())  # other tests of the session may keep servers
    with BackgroundServer(create_app({})) as server:
        with urllib.request.urlopen(server.url + "/healthz", timeout=PATIENCE) as answer:
            assert answer.status == 200
        port = urlsplit(server.url).port
    left = set(threading.enumerate()) - before
    assert not [t for t in left if t.name == "tilewright-server"]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to read memory")
def test_big_files_are_streamed(tmp_path: Path) -> None:
    """A client that reads slowly must not make the server hold the file."""
    size = 200 * 1024 * 1024
    manifest = write(sample(), tmp_path)
    blob = tmp_path / manifest.weights.shards[0].file
    os.truncate(blob, size)
    with BackgroundServer(create_app({"m": tmp_path})) as server:
        before = resident()
        with urllib.request.urlopen(f"{server.url}/bundles/m/blobs/{blob.name}") as answer:
            answer.read(1)
            a_while()
            assert resident() - before < size // 4
            read = 1
            while piece := answer.read(1 << 20):
                read += len(piece)
            assert read == size


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

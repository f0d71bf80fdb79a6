"""The server as a process: killed, asked to end, its workers, and stores it cannot use."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from cli_call import Called
from helpers.processes import port_of, serve
from helpers.waiting import until
from tuning_client import Client, hello, postponed
from tuning_site import bundle, digest

SECONDS = 300.0

PROC = Path("/proc")


def test_a_server_that_is_killed_and_started_again() -> None:
    """The client's hello has all that the new server needs; nothing comes twice."""
    process, url = serve(bundle())
    tried: list[int] = []
    try:
        with Client(url) as client:
            offer = client.start(hello("m", digest())).kernels[0]
            client.want(64)
            for _ in range(5):
                tried.append(client.kernel().candidate)
            process.kill()
            assert client.closed() == 1006
        process.wait(SECONDS)
        process, url = serve(bundle(), port_of(url))
        with Client(url) as client:
            again = client.start(hello("m", digest(), tried={0: tuple(tried)})).kernels[0]
            assert again == offer
            rest = [m.candidate for m in client.all_of(1)]
        assert sorted(tried + rest) == list(range(1, offer.count))
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_is_asked_to_end() -> None:
    process, url = serve(bundle())
    try:
        with Client(url) as client:
            client.start(hello("m", digest()))
            process.send_signal(signal.SIGTERM)
            assert client.closed() in (1012, 1001)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not PROC.exists(), reason="no /proc to see processes in")
def test_the_workers_of_a_killed_server_end() -> None:
    process, url = serve(bundle(), workers=1)
    with Client(url) as client:
        client.start(hello("m", digest()))
        client.want(1)
        client.kernel()
        children = children_of(process.pid)
        assert children
        process.kill()
    process.communicate()
    until(lambda: not any(alive(child) for child in children))


HANGS = """
import sys, time
from tilewright.cli import main, compile_workers
def build(*_):
    time.sleep(3600)
if __name__ == "__main__":
    compile_workers.build = build
    main(["serve", "m=" + sys.argv[1], "--port", "0", "--json"])
"""


@pytest.mark.skipif(not PROC.exists(), reason="no /proc to see processes in")
def test_a_server_ends_while_a_worker_hangs(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    process = subprocess.Popen(
        [sys.executable, str(script), str(bundle())], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        with Client(json.loads(process.stdout.readline())["url"]) as client:
            client.start(hello("m", digest()))
            client.want(1)
            with pytest.raises(TimeoutError):
                client.receive(0.5)
            process.send_signal(signal.SIGTERM)
            assert client.closed() in (1012, 1001)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def children_of(parent: int) -> list[int]:
    states = {int(p.parent.name): state(int(p.parent.name)) for p in PROC.glob("[0-9]*/stat")}
    return [process for process, (_, above) in states.items() if above == parent]


def alive(process: int) -> bool:
    return state(process)[0] not in ("", "Z")


def state(process: int) -> tuple[str, int]:
    """A letter, and the process above; nothing of one that is gone."""
    try:
        text = (PROC / str(process) / "stat").read_text()
    except OSError:
        return "", 0
    letter, above, *_ = text.rpartition(")")[2].split()
    return letter, int(above)


@pytest.mark.parametrize(
    ("store", "code", "error"),
    [("mysql://x/y", 2, "usage"), ("sqlite:///{here}/no.db", 10, "store-corrupt")],
)
def test_a_store_that_cannot_be_used_is_told_at_once(
    store: str, code: int, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.db").write_bytes(b"this is no database" * 100)
    url = store.format(here=tmp_path)
    called = Called(capsys, "serve", bundle(), "--port", 0, "--store", url, "--json")
    assert (called.code, called.json["error"]["code"]) == (code, error)


def test_a_store_that_is_down_does_not_keep_the_server_from_serving() -> None:
    process, url = serve(bundle(), store="postgresql+psycopg://nobody@127.0.0.1:1/none")
    try:
        with urllib.request.urlopen(url + "/bundles/m/bundle.json", timeout=SECONDS) as answer:
            assert answer.status == 200
        with Client(url) as client:
            postponed(client)
            client.want(1)
            client.kernel()
    finally:
        process.kill()
        process.communicate()

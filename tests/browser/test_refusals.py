"""What pages, headers and servers refuse: loads work all the same, or end with a typed error that
names the header, or whatever else it was, and the way out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from .bundles import Library
from .conftest import Visit
from .refusals import site
from .serving import plain

pytestmark = [pytest.mark.by_turns, pytest.mark.each_browser]

ANY_ORIGIN = {"Access-Control-Allow-Origin": "*"}
CSP = "Content-Security-Policy"
TRUSTED = "require-trusted-types-for 'script'"
ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
Told = dict[str, Any]


@pytest.fixture
def folder(library: Library, tmp_path: Path) -> Path:
    return site(tmp_path / "site", library.path("linear"))


class Asking:
    """Loads the bundle in a page of a server with these headers, and gives what it said."""

    def __init__(self, visit: Visit, folder: Path, stack: ExitStack) -> None:
        self._visit, self._folder, self._stack = visit, folder, stack

    def server(self, headers: dict[str, str], query: str = "") -> str:
        return self._stack.enter_context(plain(self._folder, headers, query))

    def __call__(self, headers: dict[str, str], query: str = "", **asked: str) -> Told:
        page = f"{self.server(headers, query)}/page.html?{urlencode(asked)}"
        told: Told = self._visit(page).do("told")
        assert "failed" not in told, told
        return told


@pytest.fixture
def ask(visit: Visit, folder: Path) -> Iterator[Asking]:
    with ExitStack() as stack:
        yield Asking(visit, folder, stack)


def works(told: Told) -> bool:
    assert told.get("outputs") == ["y"], told
    return True


def refused(told: Told, code: str, *words: str) -> None:
    assert (told.get("name"), told.get("code")) == ("EngineError", code), told
    said = f"{told['message']} {told['hint']}"
    assert told["hint"]
    assert all(word in said for word in words), said


@pytest.mark.parametrize("headers", [{}, ISOLATED], ids=["plain", "isolated"])
def test_an_engine_of_another_origin_works(ask: Asking, headers: dict[str, str]) -> None:
    other = ask.server(headers | ANY_ORIGIN)
    assert works(ask(headers, engine=f"{other}/engine/engine.js"))


def test_an_engine_of_another_origin_whose_workers_the_policy_refuses(ask: Asking) -> None:
    other = ask.server(ANY_ORIGIN)
    policy = {CSP: f"worker-src 'self'; script-src 'self' 'wasm-unsafe-eval' {other}"}
    told = ask(policy, engine=f"{other}/engine/engine.js")
    refused(told, told["code"], "worker-src", "blob:", other)
    assert told["code"] in ("host", "unsupported-host")


def test_trusted_types(ask: Asking) -> None:
    assert works(ask({CSP: TRUSTED}))
    assert works(ask({CSP: f"{TRUSTED}; trusted-types tilewright"}))


def test_trusted_types_that_do_not_know_the_policy(ask: Asking) -> None:
    told = ask({CSP: f"{TRUSTED}; trusted-types another"})
    refused(told, "unsupported-host", "trusted-types tilewright")


def test_a_policy_without_webassembly(ask: Asking) -> None:
    refused(ask({CSP: "script-src 'self'"}), "unsupported-host", "'wasm-unsafe-eval'", CSP)


def test_a_policy_without_workers(ask: Asking) -> None:
    told = ask({CSP: "worker-src 'none'"})
    refused(told, told["code"], "worker-src", CSP, "/engine/worker.js")
    assert told["code"] in ("host", "unsupported-host")


def test_a_policy_without_connections(ask: Asking) -> None:
    refused(ask({CSP: "connect-src 'none'"}), "network", "connect-src", CSP)


def test_a_bundle_of_another_origin(ask: Asking) -> None:
    other = ask.server({})
    told = ask({}, url=f"{other}/b/linear/")
    refused(told, "network", "CORS", "Access-Control-Allow-Origin", other)
    allowing = ask.server(ANY_ORIGIN)
    assert works(ask({}, url=f"{allowing}/b/linear/"))


def test_no_bundle_at_the_address(ask: Asking) -> None:
    told = ask({}, url="/b/nothing")
    refused(told, "network", "404", "/b/nothing/bundle.json", "Check the URL")
    assert told["facts"]["status"] == 404


DEVICES = {
    "wasm": {},
    "webgpu": {"device": "webgpu"},
    "recover": {"device": "webgpu", "recover": True},
    "auto": {"device": "auto"},
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_shared_worker(ask: Asking, device: str) -> None:
    """Firefox lets it start workers, Chromium does not."""
    told = ask({}, place="shared", options=json.dumps(DEVICES[device]))
    if "code" not in told:
        assert works(told)
    elif "webgpu" in DEVICES[device].values() and "wgsl" in told["message"]:
        refused(told, "unsupported-host", "--target wgsl")  # its worker says so
    else:
        refused(told, "unsupported-host", "no worker", "Only pages and dedicated workers")


@pytest.mark.parametrize("device", DEVICES)
def test_a_service_worker(ask: Asking, device: str) -> None:
    """It may neither start a worker nor import what recovery and `auto` need."""
    told = ask({}, place="service", options=json.dumps(DEVICES[device]))
    cause = "imports nothing on demand" if device in ("recover", "auto") else "no worker"
    refused(told, "unsupported-host", cause, "Only pages and dedicated workers")


@pytest.mark.parametrize("call", ["inspect", "cachedBytes", "clearCache"])
def test_other_calls_in_a_service_worker(ask: Asking, call: str) -> None:
    """They need no worker, but what is imported on demand."""
    told = ask({}, place="service", call=call)
    refused(told, "unsupported-host", "imports nothing on demand")


def test_a_sandboxed_frame(ask: Asking) -> None:
    """It has an origin of its own, so all files need CORS, also scripts of the page."""
    assert works(ask(ANY_ORIGIN, place="sandbox"))


def test_unknown_options(ask: Asking) -> None:
    told = ask({}, options='{"thread": 4}')
    refused(told, "input", "'thread'", "threads")


@pytest.mark.parametrize(
    "url",
    [
        "/b/linear", "/b/linear/", "/b/linear/bundle.json", "b/linear", "../b/linear/#part",
        "/b/./linear#part/of/it",
    ],
)  # fmt: skip
def test_the_folder_of_a_url(ask: Asking, url: str) -> None:
    told = ask({}, url=url)
    assert works(told)
    assert told["folder"].endswith("/b/linear/")


@pytest.mark.parametrize("url", ["/b/linear", "/b/linear/", "/b/linear/bundle.json"])
def test_a_query_goes_with_every_file(ask: Asking, url: str) -> None:
    """As signatures do: the server refuses files without it."""
    query = "v=2&sign=a%2Fb"
    told = ask({}, query=query, url=f"{url}?{query}#part")
    assert works(told)
    assert told["folder"].endswith(f"/b/linear/?{query}")
    refused(ask({}, query=query, url=url), "network", "403")


@pytest.mark.parametrize("url", ["blob:http://a.example/1", "data:text/plain,x", "http://"])
def test_addresses_without_folders(ask: Asking, url: str) -> None:
    refused(ask({}, url=url), "input", "no URL of a folder", "URL of a bundle")

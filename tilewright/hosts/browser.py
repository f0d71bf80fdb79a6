"""Runs a bundle in a real browser: headless Chromium or Firefox opens the server's host page.  It
also runs bundles in Node, where Dawn is WebGPU and there is no page.

Input: a bundle folder and arrays.  Output: arrays and times from the engine.  No browser driver is
needed; Python controls the page by docs/host-protocol.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import numpy as np

from tilewright.base.errors import HostError, TilewrightError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import StateEntry, TensorInfo, is_bundle, open_bundle
from tilewright.hosts.browser_connection import (
    RESTART,
    Json,
    Link,
    Progress,
    Reply,
    describe,
    tensors,
)
from tilewright.hosts.browser_process import BrowserProcess, started
from tilewright.hosts.browser_programs import PageProgram, program
from tilewright.hosts.inputs_outputs import entry_of, state_array, widened
from tilewright.server import BackgroundServer, Tuning, create_app
from tilewright.server.tune import SOCKET

Arrays = dict[str, Array]
Result = TypeVar("Result")
START_SECONDS = 90.0
CLOSE_SECONDS = 3.0
ABORT_SECONDS = 10.0
EXIT_SECONDS = 0.5


@dataclass(frozen=True)
class RunResult:
    """The outputs of one inference; times in milliseconds (docs/host-protocol.md)."""

    outputs: Arrays
    bucket: dict[str, int]
    milliseconds: float
    first_milliseconds: float
    total_milliseconds: float
    run: int


@dataclass(frozen=True)
class Timing:
    """Times of single runs in milliseconds; `first` is the first run's, which includes warm-up."""

    milliseconds: list[float]
    first: float
    bucket: dict[str, int]


class BrowserHost:
    """A browser that runs as long as the context: `with BrowserHost("firefox") as host: …`.

    timeout:   seconds without a message from the page after which a request fails
    isolation: False serves the page without isolation headers
    tuning:    the server's part for `BrowserModel.tune`
    port:      of the server, 0 for any free one; the page's storage belongs to its origin

    Raises HostError if the browser is missing, does not start or dies, UsageError for unknown ones.
    """

    def __init__(
        self,
        browser: str | PageProgram = "chromium",
        *,
        timeout: float = 120.0,
        isolation: bool = True,
        tuning: Tuning | None = None,
        port: int = 0,
    ) -> None:
        self.browser = program(browser) if isinstance(browser, str) else browser
        self.timeout = timeout
        self.isolation = isolation
        self.tuning = tuning
        self.port = port
        self.info: Json = {}
        self._bundles: dict[str, Path] = {}
        self._names = itertools.count(1)
        self._link = Link(self._check_alive)
        self._stack = ExitStack()
        self._process: BrowserProcess | None = None

    def __enter__(self) -> BrowserHost:
        app = create_app(
            self._bundles,
            host_socket=self._link.socket,
            tuning=self.tuning,
            isolation=self.isolation,
        )
        with ExitStack() as stack:
            server = stack.enter_context(BackgroundServer(app, port=self.port))
            url = f"{server.url}/host/host.html?token={self._link.token}"
            self._process = stack.enter_context(started(self.browser, url))
            hello = self._explained(lambda: self._link.wait_for_page(START_SECONDS))
            self._stack = stack.pop_all()
        self.info = {"browser": self.browser.name, "path": str(self.browser.path), **hello}
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with self._stack, suppress(TilewrightError):
            self._link.request("close", {}, timeout=CLOSE_SECONDS)

    def load(
        self,
        bundle: Path,
        *,
        memory_limit: int | None = None,
        features: Sequence[str] | None = None,
        threads: int | None = None,
        variant: str | None = None,
        device: str | None = None,
        software: bool | None = None,
        on_progress: Progress | None = None,
    ) -> BrowserModel:
        """Loads a bundle into the page.

        features: replaces the features that the engine detects
        variant:  name of the code variant to use
        device:   the kind of device to run on, instead of the host's own
        software: with the device `auto`, also measure software adapters
        """
        if not is_bundle(bundle):
            open_bundle(bundle)
        name = f"b{next(self._names)}"
        self._bundles[name] = bundle if bundle.is_dir() else bundle.parent
        wanted = {
            "memoryLimit": memory_limit,
            "features": None if features is None else list(features),
            "threads": threads,
            "variant": variant,
            "device": device or self.browser.device,
            "software": software,
        }
        options = {k: v for k, v in wanted.items() if v is not None}
        params = {"url": f"/bundles/{name}/", "options": options}
        result = self.request("load", params, on_progress=on_progress).result
        info, states = result["info"], msgspec.convert(result["states"], list[StateEntry])
        inputs = msgspec.convert(info["inputs"], list[TensorInfo])
        return BrowserModel(self, int(result["handle"]), info, inputs, states)

    def request(
        self,
        method: str,
        params: Json,
        frames: tuple[memoryview, ...] = (),
        on_progress: Progress | None = None,
        grace: float = 0,
    ) -> Reply:
        """Sends one request of the host protocol; see `Link.request`."""
        return self._explained(
            lambda: self._link.request(
                method, params, frames, timeout=self.timeout, on_progress=on_progress, grace=grace
            )
        )

    def _check_alive(self) -> None:
        if self._process is not None and (code := self._process.exit_code) is not None:
            raise HostError(
                f"{self.browser.name.capitalize()} ended unexpectedly",
                hint=RESTART,
                exit_code=code,
            )

    def _explained(self, ask: Callable[[], Result]) -> Result:
        """Adds browser, exit code and end of stderr to errors of the host itself."""
        try:
            return ask()
        except HostError as error:
            if "engine_code" in error.facts or self._process is None:
                raise
            facts: dict[str, Any] = {"host": self.browser.name}
            # The connection of a dying browser closes shortly before its process ends.
            facts |= {"exit_code": self._process.wait(EXIT_SECONDS), "stderr": self._process.tail()}
            raise HostError(error.message, hint=error.hint, **(facts | error.facts)) from error


@dataclass
class BrowserModel:
    """A bundle loaded in a page; `info` is the engine's description of it."""

    host: BrowserHost
    handle: int
    info: Json
    inputs: Sequence[TensorInfo]
    states: Sequence[StateEntry]

    def run(self, inputs: Mapping[str, Array]) -> RunResult:
        """Runs one inference.  inputs: arrays by name.  Raises InputError, KernelTrap,
        HostError."""
        entries = (entry_of(self.inputs, name, "input") for name in inputs)
        described = [describe(e.name, widened(e, inputs[e.name])) for e in entries]
        params = {"handle": self.handle, "inputs": [d for d, _ in described]}
        reply = self.host.request("run", params, tuple(data for _, data in described))
        found = reply.result
        return RunResult(
            tensors(found["outputs"], reply.frames),
            found["bucket"],
            found["milliseconds"],
            found["firstMilliseconds"],
            found["totalMilliseconds"],
            found["run"],
        )

    def generate(
        self,
        prompt: Sequence[int],
        most: int,
        past: int = 0,
        end: Sequence[int] = (),
        inputs: Mapping[str, Sequence[float]] | None = None,
    ) -> tuple[list[int], list[float]]:
        """The ids that follow a prompt, and the milliseconds to each; the first includes the
        prompt's time.

        past: tokens in the caches;  end: ids that end the text;  inputs: further inputs of each run

        Raises InputError for a prompt that does not fit or a full cache, KernelTrap, HostError.
        """
        given = {name: np.asarray(value).tolist() for name, value in (inputs or {}).items()}
        params: Json = {
            "handle": self.handle, "prompt": list(prompt), "past": past, "most": most,
            "end": list(end), "inputs": given,
        }  # fmt: skip
        found = self.host.request("generate", params).result
        return found["tokens"], found["milliseconds"]

    def time(
        self,
        runs: int = 20,
        warmup: int = 3,
        bucket: Mapping[str, int] | None = None,
        repeat: int | None = None,
    ) -> Timing:
        """Times `runs` inferences after `warmup` more, on the current contents of the inputs.

        repeat: on WebGPU, the time of one of this many consecutive runs by the GPU's own clock.
                Raises HostError (`unsupported-host`) if the adapter has none.
        """
        often = {} if repeat is None else {"repeat": repeat}
        found = self._ask("time", bucket, runs=runs, warmup=warmup, **often).result
        return Timing(found["milliseconds"], found["first"], found["bucket"])

    def profile(
        self, runs: int = 10, bucket: Mapping[str, int] | None = None, in_order: bool = False
    ) -> list[Json]:
        """The plan's steps with their times; on WebGPU the dispatches, some of several steps.

        in_order: on WebGPU, measure whole runs by the GPU's own clock.  Raises HostError
                  (`unsupported-host`) if the adapter has none.
        """
        more = {"inOrder": True} if in_order else {}
        steps: list[Json] = self._ask("profile", bucket, runs=runs, **more).result["steps"]
        return steps

    def tune(self, options: Json, on_event: Progress) -> Json:
        """Tunes the model's kernels; `on_event` gets each event of the page's tuner.

        options: of `tune` in web/tune/tuner.js Ctrl-C ends it early: the summary then has
                 `cancelled`, and its results are valid.
        """
        source = {"kind": "socket", "url": SOCKET}
        params = {"handle": self.handle, "source": source, "options": options}
        reply = self.host.request(
            "tune", params, on_progress=lambda p: on_event(p["event"]), grace=ABORT_SECONDS
        )
        return {**reply.result["summary"], "cancelled": reply.aborted}

    def state(self, name: str) -> Array:
        """A copy of a state's contents."""
        reply = self.host.request("state", {"handle": self.handle, "name": name})
        found: Array = tensors([reply.result["state"]], reply.frames)[name]
        return found

    def set_state(self, name: str, value: Array) -> None:
        """Sets a state's contents.  Raises InputError for what does not fit."""
        described, data = describe(name, state_array(entry_of(self.states, name, "state"), value))
        self.host.request("set_state", {"handle": self.handle, "inputs": [described]}, (data,))

    def reset(self) -> None:
        """Sets all states to zero."""
        self.host.request("reset", {"handle": self.handle})

    def asset(self, name: str) -> bytes:
        """A file that is part of the bundle."""
        return self.host.request("asset", {"handle": self.handle, "name": name}).frames[0]

    def dispose(self) -> None:
        """Frees the engine; calling it again does nothing."""
        self.host.request("dispose", {"handle": self.handle})

    def _ask(self, method: str, bucket: Mapping[str, int] | None, **params: int) -> Reply:
        chosen = {} if bucket is None else {"bucket": dict(bucket)}
        return self.host.request(method, {"handle": self.handle, **params, **chosen})

"""Every host by name, behind one shape: run a bundle, time bundles.

Input: the name of a host and bundle folders.  Output: functions that run or time.  The hosts
themselves are in tilewright/hosts, imported only when needed: other commands start fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import UsageError

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    """The result of one run; `milliseconds` is what the host itself measured."""

    outputs: Arrays
    bucket: Mapping[str, int]
    milliseconds: float


Runner = Callable[[Arrays], Ran]
Timer = Callable[[int], Sequence[float]]


@dataclass(frozen=True)
class _Kind:
    """How one host opens bundles; `timers` is None where times would mean nothing."""

    runner: Callable[[str, Path, int | None], Generator[Runner]]
    timers: Callable[[str, Sequence[Path], int], Generator[list[Timer]]] | None


@contextmanager
def open_runner(host: str, bundle: Path, threads: int | None = None) -> Generator[Runner]:
    """A function that runs the bundle on that host; None is as many threads as it likes."""
    yield from _kind(host).runner(host, bundle, threads)


@contextmanager
def open_timers(host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    """For each bundle a function that runs it so many times and gives the milliseconds of each."""
    yield from check_timing(host)(host, bundles, threads)


def check_timing(host: str) -> Callable[[str, Sequence[Path], int], Generator[list[Timer]]]:
    """How that host times bundles; a `UsageError` if it does not."""
    timers = _kind(host).timers
    if timers is None:
        named = ", ".join(name for name, kind in HOSTS.items() if kind.timers)
        raise UsageError(f"The host {host} is not for timing", hint=f"Choose one of {named}")
    return timers


def check_host(host: str) -> None:
    _kind(host)


def _kind(host: str) -> _Kind:
    if host not in HOSTS:
        raise UsageError(f"Unknown host: {host}", hint=f"Known are {', '.join(HOSTS)}")
    return HOSTS[host]


def _reference_runner(_host: str, bundle: Path, threads: int | None) -> Generator[Runner]:
    if (threads or 1) > 1:
        raise UsageError("The reference host has one thread", hint="Leave --threads out")
    from tilewright.hosts.reference import ReferenceHost

    reference = ReferenceHost(bundle)
    yield lambda inputs: _clocked(reference.run, inputs)


def _wasmtime_runner(_host: str, bundle: Path, threads: int | None) -> Generator[Runner]:
    from tilewright.hosts.wasmtime import WasmtimeHost

    wasmtime = WasmtimeHost(bundle, threads=threads or 1)
    yield lambda inputs: _clocked(wasmtime.run, inputs)


def _wasmtime_timers(_host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    from tilewright.hosts.wasmtime import WasmtimeHost

    yield [WasmtimeHost(bundle, threads=threads).time for bundle in bundles]


def _browser_runner(host: str, bundle: Path, threads: int | None) -> Generator[Runner]:
    from tilewright.hosts.browser import BrowserHost

    with BrowserHost(host) as browser:
        model = browser.load(bundle, threads=threads)

        def run(inputs: Arrays) -> Ran:
            found = model.run(inputs)
            return Ran(found.outputs, found.bucket, found.milliseconds)

        yield run


def _browser_timers(host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    from tilewright.hosts.browser import BrowserHost, BrowserModel

    def timer(model: BrowserModel) -> Timer:
        return lambda runs: model.time(runs, warmup=0).milliseconds

    with BrowserHost(host) as browser:
        yield [timer(browser.load(bundle, threads=threads)) for bundle in bundles]


def _clocked(run: Callable[[Arrays], Any], inputs: Arrays) -> Ran:
    start = time.perf_counter()
    found = run(inputs)
    return Ran(found.outputs, found.bucket, (time.perf_counter() - start) * 1e3)


HOSTS: Mapping[str, _Kind] = {
    "reference": _Kind(_reference_runner, None),
    "wasmtime": _Kind(_wasmtime_runner, _wasmtime_timers),
    "chromium": _Kind(_browser_runner, _browser_timers),
    "firefox": _Kind(_browser_runner, _browser_timers),
}

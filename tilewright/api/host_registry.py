"""Every host by name, with one interface: run a bundle, time bundles.

Input: the name of a host and bundle folders.  Output: functions that run or time.  The hosts
themselves are in tilewright/hosts; they are imported when needed, so that other commands start
fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.base.errors import UsageError, one_of, unknown_name
from tilewright.hosts.browser_programs import PROGRAMS, SECTIONS, program
from tilewright.targets import DEFAULT

if TYPE_CHECKING:
    from tilewright.hosts.cuda import CudaHost

Arrays = Mapping[str, Any]
#: Seconds that one run may take on wasmtime.
LONGEST = 3600.0


@dataclass(frozen=True)
class HostRun:
    """The result of one run; the host itself measured `milliseconds`.

    adapter: the device of WebGPU or CUDA: `name`, `description`, and whether it is `software`; for
             WebGPU also the `features` that kernels may use
    lost: sentences about what makes the host slower on this machine, such as a missing feature
    """

    outputs: Arrays
    bucket: Mapping[str, int]
    milliseconds: float
    adapter: Mapping[str, Any] | None = None
    lost: Sequence[str] = ()


Runner = Callable[[Arrays], HostRun]


class Timer(Protocol):
    """Runs a bundle repeatedly and gives the milliseconds of each; `plan` is a plan's number."""

    def __call__(self, runs: int, plan: int = ...) -> Sequence[float]: ...


@dataclass(frozen=True)
class _Kind:
    """How one host opens bundles.

    timers:   None if times on this host say nothing about a device
    engine:   gives name and version of the engine that runs bundles
    targets:  gives the targets that bundles must be compiled for
    variants: gives the variants made for this engine; () if the usual ones are
    """

    runner: Callable[[str, Path, int | None], Generator[Runner]]
    timers: Callable[[str, Sequence[Path], int], Generator[list[Timer]]] | None
    engine: Callable[[str], str]
    targets: Callable[[str], tuple[str, ...]] = lambda _: DEFAULT
    variants: Callable[[], tuple[str, ...]] = tuple


@contextmanager
def open_runner(host: str, bundle: Path, threads: int | None = None) -> Generator[Runner]:
    """A function that runs the bundle on that host.  threads: None lets the host choose"""
    yield from _kind(host).runner(host, bundle, threads)


@contextmanager
def open_timers(host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    """For each bundle a function that runs it repeatedly and gives the milliseconds of each run."""
    yield from check_timing(host)(host, bundles, threads)


def check_timing(host: str) -> Callable[[str, Sequence[Path], int], Generator[list[Timer]]]:
    """The host's function for `open_timers`.  Raises UsageError if the host cannot time bundles."""
    timers = _kind(host, timing_hosts()).timers
    if timers is None:
        raise UsageError(f"The host {host} cannot time kernels", hint=one_of(timing_hosts()))
    return timers


def has_times(host: str) -> bool:
    """Whether times on this host say something about a device."""
    return _kind(host).timers is not None


def check_host(host: str) -> None:
    _kind(host)


def targets_of(host: str) -> tuple[str, ...]:
    """The targets that a bundle must be compiled for to run on this host."""
    return _kind(host).targets(host)


def variants_of(host: str) -> tuple[str, ...]:
    """The code variants made for this host's engine; () if the usual ones are."""
    return _kind(host).variants()


def engine_of(host: str) -> str:
    """Name and version of this host's engine.  Raises a typed error if it is missing."""
    return _kind(host).engine(host)


def in_process() -> tuple[str, ...]:
    """Hosts that run in this process and need an adapter, a driver or a compiler besides
    packages."""
    names = (name for name in HOSTS if name not in PROGRAMS)
    return tuple(name for name in names if targets_of(name) not in ((), DEFAULT))


def timing_hosts() -> tuple[str, ...]:
    return tuple(name for name, kind in HOSTS.items() if kind.timers)


def _kind(host: str, allowed: Sequence[str] = ()) -> _Kind:
    """How a host opens bundles.  allowed: the hosts that the error lists; () for all"""
    if host not in HOSTS:
        raise unknown_name("host", host, allowed or HOSTS)
    return HOSTS[host]


def _reference_runner(_host: str, bundle: Path, threads: int | None) -> Generator[Runner]:
    if (threads or 1) > 1:
        raise UsageError("The reference host has one thread", hint="Leave --threads out")
    from tilewright.hosts.reference import ReferenceHost

    reference = ReferenceHost(bundle)
    yield lambda inputs: _clocked(reference.run, inputs)


def _wasmtime_runner(_host: str, bundle: Path, threads: int | None) -> Generator[Runner]:
    from tilewright.hosts.wasmtime import WasmtimeHost

    # The bundle may come from anyone, so its run time is limited and its files are checked.
    wasmtime = WasmtimeHost(bundle, threads=threads or 1, seconds=LONGEST)
    yield lambda inputs: _clocked(wasmtime.run, inputs)


def _wasmtime_timers(_host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    from tilewright.hosts.wasmtime import WasmtimeHost

    yield [WasmtimeHost(bundle, threads=threads).time for bundle in bundles]


def _wasmtime_variants() -> tuple[str, ...]:
    from tilewright.hosts.wasmtime import VARIANTS

    return VARIANTS


def _wgpu_runner(_host: str, bundle: Path, _threads: int | None) -> Generator[Runner]:
    from tilewright.hosts.wgpu import WgpuHost

    host = WgpuHost(bundle)
    yield lambda inputs: replace(
        _clocked(host.run, inputs), adapter=host.adapter, lost=tuple(host.lost)
    )


def _wgpu_timers(host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    from tilewright.hosts.wgpu import WgpuHost

    if threads > 1:
        raise UsageError(f"The host {host} has no threads", hint="Leave --threads out")
    yield [WgpuHost(bundle).time for bundle in bundles]


def _cuda_runner(host: str, bundle: Path, _threads: int | None) -> Generator[Runner]:
    found = _cuda_host(host, bundle)
    name = found.device.name
    adapter = {"name": name, "description": name, "software": host == "cuda-cpu"}
    yield lambda inputs: replace(_clocked(found.run, inputs), adapter=adapter)


def _cuda_timers(host: str, bundles: Sequence[Path], _threads: int) -> Generator[list[Timer]]:
    yield [_cuda_host(host, bundle).time for bundle in bundles]


def _cuda_host(host: str, bundle: Path) -> CudaHost:
    from tilewright.hosts.cuda import CudaHost
    from tilewright.hosts.cuda_devices import CpuDevice

    return CudaHost(bundle, CpuDevice() if host == "cuda-cpu" else None)


def _cuda_version(_host: str) -> str:
    from tilewright.hosts.cuda_devices import NvidiaDevice

    name: str = NvidiaDevice().name
    return name


def _cuda_targets(_host: str) -> tuple[str, ...]:
    from tilewright.hosts.cuda import TARGET

    return (TARGET,)


def _compiler(_host: str) -> str:
    from tilewright.hosts.cuda_on_cpu import compiler

    return compiler()


def _browser_runner(host: str, bundle: Path, threads: int | None) -> Generator[Runner]:
    from tilewright.hosts.browser import BrowserHost

    with BrowserHost(host) as browser:
        model = browser.load(bundle, threads=threads)

        def run(inputs: Arrays) -> HostRun:
            found, info = model.run(inputs), model.info
            adapter, lost = info["adapter"], tuple(info["lost"])
            return HostRun(found.outputs, found.bucket, found.milliseconds, adapter, lost)

        yield run


def _browser_timers(host: str, bundles: Sequence[Path], threads: int) -> Generator[list[Timer]]:
    from tilewright.hosts.browser import BrowserHost, BrowserModel

    def timer(model: BrowserModel) -> Timer:
        buckets = [plan["dims"] for plan in model.info["plans"]]

        def time(runs: int, plan: int = 0) -> Sequence[float]:
            return model.time(runs, warmup=0, bucket=buckets[plan]).milliseconds

        return time

    with BrowserHost(host) as browser:
        yield [timer(browser.load(bundle, threads=threads)) for bundle in bundles]


def _clocked(run: Callable[[Arrays], Any], inputs: Arrays) -> HostRun:
    start = time.perf_counter()
    found = run(inputs)
    return HostRun(found.outputs, found.bucket, (time.perf_counter() - start) * 1e3)


def _browser_version(host: str) -> str:
    return program(host).version()


def _browser_targets(host: str) -> tuple[str, ...]:
    return (SECTIONS[host],) if host in SECTIONS else DEFAULT


def _wgpu_version(_host: str) -> str:
    from tilewright.hosts.wgpu import adapter, adapter_description, wgpu

    found = adapter_description(adapter())
    kind = "software" if found["software"] else "GPU"
    return f"wgpu {wgpu().__version__} ({kind}: {found['name']})"


def _wgpu_targets(_host: str) -> tuple[str, ...]:
    from tilewright.hosts.wgpu import TARGET

    return (TARGET,)


HOSTS: Mapping[str, _Kind] = {
    "reference": _Kind(_reference_runner, None, lambda _: f"numpy {version('numpy')}"),
    "wasmtime": _Kind(
        _wasmtime_runner,
        _wasmtime_timers,
        lambda _: f"wasmtime {version('wasmtime')}",
        variants=_wasmtime_variants,
    ),
    **dict.fromkeys(
        PROGRAMS, _Kind(_browser_runner, _browser_timers, _browser_version, _browser_targets)
    ),
    "wgpu": _Kind(_wgpu_runner, _wgpu_timers, _wgpu_version, _wgpu_targets),
    "cuda": _Kind(_cuda_runner, _cuda_timers, _cuda_version, _cuda_targets),
    "cuda-cpu": _Kind(_cuda_runner, None, _compiler, _cuda_targets),
}

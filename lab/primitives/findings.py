"""The results of the microbenchmark by device, and the decisions that follow for all devices.

Input: files that `python -m lab primitives` writes, such as the one beside this file.  Output:
findings, and a decision per primitive: consistent, device-dependent, unconfirmed, or without
effect.  It knows no schedule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from tilewright.base.errors import UsageError

FORMAT = 2

#: The least difference, as a share of the time, for which a setting is chosen: smaller ones are
#: noise.
NOISE = 0.01

#: The number of browsers with a sure result that must agree before a setting is fixed for all
#: devices.
SURE_LEAST = 2

Verdict = Literal["consistent", "device-dependent", "unconfirmed", "no effect"]


@dataclass(frozen=True)
class Finding:
    """The time with the untuned setting over the time with the tuned one: the median of paired
    rounds, and an interval that contains it with at least 95 % confidence."""

    ratio: float
    low: float
    high: float
    n: int

    @property
    def rho(self) -> int:
        """1 if the tuned setting is the faster one: an element of nnJIT's vector."""
        return int(self.ratio > 1)

    @property
    def sure(self) -> bool:
        return self.low > 1 + NOISE or self.high < 1 - NOISE


@dataclass(frozen=True)
class Device:
    """One engine on one machine, with its findings.

    browser: whether the engine is a browser's; only browsers decide about settings
    """

    host: str
    browser: bool
    engine: str
    cpu: str
    date: str
    tilewright: str
    findings: Mapping[str, Finding]

    @property
    def key(self) -> tuple[str, str]:
        """Identifies engine and machine: a newer run with the same key replaces an older one."""
        return self.host, self.cpu

    @property
    def rho(self) -> tuple[int, ...]:
        return tuple(f.rho for f in self.findings.values())


@dataclass(frozen=True)
class Findings:
    """The devices, and the size (rows, depth, columns) of the product that they measured."""

    matmul: tuple[int, int, int]
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Decision:
    """The decision about a primitive for all devices.

    tuned: True or False: the tuned or untuned setting is fixed; None: neither
    by:    the devices with a sure result, as (host, processor); only these decide
    """

    verdict: Verdict
    tuned: bool | None
    by: tuple[tuple[str, str], ...] = ()


def decide(name: str, devices: Iterable[Device]) -> Decision:
    """The decision by the browsers with a sure result.  A single browser's result may hold on that
    device only."""
    sure = [d for d in devices if d.browser and name in d.findings and d.findings[name].sure]
    by, sides = tuple(d.key for d in sure), {d.findings[name].rho for d in sure}
    if not sure:
        return Decision("no effect", None)
    if len(sides) > 1:
        return Decision("device-dependent", None, by)
    if len(sure) < SURE_LEAST:
        return Decision("unconfirmed", None, by)
    return Decision("consistent", sides == {1}, by)


def decisions(devices: Sequence[Device]) -> dict[str, Decision]:
    """One for each primitive that any device has measured."""
    names = dict.fromkeys(name for d in devices for name in d.findings)
    return {name: decide(name, devices) for name in names}


def median_interval(values: Sequence[float]) -> Finding:
    """The median and its interval by order statistics, which assume nothing about the noise.

    The median lies between the k-th smallest and the k-th largest of n values, except with twice
    the probability of fewer than k heads in n throws of a coin.  k is chosen so that this is at
    most 5 % (k = 2 for n = 9, k = 1 for n = 6).
    """
    ordered, n = sorted(values), len(values)
    chance, term, k = 0.0, 0.5**n, 0
    while 2 * (chance + term) <= 0.05:
        chance += term
        k += 1
        term = term * (n - k + 1) / k
    at = max(k - 1, 0)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Finding(middle, ordered[at], ordered[n - 1 - at], n)


def merged(documents: Iterable[Findings]) -> Findings:
    """The devices of all documents; if one occurs twice, its later entry."""
    listed = list(documents)
    shapes = {d.matmul for d in listed}
    if len(shapes) != 1:
        raise UsageError(
            "Findings about different products cannot be merged",
            hint="Measure the other machines with this version of Tilewright",
            shapes=["x".join(map(str, s)) for s in sorted(shapes)],
        )
    devices = {d.key: d for document in listed for d in document.devices}
    return Findings(listed[0].matmul, tuple(devices[k] for k in sorted(devices)))


def to_json(document: Findings) -> dict[str, object]:
    """Plain data.  It contains the decisions for readers; programs compute them again from the
    findings."""
    return {
        "format": FORMAT,
        "matmul": list(document.matmul),
        "devices": [asdict(d) | {"rho": list(d.rho)} for d in document.devices],
        "decisions": {n: asdict(d) for n, d in decisions(document.devices).items()},
    }


def encoded(document: Findings) -> bytes:
    """The bytes of the file."""
    return json.dumps(to_json(document), indent=1).encode() + b"\n"


def read(path: Path) -> Findings:
    """The findings in a file.  Raises `UsageError` for a file that this program did not write."""
    try:
        return _document(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            "The file holds no findings about primitives",
            hint="Make one with: python -m lab primitives -o FILE",
            path=str(path),
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _document(data: Any) -> Findings:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}, not {FORMAT}")
    m, k, n = map(int, data["matmul"])
    return Findings((m, k, n), tuple(map(_device, data["devices"])))


def _device(data: Any) -> Device:
    facts = {k: str(data[k]) for k in ("host", "engine", "cpu", "date", "tilewright")}
    if not isinstance(data["browser"], bool):
        raise TypeError("browser is true or false")
    return Device(
        **facts,
        browser=data["browser"],
        findings={n: _finding(f) for n, f in data["findings"].items()},
    )


def _finding(data: Any) -> Finding:
    ratio, low, high = (float(data[k]) for k in ("ratio", "low", "high"))
    found = Finding(ratio, low, high, int(data["n"]))
    if not (0 < found.low <= found.ratio <= found.high and isfinite(found.high)):
        raise ValueError(f"{data} is no interval of a ratio")
    return found

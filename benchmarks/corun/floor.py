"""How much longer a critical request takes if normal work must leave completely: a bound's floor.

Input: a GPU with its driver, the extra `cuda`; names of workloads.  Output:
results/corun.floor.json: requests of a workload's first critical model, over the median of those
that come with pauses and have nothing beside them:

    nothing, no pauses            one after the other
    nothing                       with pauses of 0.3 ms on average, as before all others
    nothing, 10 ms between        with longer ones
    nothing, cold caches          as much memory as the L2 cache has was written before each
    normal work, budget 0         beside the normal models, which must leave
    normal work, weights kept     the same, the critical weights in a part of the L2 cache

By the host's clock, from the call to the answer, and by the GPU's, from the first to the last
kernel of the model.  What the GPU's clock tells is kernels that are started in vain and caches; the
rest is workers that leave, and the host.

    python -m benchmarks corun.floor [--pair MDTB-A] [--sms 8] [--seconds 3]
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run, nvidia_machine
from benchmarks.corun.policies import built
from benchmarks.records import Row
from lab.workloads import workload
from lab.workloads.models import model
from tilewright.base.budget import UNLIMITED
from tilewright.base.quantiles import quantile
from tilewright.elastic.background import GAP_S, Background, requests
from tilewright.elastic.corun import Corun
from tilewright.elastic.critical import CriticalModel
from tilewright.elastic.policy import Hold
from tilewright.elastic.policy.policies import SETTLE_US
from tilewright.elastic.settings import Settings
from tilewright.hosts.cuda_devices import CLOCK
from tilewright.hosts.cuda_tasks import Launch, Zeroes

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p995": 0.995}
ALONE, BESIDE, KEPT = "nothing", "normal work, budget 0", "normal work, weights kept"
#: More than the L2 cache of any card.
COLD_BYTES = 192 << 20
STAMP = (
    CLOCK
    + 'extern "C" __global__ void k(volatile unsigned *to) { *to = (unsigned)nanoseconds(); }\n'
)

#: Of one request, in microseconds: by the host's clock, by the GPU's.
Took = tuple[float, float]


class Stamped:
    """A critical model with a kernel before and one behind its own, which write the time."""

    def __init__(self, critical: CriticalModel) -> None:
        device = critical.device
        (kernel,) = device.compile("", [STAMP])
        self.critical, self._words = critical, [device.words() for _ in range(2)]
        first, last = (Launch(kernel, 1, 1, (ctypes.c_void_p(w.address),)) for w in self._words)
        critical.launches = [first, *critical.launches, last]

    def hold(self, budget: int) -> Hold:
        return Hold(budget, 0, len(self.critical.launches), waits=budget < UNLIMITED)

    def gpu_us(self) -> float:
        """Of the last request."""
        first, last = (int(word.value[0]) for word in self._words)
        return (last - first) % 2**32 / 1e3


def timed(
    stamped: Stamped,
    budget: int,
    seconds: float,
    busy: Background | None = None,
    expected_us: float | None = None,
    gap_s: float = GAP_S,
    before: Callable[[], None] = lambda: None,
) -> list[Took]:
    held = stamped.hold(budget)
    once = requests(stamped.critical, held, SETTLE_US, busy, expected_us, gap_s, before)
    found, stop = list[Took](), time.monotonic() + seconds
    while time.monotonic() < stop:
        found.append((once(), stamped.gpu_us()))
    return found


def beside(session: Corun, stamped: Stamped, seconds: float, expected_us: float) -> list[Took]:
    with session.background(budget=0) as busy:
        return timed(stamped, 0, seconds, busy, expected_us)


def times_beside(
    critical: Path, normal: Sequence[Path], sms: int, seconds: float
) -> Iterator[tuple[str, list[Took]]]:
    settings = partial(Settings, sms=sms, max_slowdown=1e3, measure_seconds=0.5)
    with Corun.prepare(critical, normal, settings()) as session:
        stamped = Stamped(session.models.critical[0].model)
        device = stamped.critical.device
        alone = timed(stamped, UNLIMITED, seconds)
        expected_us = statistics.median(host for host, _ in alone)
        yield ALONE, alone
        yield f"{ALONE}, no pauses", timed(stamped, UNLIMITED, seconds, gap_s=0.0)
        yield f"{ALONE}, 10 ms between", timed(stamped, UNLIMITED, 2 * seconds, gap_s=0.01)
        memory = device.memory(COLD_BYTES)

        def cold() -> None:
            device.start(Zeroes(memory.address, memory.size))
            device.wait()

        yield f"{ALONE}, cold caches", timed(stamped, UNLIMITED, seconds, before=cold)
        yield BESIDE, beside(session, stamped, seconds, expected_us)
    with Corun.prepare(critical, normal, settings(l2_persistence=True)) as session:
        yield KEPT, beside(session, Stamped(session.models.critical[0].model), seconds, expected_us)


def measure(pair: str, sms: int, seconds: float, folder: Path) -> Iterator[Row]:
    streams = workload(pair)
    names = [stream.model for stream in (streams.critical[0], *streams.normal)]
    critical, *normal = (built(name, model(name), folder) for name in names)
    middle: list[float] = []
    for name, found in times_beside(critical, normal, sms, seconds):
        middle = middle or [statistics.median(times) for times in zip(*found, strict=True)]
        row: Row = {"pair": pair, "sms": sms, "beside": name, "n": len(found)}
        for clock, times, unit in zip(
            ("host", "gpu"), zip(*found, strict=True), middle, strict=True
        ):
            row[f"{clock}_alone_us"] = round(unit, 1)
            row |= {f"{clock}_{k}": round(quantile(times, s) / unit, 4) for k, s in SHARES.items()}
        yield row


def main(
    run: Run,
    pair: Annotated[
        list[str] | None, typer.Option(help="By default MDTB-A to D; repeatable.")
    ] = None,
    sms: Annotated[list[int] | None, typer.Option(help="By default 8 and 30; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(help="Of each row.")] = 3.0,
) -> None:
    machine = nvidia_machine()
    gpu = {"gpu": machine.get("gpu")}
    with tempfile.TemporaryDirectory(prefix="corun-") as folder:
        for name in pair or [f"MDTB-{letter}" for letter in "ABCD"]:
            for number in sms or (8, 30):
                for row in measure(name, number, seconds, Path(folder)):
                    run.keep(gpu | row, facts={"machine": machine})

"""How much longer a critical request takes beside normal work that must leave completely: the floor
of every bound.

Input: a GPU with its driver, the extra `cuda`; names of workloads.  Output:
results/corun_floor.json: requests of a workload's first critical model, alone and beside its first
normal model with a budget of 0, by the host's clock (from the call to the answer) and by the GPU's
(between events around its kernels), over the median alone.  What the GPU's clock tells is workers
that leave, kernels that are started in vain and weights that left the caches; the rest is the
host's.

    python benchmarks/corun_floor.py [--pair MDTB-A] [--sms 8] [--seconds 3]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
from corun import built

from tilewright.base.budget import EVERYBODY
from tilewright.base.quantiles import quantile
from tilewright.elastic.agents import in_quiet
from tilewright.elastic.coordinator import now_us
from tilewright.elastic.measure import GAP_S, Background
from tilewright.elastic.models import CriticalModel
from tilewright.elastic.policy import Hold
from tilewright.elastic.policy.curves import gaps
from tilewright.elastic.policy.designs import SETTLE_US
from tilewright.elastic.session import CorunSession, Settings
from tilewright.elastic.workloads import workload
from tilewright.elastic.workloads.models import model
from tilewright.hosts.cuda_devices import Mark, NvidiaDevice

KEY = ("gpu", "pair", "sms", "beside")
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p995": 0.995}


def requests(
    critical: CriticalModel, held: Hold, seconds: float, busy: Background | None = None
) -> list[tuple[float, float]]:
    """Microseconds by the host's and by the GPU's clock of requests, as an agent makes them."""
    device = critical.device
    assert isinstance(device, NvidiaDevice)
    driver, stream = device.driver, device.stream
    begin, end = driver.event(), driver.event()

    def start() -> None:
        driver.mark(begin, stream)
        critical.start_parts([held], SETTLE_US, beside=1)
        driver.mark(end, stream)

    def wait(mark: Mark) -> None:
        while not mark.passed():
            pass

    def once() -> float:
        begun = now_us()
        in_quiet(device, start, wait, alone=not held.budget)
        return now_us() - begun

    found, pauses, stop = list[tuple[float, float]](), gaps(GAP_S), time.monotonic() + seconds
    while time.monotonic() < stop:
        if busy is not None:
            time.sleep(next(pauses))
        took = once() if busy is None else busy.around(once)
        found.append((took, 1e3 * driver.between(begin, end)))
    for event in (begin, end):
        driver.forget(event)
    return found


def rows_of(pair: str, sms: int, seconds: float, folder: Path) -> Iterator[dict[str, Any]]:
    streams = workload(pair)
    names = [each[0].model for each in (streams.critical, streams.normal)]
    critical_path, normal_path = (built(name, model(name), folder) for name in names)
    settings = Settings(sms=sms, max_slowdown=1e3, measure_seconds=1.0)
    with CorunSession(critical_path, [normal_path], settings) as session:
        critical = session.models[0]
        last = len(critical.launches)
        alone = requests(critical, Hold(EVERYBODY, 0, last), seconds)
        with session.background(budget=0) as busy:
            beside = requests(critical, Hold(0, 0, last, waits=True), seconds, busy)
    middle = [statistics.median(times) for times in zip(*alone, strict=True)]
    for name, found in (("nothing", alone), ("normal work, budget 0", beside)):
        row: dict[str, Any] = {"pair": pair, "sms": sms, "beside": name, "n": len(found)}
        for clock, times, unit in zip(
            ("host", "gpu"), zip(*found, strict=True), middle, strict=True
        ):
            row[f"{clock}_alone_us"] = round(unit, 1)
            row |= {f"{clock}_{k}": round(quantile(times, s) / unit, 4) for k, s in SHARES.items()}
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", action="append", help="default: MDTB-A to D")
    parser.add_argument("--sms", action="append", type=int, help="default: 8 and 30")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    facts = common.nvidia_facts(args.commit)
    gpu = facts["machine"].get("gpu")
    with tempfile.TemporaryDirectory(prefix="corun-") as folder:
        for pair in args.pair or [f"MDTB-{letter}" for letter in "ABCD"]:
            for sms in args.sms or (8, 30):
                for row in rows_of(pair, sms, args.seconds, Path(folder)):
                    print(row, flush=True)
                    common.merge("corun_floor", [{"gpu": gpu, **row}], KEY, **facts)


if __name__ == "__main__":
    main()

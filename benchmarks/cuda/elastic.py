"""What the second form of CUDA kernels costs alone, and how soon it makes room, on an NVIDIA GPU.

Input: a GPU with its driver, the extra `cuda`.  Output: results/cuda.elastic.json.

* alone: a plan in both forms by turns, each as one CUDA graph, by the GPU's clock: a product on the
  whole GPU, a model on a few multiprocessors; both give the same bits;
* room: a kernel that fills all multiprocessors runs; the budget becomes 0 by a write in another
  stream, after which comes a kernel that needs room on each: the time of both, beside the same on
  an idle GPU.

    python -m benchmarks cuda.elastic [--rounds 5] [--requests 300] [--sms 8] [--only AlexNet]
"""

from __future__ import annotations

import ctypes
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Run, nvidia_machine
from benchmarks.cuda.kernels import CUDA, cases
from benchmarks.gpu.gpu_clock import RUN_MS, WARM_MS
from benchmarks.gpu.products import Case
from benchmarks.options import Rounds, begins
from benchmarks.records import Row
from lab.timing import by_turns, figures
from lab.workloads.models import model
from tilewright.base.budget import UNLIMITED
from tilewright.base.dtypes import DTYPES
from tilewright.base.quantiles import quantile
from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import NvidiaDevice
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_tasks import Launch

RUNS = 5
MODELS = ("AlexNet", "SqueezeNet", "ResNet-50", "MobileNetV2", "BERT-base")
#: A block of this kernel fits beside no full multiprocessor's blocks, and ends soon.
PROBE = """extern "C" __global__ void __launch_bounds__(1024) k(unsigned *word) {
  if (threadIdx.x == 0) atomicAdd(word, 1u);
}
"""


def loaded(name: str, case: Case | None, sms: int, folder: Path) -> CudaHost:
    """A product on the whole GPU, or a model on so many multiprocessors."""
    made = case.subject(1, CUDA) if case else compile_model(model(name), CUDA)
    write(made.contents, folder)
    return CudaHost(folder, NvidiaDevice(Driver(0, None if case else sms)))


def alone(name: str, host: CudaHost, rounds: int) -> Row:
    device = host.device
    plan = ElasticPlan(host, Budget(device))
    rng = np.random.default_rng(0)
    inputs = {
        info.name: rng.uniform(0, 1, [int(d) for d in info.shape]).astype(DTYPES[info.dtype].numpy)
        for info in host.bundle.manifest.inputs
    }
    want = host.run(inputs).outputs
    plan.recorded()()
    device.wait()
    if plan.complete != len(plan.steps):
        raise SystemExit(f"{name}: {plan.complete} of {len(plan.steps)} steps are complete")
    for key, got in host.take(inputs).outputs.items():
        if got.tobytes() != want[key].tobytes():
            raise SystemExit(f"{name}: the elastic form gives other bits for {key}")
    once = host.clock(3)[-1]
    times = max(1, min(500, round(RUN_MS / max(once, 1e-3))))
    repeated = plan.recorded(times=times)
    timers: dict[str, Callable[[], list[float]]] = {
        "plain": lambda: [host.clock(1, repeat=times)[0]],
        "elastic": lambda: [device.milliseconds(repeated) / times],
    }
    for timer in timers.values():
        spent = 0.0
        while spent < WARM_MS:
            spent += timer()[0] * times
    found = by_turns(timers, rounds * RUNS)
    ratios = [e / p for p, e in zip(found["plain"], found["elastic"], strict=True)]
    return {
        "case": name,
        "kernels": len(plan.steps),
        "workers": max(step.launch.blocks for step in plan.steps),
        "plain_ms": round(statistics.median(found["plain"]), 5),
        "elastic_ms": round(statistics.median(found["elastic"]), 5),
        **figures(ratios, "ratio"),
    }


def quantiles(times: Sequence[float]) -> dict[str, float]:
    """Microseconds of milliseconds."""
    return {f"p{p}": round(1e3 * quantile(times, p / 100), 2) for p in (50, 99)}


def require_running(plan: ElasticPlan, when: str) -> None:
    if plan.complete:
        raise SystemExit(f"The kernel ended {when}")


def room(case: Case, requests: int, folder: Path, blocks_each: int) -> Iterator[Row]:
    """Rows for a probe of one block, and of `blocks_each` for each multiprocessor."""
    driver = Driver(0)
    normal, urgent = NvidiaDevice(driver), NvidiaDevice(driver, urgent=True)
    write(case.subject(1, CUDA).contents, folder)
    host = CudaHost(folder, normal)
    budget = Budget(normal)
    plan = ElasticPlan(host, budget)
    (probe,) = urgent.compile("", [PROBE])
    word = urgent.memory(4)
    rng = random.Random(0)
    for blocks in (1, blocks_each * driver.sms):
        launch = Launch(probe, blocks, 1024, (ctypes.c_void_p(word.address),))

        def request(launch: Launch = launch) -> float:
            def both() -> None:
                driver.write_word(budget.address, 0, urgent.stream)
                urgent.start(launch)

            return urgent.milliseconds(both)

        idle, busy = [], []
        for _ in range(requests):
            idle.append(request())
            budget.set(UNLIMITED)
            normal.wait()
            plan.begin()
            for _ in range(4):
                plan.start(0)
            time.sleep(rng.uniform(2e-4, 1e-3))
            require_running(plan, "before the request: the kernel is too short")
            busy.append(request())
            normal.wait()
            require_running(plan, "although it had to make room")
            budget.set(UNLIMITED)
        usual = statistics.median(idle)
        yield {
            "case": case.name,
            "blocks": blocks,
            "idle_us": quantiles(idle),
            "busy_us": quantiles(busy),
            "more_us": quantiles([t - usual for t in busy]),
            "n": requests,
        }


def main(
    run: Run,
    only: Annotated[
        list[str] | None, typer.Option(help="Cases that begin so, or room; repeatable.")
    ] = None,
    rounds: Rounds = 5,
    requests: Annotated[int, typer.Option(min=2, help="For room.")] = 300,
    sms: Annotated[int, typer.Option(help="Multiprocessors for models.")] = 8,
) -> None:
    known = {case.name: case for case in cases()}
    facts = {"machine": nvidia_machine()}
    with tempfile.TemporaryDirectory(prefix="elastic-") as folder:
        for number, name in enumerate((*known, *MODELS)):
            if begins(name, only):
                host = loaded(name, known.get(name), sms, Path(folder, str(number)))
                row = alone(name, host, rounds)
                run.keep({"what": "alone", "blocks": None, **row}, facts=facts)
        if not only or "room" in only:
            for row in room(known["GEMM 4096"], requests, Path(folder, "room"), 1):
                run.keep({"what": "room"} | row, facts=facts)

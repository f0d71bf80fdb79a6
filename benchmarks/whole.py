"""A model alone in three forms on an NVIDIA GPU: plain, elastic by steps, elastic as one kernel.

Input: a GPU with its driver, the extra `cuda`; names of models (tilewright/elastic/workloads).
Output: results/whole.json, milliseconds of an inference by the GPU's clock, by turns; each form's
outputs are compared with the plain ones, bit by bit.  Beside critical models `corun.py --whole`
compares them.

    python benchmarks/whole.py [--model ResNet-50] [--sms 8] [--rounds 10]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.elastic.workloads.models import model
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import NvidiaDevice
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_whole import RESIDENT, WholePlan

MODELS = ("AlexNet", "SqueezeNet", "ResNet-50", "MobileNetV2", "BERT-base")
#: Inferences that follow each other in one launch of one kernel.
CHAINED = 8


def row(name: str, driver: Driver, rounds: int, resident: int, folder: Path) -> dict[str, Any]:
    device = NvidiaDevice(driver)
    write(compile_model(model(name), Options(targets=("cuda",))).contents, folder / name)
    host = CudaHost(folder / name, device)
    rng, budget = np.random.default_rng(0), Budget(device)
    inputs = {
        info.name: rng.uniform(0, 1, [int(d) for d in info.shape]).astype(DTYPES[info.dtype].numpy)
        for info in host.bundle.manifest.inputs
    }
    want = host.run(inputs).outputs
    by_steps = ElasticPlan(host, budget)
    steps = by_steps.recorded()
    start = time.perf_counter()
    whole = WholePlan(host, budget, inferences=CHAINED, resident=resident)
    made = time.perf_counter() - start

    def chained() -> None:
        whole.begin()
        device.start(whole.launch(whole.steps * CHAINED))

    def once() -> None:
        whole.begin()
        device.start(whole.launch(whole.steps))

    forms: dict[str, tuple[Callable[[], None], int]] = {
        "steps": (steps, 1), "whole": (once, 1), "chained": (chained, CHAINED)
    }  # fmt: skip
    found: dict[str, list[float]] = {"plain": [], **{form: [] for form in forms}}
    for form, (run, inferences) in forms.items():
        run()
        device.wait()
        ended = by_steps.complete if form == "steps" else whole.complete
        assert ended == inferences * whole.steps, (form, ended)
        for key, got in host.take(inputs).outputs.items():
            assert got.tobytes() == want[key].tobytes(), (form, key)
    for _ in range(rounds):
        found["plain"].append(host.clock(1, repeat=CHAINED)[0])
        for form, (run, inferences) in forms.items():
            found[form].append(device.milliseconds(run) / inferences)
    return {
        "model": name,
        "sms": driver.sms,
        "blocks": whole.blocks,
        "resident": resident,
        "made_s": round(made, 2),
        **{f"{form}_ms": round(statistics.median(times), 4) for form, times in found.items()},
        "n": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="default: some")
    parser.add_argument("--sms", type=int, help="default: the whole GPU")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--resident", type=int, default=RESIDENT, help="threads of an SM")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    driver, rows = Driver(0, args.sms), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="whole-") as folder:
        for name in args.model or MODELS:
            rows.append(row(name, driver, args.rounds, args.resident, Path(folder)))
            print(rows[-1], flush=True)
    print(common.save("whole", rows, **common.nvidia_facts(args.commit)))


if __name__ == "__main__":
    main()

"""A client of a broker, as a process of its own: says what happens, and waits to be killed.

Arguments: the broker's socket, "critical" or "normal", bundles.  Output: a line for each step.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tilewright.elastic.agents import CriticalAgent, NormalAgent
from tilewright.elastic.broker import RemoteCoordinator, open_budget_word
from tilewright.elastic.critical import CriticalModel, critical_task
from tilewright.elastic.plans import ElasticKernels
from tilewright.elastic.policy import KernelCost, Normal, Phase
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan


def main(path: str, kind: str, bundle: str) -> None:
    remote = RemoteCoordinator(Path(path))
    word = open_budget_word(remote.welcome.kind, remote.welcome.word)
    host = CudaHost(Path(bundle), CpuDevice(1))
    budget = Budget(host.device, word.address)
    if kind == "normal":
        plan = ElasticKernels(ElasticPlan(host, budget))
        task = Normal("normal", (KernelCost(1, 32, 1.0, 1.0),) * len(plan.ends))
        agent = NormalAgent(remote, task, plan, host.device, lambda count: again(count))

        def again(count: int) -> None:
            print("inference", flush=True)
            agent.ask()

        agent.ask()
    else:
        task_ = critical_task(kind, (Phase(2, 1e6),))

        def begun() -> None:
            if kind == "stuck":
                word.set(0)
                print("begun", flush=True)
                time.sleep(600)

        critical = CriticalAgent(
            remote, task_, CriticalModel(host, budget), remote.welcome.by_kernels
        )
        while True:
            critical.request(begun)
            print("answered", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])

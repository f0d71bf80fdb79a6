"""L2 persistence: what is set aside, which launches carry a window, and what is given back.

The structures are NVIDIA's own bindings; calls of the driver are only written down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli_call import Called
from test_corun_agents import bundles as bundles

from tilewright.base.errors import HostError
from tilewright.bundle.weight_decoding import tensors_of
from tilewright.elastic.critical import CriticalModel, PersistentWeights
from tilewright.elastic.policy import Curve, Phase
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_l2_persistence import L2Cache, Window
from tilewright.hosts.cuda_tasks import Launch, Task

MB = 1 << 20
WINDOW = Window(4096, 100, 0.5)


class Gpu:
    """A GPU that allows so many bytes, in steps of `grain`, and had `before` set aside."""

    def __init__(self, most: int, widest: int, before: int = 0, grain: int = 1) -> None:
        self.limits = {
            "MAX_PERSISTING_L2_CACHE_SIZE": most,
            "MAX_ACCESS_POLICY_WINDOW_SIZE": widest,
        }
        self.aside, self.grain, self.calls = before, grain, list[tuple[Any, ...]]()
        self.l2 = L2Cache(
            pytest.importorskip("cuda.bindings.driver"), self.call, self.limits.__getitem__
        )

    def call(self, name: str, *args: Any) -> int:
        self.calls.append((name, *args))
        if name == "cuCtxSetLimit":
            self.aside = args[1] // self.grain * self.grain
        return self.aside

    def use(self) -> None:
        self.calls.append(("use",))

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


def test_weights_that_fit_stay_whole() -> None:
    gpu = Gpu(32 * MB, 128 * MB)
    assert gpu.l2.keep([(4096, 5 * MB)]) == (Window(4096, 5 * MB, 1.0),)
    assert gpu.aside == 5 * MB


def test_several_share_what_the_device_allows() -> None:
    """No window is wider than the device's, and the share is of what the driver really gave."""
    gpu = Gpu(33 * MB, 40 * MB, grain=16 * MB)
    first, none, second = gpu.l2.keep([(0, 24 * MB), (1, 0), (64 * MB, 100 * MB)])
    assert gpu.aside == 32 * MB
    assert first == Window(0, 24 * MB, 0.5)
    assert none is None
    assert second == Window(64 * MB, 40 * MB, 0.5)


def test_nothing_is_set_aside_for_nothing() -> None:
    gpu = Gpu(32 * MB, 128 * MB)
    assert gpu.l2.keep([(1, 0)]) == (None,)
    assert gpu.calls == []
    gpu.l2.release()
    assert gpu.calls == []


@pytest.mark.parametrize("limits", [(0, 128 * MB), (32 * MB, 0)])
def test_a_device_without_is_refused(limits: tuple[int, int]) -> None:
    gpu = Gpu(*limits)
    with pytest.raises(HostError, match="cannot reserve a part of its L2 cache") as raised:
        gpu.l2.keep([(0, 1)])
    assert raised.value.facts["most_bytes"] == limits[0]
    assert "Leave out" in raised.value.hint


def test_a_driver_that_refuses_the_limit() -> None:
    def call(name: str, *_: Any) -> int:
        raise HostError("CUDA failed with CUDA_ERROR_UNSUPPORTED_LIMIT", hint="", host="cuda")

    cache = L2Cache(pytest.importorskip("cuda.bindings.driver"), call, lambda name: MB)
    with pytest.raises(HostError, match=r"does not reserve .*UNSUPPORTED_LIMIT") as raised:
        cache.keep([(0, 1)])
    assert "Leave out" in raised.value.hint


def test_the_limit_becomes_what_it_was() -> None:
    gpu = Gpu(32 * MB, 128 * MB, before=3 * MB)
    gpu.l2.keep([(0, MB)])
    gpu.l2.keep([(0, 2 * MB)])
    gpu.l2.release()
    assert gpu.aside == 3 * MB
    assert gpu.names[-2:] == ["cuCtxResetPersistingL2Cache", "cuCtxSetLimit"]
    count = len(gpu.calls)
    gpu.l2.release()
    assert len(gpu.calls) == count


def test_a_launch_carries_its_window() -> None:
    gpu = Gpu(MB, MB)
    gpu.l2.launch(Launch("kernel", 7, 128, (), 2048, WINDOW), ("values", "types"), 5)
    ((name, config, kernel, parameters, extra),) = gpu.calls
    assert (name, kernel, parameters, extra) == (
        "cuLaunchKernelEx",
        "kernel",
        ("values", "types"),
        0,
    )
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (7, 1, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (128, 1, 1)
    assert (config.sharedMemBytes, int(config.hStream), config.numAttrs) == (2048, 5, 1)
    (attribute,) = config.attrs
    policy = attribute.value.accessPolicyWindow
    assert attribute.id.name == "CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW"
    assert (int(policy.base_ptr), policy.num_bytes, policy.hitRatio) == (4096, 100, 0.5)
    assert policy.hitProp.name == "CU_ACCESS_PROPERTY_PERSISTING"
    assert policy.missProp.name == "CU_ACCESS_PROPERTY_NORMAL"


def test_a_launch_without_one_is_as_before() -> None:
    calls = list[str]()

    class Api:
        def __getattr__(self, name: str) -> Callable[..., tuple[int]]:
            return lambda *args: (calls.append(name), (0,))[1]

    driver = object.__new__(Driver)
    driver._api, gpu = Api(), Gpu(MB, MB)
    driver.l2 = gpu.l2
    launch = Launch("kernel", 1, 32, ())
    driver.launch(launch, 5)
    assert (calls, gpu.names) == (["cuLaunchKernel"], [])
    driver.launch(replace(launch, window=WINDOW), 5)
    assert (calls, gpu.names) == (["cuLaunchKernel"], ["cuLaunchKernelEx"])


class Recording(CpuDevice):
    """Keeps what is recorded: what a CUDA graph would be made of."""

    def __init__(self) -> None:
        super().__init__(1)
        self.recorded = list[Task]()

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        self.recorded += tasks
        return super().record(tasks)


def test_every_kernel_of_a_critical_model_has_the_window(bundles: tuple[Path, Path]) -> None:
    device = Recording()
    host = CudaHost(bundles[0], device)
    model = CriticalModel(host, Budget(device), window=WINDOW)
    phases = [Phase(len(model.launches), 10.0, Curve(((0, 1.0),)))]
    model.prepare(phases)
    model.start(phases, [0])
    launches = [task for task in device.recorded if isinstance(task, Launch)]
    assert len(launches) >= len(model.launches) == 2
    assert {launch.window for launch in launches} == {WINDOW}
    # the same kernels of a normal model have none
    assert {launch.window for _, launch in host.steps(-1, ())} == {None}


def test_weights_are_one_range_that_has_them_all(bundles: tuple[Path, Path]) -> None:
    host = CudaHost(bundles[1], CpuDevice(1))
    address, size = host.weights
    found, tensors = host.device.read(address, size), list(tensors_of(host.bundle))
    assert all(np.ascontiguousarray(t).tobytes() in found for t in tensors)
    assert sum(t.nbytes for t in tensors) <= size < sum(t.nbytes + 256 for t in tensors)


def test_what_stays_of_all_weights_and_until_when() -> None:
    device, gpu = object.__new__(NvidiaDevice), Gpu(6 * MB, 8 * MB)
    device.driver = gpu  # type: ignore[assignment]
    hosts: list[Any] = [SimpleNamespace(weights=(n * 64 * MB, n * 12 * MB)) for n in (1, 0)]
    kept = PersistentWeights(device, hosts)
    assert kept.windows == (Window(64 * MB, 8 * MB, 0.75), None)
    assert kept.share == 0.5
    del kept
    assert gpu.aside == 0
    assert gpu.names[-3:] == ["use", "cuCtxResetPersistingL2Cache", "cuCtxSetLimit"]


def test_the_cpu_refuses(bundles: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--device", "cpu", "--json", "--rate", "0", "--l2-persistence")
    called = Called(capsys, "corun", *bundles, *options)
    assert called.code == HostError.exit_code, called.out
    assert "L2" in called.json["error"]["message"]

"""A session of the tuning socket against the real server: what is sent, and how much of it."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, get_args

import pytest
import wasmtime
from helpers.waiting import PATIENCE
from tuning_client import Client, hello
from tuning_site import VARIANT, app, bundle, digest

from lab.subjects import matmul
from tilewright.base.errors import CompilerBug
from tilewright.bundle import open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.compiler import Options
from tilewright.kernel.spec import Kernel
from tilewright.server import BackgroundServer, Tuning, create_app
from tilewright.server.tune import latency_summary
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine, by_machine
from tilewright.targets.simd.strategies import default_schedule
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.messages import Done, KernelMessage, Objective, Welcome

DEVICE = CLASSES["wasm-x86-relaxed-32k"]
SPECS = (0, 1, 2, 3)
OBJECTIVES = get_args(Objective)


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def start(client: Client, specs: Iterable[int] = SPECS, **changes: Any) -> Welcome:
    return client.start(hello("m", digest(), specs, **changes))


def test_all_candidates_come_once_each_as_it_was_built(site: str) -> None:
    kernels = kernels_of(open_bundle(bundle()))
    spaces = [space_of(kernel, DEVICE) for kernel in kernels]
    with Client(site) as client:
        welcome = start(client)
        assert [o.spec for o in welcome.kernels] == list(SPECS)
        assert [o.checksum for o in welcome.kernels] == [s.checksum for s in spaces]
        assert [o.count for o in welcome.kernels] == [len(s.schedules) for s in spaces]
        assert [o.needs for o in welcome.kernels] == [s.needs[0] for s in spaces]
        found = client.all_of(len(SPECS))
        client.bye()
        assert client.closed() == 1000
    assert len(found) == sum(len(s.order) for s in spaces)
    for spec, space in enumerate(spaces):
        numbers = [m.candidate for m in found if m.spec == spec]
        assert sorted(numbers) == sorted(space.order)
    for message in found[::7]:
        space = spaces[message.spec]
        schedule = space.schedules[message.candidate]
        built = build(kernels[message.spec], schedule, "wasm", VARIANT)
        assert message.digest == built.digest
        assert message.tiles == built.tiles
        assert message.needs == space.needs[message.candidate]
        assert message.schedule == str(schedule)
        assert message.mark == space.marks[message.candidate]
        assert set(message.grains) == {0}
        assert 1 <= message.grains[0] <= message.tiles


def test_the_modules_are_valid(site: str) -> None:
    config = wasmtime.Config()
    config.wasm_threads = True
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    with Client(site) as client:
        start(client)
        client.want(3)
        for _ in range(3):
            client.kernel()
            wasmtime.Module(engine, client.payload)


def test_never_more_than_the_credit(site: str) -> None:
    with Client(site) as client:
        start(client)
        for credit in (1, 3):
            client.want(credit)
            for _ in range(credit):
                client.kernel()
            with pytest.raises(TimeoutError):
                client.receive(0.2)


def test_a_new_connection_goes_on_where_the_old_one_ended(site: str) -> None:
    tried: dict[int, list[int]] = {spec: [] for spec in SPECS}
    with Client(site) as client:
        start(client)
        client.want(10)
        for _ in range(10):
            message = client.kernel()
            tried[message.spec].append(message.candidate)
    with Client(site) as client:
        welcome = start(client, tried={s: tuple(c) for s, c in tried.items()})
        rest = client.all_of(len(SPECS))
    everything = sum(o.count - 1 for o in welcome.kernels)
    assert len(rest) == everything - 10
    assert not {(m.spec, m.candidate) for m in rest} & {(s, c) for s in tried for c in tried[s]}


def test_two_tabs_tune_one_bundle(site: str) -> None:
    with Client(site) as one, Client(site) as other:
        start(one)
        start(other)
        first, second = one.all_of(len(SPECS)), other.all_of(len(SPECS))
    assert [(m.spec, m.candidate, m.digest) for m in first] == [
        (m.spec, m.candidate, m.digest) for m in second
    ]


def test_done_tells_what_it_took(site: str) -> None:
    with Client(site) as client:
        welcome = start(client, specs=(1,))
        client.want(64)
        messages = [client.receive()]
        while not isinstance(messages[-1], Done):
            messages.append(client.receive())
            client.want(1)
        assert messages[-1].sent == welcome.kernels[0].count - 1 == len(messages) - 1
        assert messages[-1].milliseconds > 0
    rounds = get(site, "/api/stats")["rounds"]
    assert rounds["count"] >= messages[-1].sent
    assert 0 < rounds["median_ms"] <= rounds["p95_ms"] <= rounds["most_ms"]


@pytest.mark.parametrize("count", [1, 2, 3, 19, 20, 21, 100])
def test_times_are_told_in_order(count: int) -> None:
    """Of a few rounds, too: the 95th percentile of two is the longer one."""
    times = [36.4 / n for n in range(1, count + 1)]
    told = latency_summary(times)
    assert told["median_ms"] <= told["p95_ms"] <= told["most_ms"]
    assert sum(t <= told["p95_ms"] + 5e-4 for t in times) >= 0.95 * count


def test_nothing_is_left_to_try(site: str) -> None:
    space = space_of(kernels_of(open_bundle(bundle()))[1], DEVICE)
    with Client(site) as client:
        start(client, specs=(1,), tried={1: space.order})
        assert client.next(Done) == Done(spec=1, sent=0, milliseconds=0.0)
        client.bye()
        assert client.closed() == 1000


def test_candidates_are_made_once_for_all() -> None:
    with BackgroundServer(app()) as server:
        for _ in range(3):
            with Client(server.url) as client:
                start(client, specs=(0,))
                count = len(client.all_of(1))
        assert get(server.url, "/api/stats")["candidates"] == {"made": count, "shared": 2 * count}


def test_the_classes_are_public(site: str) -> None:
    classes = get(site, "/api/classes")
    assert [c["id"] for c in classes] == list(CLASSES)


def test_another_objective_is_another_order(site: str) -> None:
    def order(objective: str) -> list[int]:
        with Client(site) as client:
            start(client, specs=(0,), objective=objective)
            return [m.candidate for m in client.all_of(1)]

    orders = [order(o) for o in OBJECTIVES]
    spaces = [space_of(kernels_of(open_bundle(bundle()))[0], DEVICE, o) for o in OBJECTIVES]
    assert orders == [list(space.trial) for space in spaces]
    assert set(orders[1]) < set(orders[0])


def test_workers_are_processes_and_a_dead_one_is_replaced() -> None:
    pools: list[Executor] = []
    real = makers(1)

    def pool() -> Executor:
        pools.append(real.pool())
        return pools[-1]

    made = replace(real, pool=pool)
    with BackgroundServer(app(makers=made)) as server, Client(server.url) as client:
        start(client, specs=(0,))
        client.want(1)
        first = client.kernel()
        (old,) = pools
        assert isinstance(old, ProcessPoolExecutor)
        for worker in list(old._processes):
            os.kill(worker, signal.SIGKILL)
        client.want(1)
        second = client.kernel()
        assert first.candidate != second.candidate
        assert len(pools) == 2
        for each in pools:
            each.shutdown(wait=True)


def test_a_candidate_that_cannot_be_made_is_left_out() -> None:
    real = makers(0)
    kernel = kernels_of(open_bundle(bundle()))[0]
    bad = space_of(kernel, DEVICE).order[3]
    schedule = space_of(kernel, DEVICE).schedules[bad]

    def built(k: Any, s: Any, *variant: str) -> Any:
        if s == schedule:
            raise CompilerBug("this one cannot be made")
        return real.built(k, s, *variant)

    made = replace(real, built=built)
    with BackgroundServer(app(makers=made)) as server, Client(server.url) as client:
        welcome = start(client, specs=(0,))
        found = client.all_of(1)
    assert bad not in {m.candidate for m in found}
    assert len(found) == welcome.kernels[0].count - 2


def test_slow_work_for_one_does_not_delay_another() -> None:
    """While a space is computed for one client, another one is served."""
    real, begun, served = makers(0), Event(), Event()

    def space(kernel: Any, device: str, objective: Any) -> Any:
        if objective == "scratch":
            begun.set()
            assert served.wait(PATIENCE), "nobody was served meanwhile"
        return real.space(kernel, device, objective)

    made = replace(real, space=space, workers=2)
    with (
        BackgroundServer(app(makers=made)) as server,
        Client(server.url) as slow,
        Client(server.url) as quick,
    ):
        slow.send(hello("m", digest(), (0,), objective="scratch"))
        assert begun.wait(PATIENCE)
        start(quick, specs=(1,))
        quick.want(1)
        assert isinstance(quick.receive(), KernelMessage)
        served.set()
        slow.next(Welcome)


def test_a_bundle_with_poor_schedules_is_offered_the_good_ones(tmp_path: Path) -> None:
    """Its own schedule has no number; the compiler's own choice comes as the first candidate."""

    def poor(kernel: Kernel, machine: Machine) -> Schedule:
        schedule = default_schedule(kernel, machine)
        return replace(schedule, x0=1, y0=4, r0=1) if kernel.anchor == "contract" else schedule

    options = Options(schedule=by_machine(poor), variants=(VARIANT,))
    manifest = write(matmul(24, 32, 16, options).contents, tmp_path)
    found = open_bundle(tmp_path)
    assert found.manifest == manifest
    site = create_app({"poor": tmp_path}, tuning=Tuning(makers=makers(0)))
    with BackgroundServer(site) as server, Client(server.url) as client:
        offer = client.start(hello("poor", found.pointer.manifest.digest)).kernels[0]
        assert offer.default is None
        client.want(1)
        first = client.kernel()
        assert first.candidate == 0
        assert first.mark == "default"

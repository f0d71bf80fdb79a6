"""Compile workers: a call that hangs ends in bounded time, typed, and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

import pytest
from helpers.hasty import LONG, SHORT, Hasty
from tuning_client import Client, hello
from tuning_site import app, bundle, digest

from tilewright.base.errors import TilewrightError
from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.server import BackgroundServer, session_resources
from tilewright.server.workers import TRIES, CompileTimeout, Workers
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.messages import Done, Welcome


def hasty(monkeypatch: pytest.MonkeyPatch, hangs: Callable[..., bool]) -> None:
    """A server's workers are so."""
    monkeypatch.setattr(session_resources, "Workers", partial(Hasty, hangs=hangs))


def in_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LONG):
            await work()

    asyncio.run(bounded())


def test_a_process_that_hangs_is_killed_and_replaced() -> None:
    workers = Hasty(makers(1).pool, 1, LONG, hangs=lambda function, *_: function is time.sleep)

    async def work() -> None:
        first = await workers.run(os.getpid)
        assert await workers.run(os.getpid) == first
        with pytest.raises(CompileTimeout, match="finish in time") as caught:
            await workers.run(time.sleep, 3600)
        assert caught.value.facts == {"function": "sleep", "seconds": SHORT}
        assert await workers.run(os.getpid) != first
        await gone(first)
        workers.close()
        with pytest.raises(TilewrightError, match="shutting down"):
            await workers.run(os.getpid)

    in_loop(work)


def test_workers_without_work_end_too() -> None:
    workers = Workers(makers(1).pool, 2, LONG)

    async def work() -> None:
        one, two = await asyncio.gather(*(workers.run(os.getpid) for _ in range(2)))
        assert one != two
        workers.close()
        for process in (one, two):
            await gone(process)
        with pytest.raises(TilewrightError, match="shutting down"):
            await workers.run(os.getpid)

    in_loop(work)


async def gone(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(process, 0)
            await asyncio.sleep(0.01)


def test_a_process_whose_call_is_cancelled_is_killed() -> None:
    """Else the program would wait for it at its end, and whoever comes next at once."""
    workers = Workers(makers(1).pool, 1, LONG)

    async def work() -> None:
        first = await workers.run(os.getpid)
        hangs = asyncio.ensure_future(workers.run(time.sleep, 3600))
        await asyncio.sleep(0)
        hangs.cancel()
        await asyncio.wait([hangs])
        assert hangs.cancelled()
        await gone(first)
        assert await workers.run(os.getpid) != first
        workers.close()

    in_loop(work)


def test_others_go_on_beside_one_that_hangs_and_behind_it() -> None:
    released = Event()
    hasty = [False]
    workers = Hasty(makers(0).pool, 2, LONG, hangs=lambda f, *_: hasty[0] and f is not abs)

    async def work() -> None:
        hangs = asyncio.ensure_future(workers.run(released.wait, LONG))
        assert [await workers.run(abs, -n) for n in range(20)] == list(range(20))
        assert not hangs.done()
        hangs.cancel()
        hasty[0] = True
        both = [asyncio.ensure_future(workers.run(released.wait, LONG)) for _ in range(3)]
        waiting = [asyncio.ensure_future(workers.run(abs, -n)) for n in range(4)]
        assert await asyncio.gather(*waiting) == list(range(4))
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [type(error) for error in found] == [CompileTimeout] * 3
        assert await workers.run(abs, -9) == 9

    try:
        in_loop(work)
    finally:
        released.set()


def test_an_error_of_the_function_is_its_own() -> None:
    workers = Workers(makers(0).pool, 1, LONG)

    def fails(error: Exception) -> None:
        raise error

    async def work() -> None:
        for error in (ValueError("a bug"), TimeoutError("its own")):
            with pytest.raises(type(error), match=str(error)):
                await workers.run(fails, error)

    in_loop(work)


def test_a_candidate_that_never_comes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real, released = makers(0), Event()
    space = space_of(kernels_of(open_bundle(bundle()))[0], CLASSES["wasm-x86-relaxed-32k"])
    bad = space.order[3]
    hasty(monkeypatch, lambda _, __, schedule=None, *___: schedule == space.schedules[bad])

    def built(kernel: Any, schedule: Any, *variant: str) -> Any:
        if schedule == space.schedules[bad]:
            released.wait(LONG)
        return real.built(kernel, schedule, *variant)

    with BackgroundServer(app(makers=replace(real, built=built))) as server:
        for _ in range(2):  # the second one need not wait
            with Client(server.url) as client:
                client.start(hello("m", digest(), (0,)))
                found = {m.candidate for m in client.all_of(1)}
            assert found == set(space.order) - {bad}
        released.set()


def test_a_candidate_whose_workers_died_is_made_for_the_next() -> None:
    real = makers(0)
    space = space_of(kernels_of(open_bundle(bundle()))[0], CLASSES["wasm-x86-relaxed-32k"])
    bad = space.order[3]
    deaths = [BrokenExecutor("killed")] * TRIES

    def built(kernel: Any, schedule: Any, *variant: str) -> Any:
        if schedule == space.schedules[bad] and deaths:
            raise deaths.pop()
        return real.built(kernel, schedule, *variant)

    with BackgroundServer(app(makers=replace(real, built=built))) as server:
        for lost in ({bad}, set()):
            with Client(server.url) as client:
                client.start(hello("m", digest(), (0,)))
                found = {m.candidate for m in client.all_of(1)}
            assert found == set(space.order) - lost


def test_a_kernel_whose_space_never_comes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real, released = makers(0), Event()
    bad = kernels_of(open_bundle(bundle()))[0]
    calls = []
    hasty(monkeypatch, lambda function, kernel, *_: function is space and kernel == bad)

    def space(kernel: Any, device: str, objective: Any) -> Any:
        if kernel == bad:
            calls.append(kernel)
            released.wait(LONG)
        return real.space(kernel, device, objective)

    with BackgroundServer(app(makers=replace(real, space=space))) as server:
        for _ in range(3):
            with Client(server.url) as client:
                client.send(hello("m", digest(), (1, 0, 2), shares=(0.1, 0.8, 0.1)))
                assert [offer.spec for offer in client.next(Welcome).kernels] == [1, 2]
                assert client.next(Done) == Done(spec=0, sent=0, milliseconds=0.0)
                assert client.all_of(1)
        assert len(calls) == 1, "it is left alone for a while"
        with Client(server.url) as client:
            client.send(hello("m", digest(), (0,)))
            assert client.next(Welcome).kernels == ()
            assert client.next(Done).spec == 0
        released.set()

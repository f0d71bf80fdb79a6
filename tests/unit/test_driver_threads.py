"""The threaded driver in wasmtime, Python threads as workers: same bits, faults, preempting.

Tiles are tiny and every step that can be shared is, so that workers meet as often as possible.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime
from helpers.sharing import sharing
from helpers.waiting import a_while, until

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32, I64
from tilewright.base.errors import HostError, KernelTrap, UsageError
from tilewright.bundle import write
from tilewright.compiler import Compiled, compile_model
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    ModelNode,
    Node,
    contract,
    elementwise,
    gather,
    graph_input,
    node,
)
from tilewright.hosts.wasmtime import (
    ABORT,
    DONE,
    EPOCH,
    TRAPPED,
    WORKER_BYTES,
    WORKER_LINES,
    WasmtimeHost,
    leave_run,
)
from tilewright.targets.wasm.plan_image import HEADER_WORDS, STEP_WORDS

MODELS = Path(__file__).parents[1] / "models"
PREEMPT, SPIN, STALL_LIMIT, COMING, POSITION = 0, 16, 20, 152, 256
STALLED = 2
TICKETS, FLAGS, CHAIN = 4, 7, 6
#: Seconds, and waits of the driver: a worker may be stopped for long on a busy machine.
PATIENT, LONG = 300.0, 3000
ROWS = 64
Array = np.ndarray


def weight(rows: int, cols: int, seed: int) -> Node:
    values = np.random.default_rng(seed).standard_normal((rows, cols), np.float32) / 4
    return node(ops.Weight(f"w{seed}", (rows, cols), F32, lambda: values))


def block() -> Graph:
    """Independent steps, steps that need all of them, a small chain, and places that are reused."""
    x = graph_input("x", (ROWS, 16), F32)
    y = x
    for layer in range(3):
        q, k, v = (contract("mk,kn->mn", y, weight(16, 16, 10 * layer + n)) for n in range(3))
        s = contract("mk,nk->mn", q, k)
        y = elementwise("add", y, contract("mk,kn->mn", s, v))
        y = elementwise("tanh", y)
    return Graph("block", (("x", x),), (("y", y),))


def table() -> Graph:
    ids = graph_input("ids", (512,), I64)
    y = gather(weight(5, 12, 3), ids, 0, source=ModelNode("words"))
    return Graph("table", (("ids", ids),), (("y", y),))


Made = Callable[..., WasmtimeHost]


@pytest.fixture
def host(tmp_path: Path) -> Made:
    """Writes what was compiled and opens it with so many threads."""

    def opened(compiled: Compiled, threads: int) -> WasmtimeHost:
        path = tmp_path / compiled.manifest.name
        if not path.exists():
            write(compiled.contents, path)
        return WasmtimeHost(path, threads=threads)

    return opened


def x_of(seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((ROWS, 16), np.float32)}


def records(host: WasmtimeHost) -> list[list[int]]:
    plan = host.bundle.manifest.plans[0]
    words = np.frombuffer(host.bundle.read(host.build.plans[0]), np.uint32)[HEADER_WORDS:]
    return [words[n * STEP_WORDS :][:STEP_WORDS].tolist() for n in range(len(plan.steps))]


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_same_bits_for_every_thread_count(host: Made, threads: int) -> None:
    compiled = compile_graph(block(), sharing())
    one, many = host(compiled, 1), host(compiled, threads)
    shapes = records(one)
    assert max(r[TICKETS] for r in shapes) >= threads
    assert {r[FLAGS] for r in shapes} == {0, 1, 2, 3}  # x is read again: from the end
    for seed in range(20):
        want = one.run(x_of(seed)).outputs["y"]
        np.testing.assert_array_equal(many.run(x_of(seed)).outputs["y"], want)


@pytest.mark.parametrize("name", ["bert-tiny-sdpa-dynamo", "resnet-tiny-dynamo"])
def test_same_bits_of_models(host: Made, name: str) -> None:
    buckets = {"n": (8,)} if "bert" in name else None
    compiled = compile_model(MODELS / f"{name}.onnx", sharing(buckets=buckets))
    rng = np.random.default_rng(0)
    inputs = {
        i.name: rng.standard_normal(i.shape).astype(np.float32)
        if i.dtype == "f32"
        else np.ones([8 if isinstance(d, str) else d for d in i.shape], np.int64)
        for i in compiled.manifest.inputs
    }
    want = host(compiled, 1).run(inputs).outputs
    many = host(compiled, 3)
    for _ in range(10):
        for label, found in many.run(inputs).outputs.items():
            np.testing.assert_array_equal(found, want[label])


def test_several_workers_take_part(host: Made) -> None:
    many = host(compile_graph(block(), sharing()), 3)
    lines = [WORKER_LINES + n * WORKER_BYTES + 4 for n in range(3)]
    end = time.monotonic() + PATIENT
    while not all(many.memory.word(line) for line in lines):
        many.run(x_of())
        assert time.monotonic() < end


def test_a_chain_goes_with_one_ticket(host: Made) -> None:
    """Nothing is worth sharing here: one head with all steps behind it."""
    one = host(compile_graph(block(), sharing(1e9)), 1)
    shapes = records(one)
    assert [r[TICKETS] for r in shapes] == [1] * len(shapes)
    assert [r[CHAIN] for r in shapes] == list(range(len(shapes), 0, -1))
    shared = host(compile_graph(replace(block(), name="shared"), sharing()), 1)
    np.testing.assert_array_equal(one.run(x_of()).outputs["y"], shared.run(x_of()).outputs["y"])


@pytest.mark.parametrize("barrier", [0.0, 1e9])
def test_steps_one_by_one(host: Made, barrier: float) -> None:
    """A profiler runs any part of a plan, also one that begins or ends inside a chain."""
    many = host(compile_graph(block(), sharing(barrier)), 3)
    want = many.run(x_of()).outputs["y"]
    (plan,), (place,) = many.bundle.manifest.plans, many.places
    (x,), (y,), ((m, n),) = place.inputs, place.outputs, plan.outputs
    for length in (1, 2, 5):
        many.memory.write(x_of()["x"].tobytes(), x)
        for first in range(0, len(plan.steps), length):
            last = min(first + length, len(plan.steps))
            assert many._caller.call("run", place.address, first, last, 3) == 0
        found = np.frombuffer(many.memory.read(y, 4 * m * n), np.float32)
        np.testing.assert_array_equal(found.reshape(want.shape), want)


def test_workers_that_never_come_are_not_waited_for(host: Made) -> None:
    alone = host(compile_graph(block(), sharing()), 1)
    want = alone.run(x_of()).outputs["y"]
    alone.threads = 8
    np.testing.assert_array_equal(alone.run(x_of()).outputs["y"], want)


def test_many_runs_and_numbers_that_wrap(host: Made) -> None:
    """The number of a run's first step passes 2**32 unharmed."""
    many = host(compile_graph(block(), sharing()), 3)
    want = many.run(x_of()).outputs["y"]
    steps = len(many.bundle.manifest.plans[0].steps)
    many.memory.set(EPOCH, -100 * steps)
    for _ in range(300):
        np.testing.assert_array_equal(many.run(x_of()).outputs["y"], want)
    assert 0 <= many.memory.word(EPOCH) < 400 * steps


def test_arguments_of_another_run_are_left_alone(host: Made) -> None:
    """A worker that was late reads arguments while the next run's are written: it takes nothing."""
    many = host(compile_graph(block(), sharing()), 2)
    many.memory.set(SPIN, -1)
    many.run(x_of())

    def taken(epoch: int, coming: int) -> bool:
        before = progress(many)
        for word, value in ((COMING, coming), (POSITION, 0), (POSITION + 4, epoch), (DONE, 0)):
            many.memory.set(word, value)
        many.memory.set(EPOCH, epoch)
        if epoch == coming:
            until(lambda: progress(many) > before)
        a_while()
        return progress(many) > before

    epoch = many.memory.word(EPOCH)
    assert not taken(epoch + 1000, epoch + 2000)
    assert taken(epoch + 2000, epoch + 2000)
    many.memory.set(SPIN, 0)


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def body() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, found


def progress(host: WasmtimeHost) -> int:
    return sum(host.memory.word(WORKER_LINES + n * WORKER_BYTES + 4) for n in range(3))


@pytest.mark.parametrize("barrier", [0.0, 1e9])
def test_preempting_stops_between_tiles(host: Made, barrier: float) -> None:
    """Set in mid-run: nothing moves, nobody gives up, and then the result is the same."""
    many = host(compile_graph(block(), sharing(barrier)), 3)
    want = many.run(x_of()).outputs["y"]
    many.memory.set(STALL_LIMIT, 1)
    many.memory.set(PREEMPT, 1)
    thread, found = in_background(lambda: many.run(x_of()))
    before = progress(many)
    for _ in range(5):  # many times the patience
        a_while()
    assert progress(many) == before
    assert thread.is_alive()
    many.memory.set(STALL_LIMIT, LONG)
    for _ in range(20):  # a few tiles at a time
        many.memory.set(PREEMPT, 0)
        many.memory.set(PREEMPT, 1)
    many.memory.set(PREEMPT, 0)
    thread.join(PATIENT)
    np.testing.assert_array_equal(found[0].outputs["y"], want)  # type: ignore[attr-defined]


@pytest.mark.parametrize("bad", [0, 255, 511])
def test_a_trap_in_any_worker(host: Made, bad: int) -> None:
    many = host(compile_graph(table(), sharing()), 3)
    ids = np.arange(512) % 5
    right = many.run({"ids": ids}).outputs["y"]
    for _ in range(30):
        wrong = ids.copy()
        wrong[bad] = 5
        with pytest.raises(KernelTrap) as caught:
            many.run({"ids": wrong})
        assert caught.value.facts["node"] == "words"
        assert caught.value.facts["step"] == 0
        np.testing.assert_array_equal(many.run({"ids": ids}).outputs["y"], right)


def test_the_first_trap_is_the_one_that_counts(host: Made) -> None:
    """Two workers trap in one run: the second takes nothing back of what the first said."""
    memory = host(compile_graph(table(), sharing()), 1).memory
    for number, step in ((1, 4), (2, 7)):
        memory.set(WORKER_LINES + number * WORKER_BYTES, step)
    memory.set(ABORT, STALLED)
    leave_run(memory, 1, lambda _: None)
    leave_run(memory, 2, lambda _: None)
    assert (memory.word(TRAPPED), memory.word(ABORT)) == (4, STALLED)
    assert [memory.word(WORKER_LINES + n * WORKER_BYTES) for n in (1, 2)] == [0, 0]


@pytest.mark.parametrize("word", [DONE, WORKER_LINES + WORKER_BYTES])
def test_a_trap_wakes_who_sleeps(host: Made, word: int) -> None:
    """A worker that waits for others hears of a trap by a notify, not by its next look."""
    opened = host(compile_graph(table(), sharing()), 1)
    worker = opened._caller
    sleeper = wasmtime.Module(
        opened._engine,
        """(module (import "env" "memory" (memory 1 65536 shared))
        (func (export "sleep") (param i32) (result i32)
          (memory.atomic.wait32 (local.get 0) (i32.const 0) (i64.const 400000000000))))""",
    )

    def sleep() -> object:
        store = wasmtime.Store(opened._engine)
        made = wasmtime.Instance(store, sleeper, [opened.memory.memory])
        call: Any = made.exports(store)["sleep"]
        return call(store, word)

    opened.memory.set(word, 0)
    thread, found = in_background(sleep)
    end = time.monotonic() + PATIENT
    while thread.is_alive() and time.monotonic() < end:
        leave_run(opened.memory, 1, worker.wake)
        thread.join(0.01)
    assert found == [0]  # woken, not timed out


def test_a_ticket_that_is_never_finished(host: Made) -> None:
    """Somebody takes a ticket and dies: the run ends with an error, and the next one is right."""
    many = host(compile_graph(block(), sharing()), 2)
    want = many.run(x_of()).outputs["y"]
    many.memory.set(STALL_LIMIT, 3)
    many.memory.set(PREEMPT, 1)
    epoch = many.memory.word(EPOCH)
    thread, found = in_background(lambda: many.run(x_of()))
    until(lambda: many.memory.word(EPOCH) != epoch)
    many.memory.set(POSITION, many.memory.word(POSITION) + 1)
    many.memory.set(PREEMPT, 0)
    thread.join(PATIENT)
    assert isinstance(found[0], HostError)
    many.memory.set(STALL_LIMIT, LONG)
    np.testing.assert_array_equal(many.run(x_of()).outputs["y"], want)


def test_two_models_at_once(host: Made) -> None:
    one = host(compile_graph(block(), sharing()), 2)
    other = host(compile_graph(table(), sharing()), 2)
    ids = np.arange(512) % 5
    want, right = one.run(x_of()).outputs["y"], other.run({"ids": ids}).outputs["y"]

    def again() -> None:
        for _ in range(50):
            np.testing.assert_array_equal(one.run(x_of()).outputs["y"], want)

    thread, found = in_background(again)
    for _ in range(50):
        np.testing.assert_array_equal(other.run({"ids": ids}).outputs["y"], right)
    thread.join(PATIENT)
    assert found == [None]


@pytest.mark.parametrize("threads", [0, 33])
def test_thread_counts_that_make_no_sense(host: Made, threads: int) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        host(compile_graph(table(), sharing()), threads)

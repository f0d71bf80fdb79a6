"""The broker: models of several processes, some of which die in the middle."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.policy_run import NORMAL as ANOTHER
from helpers.waiting import PATIENCE, until
from test_corun_agents import bundles as bundles

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, BUDGET, UNLIMITED
from tilewright.base.errors import AdmissionRefused, HostError, InputError
from tilewright.elastic.agents import NormalAgent
from tilewright.elastic.broker import (
    Broker,
    FileWord,
    GpuWord,
    RemoteCoordinator,
    file_of,
    server,
)
from tilewright.elastic.broker.messages import MOST_BYTES, BrokerWelcome, decoded, encoded
from tilewright.elastic.coordination import now_us
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.critical import critical_task
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Begin,
    Critical,
    Curve,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    Gpu,
    KernelCost,
    Normal,
    Phase,
    Refuse,
    Scheduler,
    policy_named,
)
from tilewright.elastic.policy.baseline import REQUESTS
from tilewright.elastic.policy.policies import SETTLE_US
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan

CLIENT = Path(__file__).with_name("corun_client.py")
CRITICAL = critical_task("critical", (Phase(1, 100.0, Curve(((0, 1.0), (4, 1.02)))),))
NORMAL = Normal("normal", (KernelCost(4, 32, 1.0, 1.0, 0.5),) * 2, priority=2)


class Word(FileWord):
    """allow: instead of what it does when it is set"""

    allow: Callable[[int], None] | None = None

    def set(self, workers: int) -> None:
        (self.allow or super().set)(workers)


def broker_at(path: Path) -> Broker:
    made = partial(Word, file_of(path), create=True)
    return Broker(path, Scheduler(policy_named("tilewright"), Gpu(2)), made)


class Served:
    """A broker in this process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "broker.sock"
        self.broker = broker_at(self.path)

    @property
    def word(self) -> Word:
        assert isinstance(self.broker.word, Word)
        return self.broker.word


def ask(remote: RemoteCoordinator, told: Told, times: int, took_us: float) -> None:
    """Critical requests one after the other; told: what their task hears"""
    for _ in range(times):
        number = remote.request()
        remote.post(Arrived(now_us(), "critical", number))
        assert isinstance(told.next(), Begin)
        remote.post(Finished(now_us(), number, took_us))


def after_a_look(
    remote: RemoteCoordinator, task: Critical, over_us: float, alone_us: float
) -> tuple[Told, Told]:
    """What a critical and a normal task hear after four requests over the bound, and a look at
    the time alone."""
    critical, normal = Told(), Told()
    remote.join(task, critical.append)
    remote.join(ANOTHER, normal.append)
    remote.post(Arrived(now_us(), "normal", remote.request()))
    ask(remote, critical, 4, over_us)
    for _ in range(2):  # the look begins when these have ended
        assert isinstance(normal.next(), Enqueue)
        remote.post(Ended(now_us(), "normal", 0))
    ask(remote, critical, REQUESTS, alone_us)
    return critical, normal


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.broker.close()


class Told(deque[Action]):
    def next(self) -> Action:
        until(lambda: len(self))
        return self.popleft()


def test_events_and_actions_go_there_and_back(served: Served) -> None:
    with RemoteCoordinator(served.path) as remote:
        critical, normal = Told(), Told()
        remote.join(CRITICAL, critical.append)
        remote.join(NORMAL, normal.append)
        number = remote.request()
        remote.post(Arrived(now_us(), "normal", remote.request()))
        assert normal.next() == Enqueue("normal", 0, UNLIMITED, begins=True)
        assert normal.next() == Enqueue("normal", 1, UNLIMITED)
        remote.post(Arrived(now_us(), "critical", number))
        assert critical.next() == Begin(number, "critical", (4,), SETTLE_US, 1)
        remote.post(Finished(now_us(), number, 100.0))
        remote.post(Ended(now_us(), "normal", 1))
        until(lambda: served.broker.coordinator.state.normal[0].complete == 1)


def test_refusals_reach_the_client(served: Served) -> None:
    with RemoteCoordinator(served.path) as one, RemoteCoordinator(served.path) as other:
        one.join(CRITICAL, lambda action: None)
        with pytest.raises(AdmissionRefused, match="already"):
            other.join(CRITICAL, lambda action: None)
        told = Told()
        other.join(critical_task("tight", CRITICAL.phases, deadline_ms=0.3), told.append)
        request = other.request()
        other.post(Arrived(now_us(), "tight", request, now_us() - 1e3))
        refusal = told.next()
        assert isinstance(refusal, Refuse)
        assert isinstance(refusal.error, AdmissionRefused)
        assert refusal.error.facts["task"] == "tight"


def test_nobody_speaks_for_another(served: Served) -> None:
    with RemoteCoordinator(served.path) as one, RemoteCoordinator(served.path) as other:
        told = Told()
        one.join(CRITICAL, told.append)
        number = one.request()
        one.post(Arrived(now_us(), "critical", number))
        assert isinstance(told.next(), Begin)
        heard = Told()
        other.join(NORMAL, heard.append)
        other.post(Finished(now_us(), number, 1.0))
        assert isinstance(heard.next(), Refuse)  # the end of its connection
        assert served.broker.coordinator.state.running is not None


def test_a_clock_ahead_stops_nothing(served: Served) -> None:
    with RemoteCoordinator(served.path) as remote:
        remote.join(NORMAL, lambda action: None)
        remote.post(Arrived(1e18, "normal", remote.request()))
        until(lambda: served.broker.coordinator.state.normal[0].backlog)
        assert served.broker.coordinator.state.now <= now_us()


def no_threads() -> bytes:
    """A normal task by whose costs the policy would divide by 0."""
    told = encoded(replace(NORMAL, kernels=NORMAL.kernels[:1]))
    assert told.count(b"\xa7threads\x20") == 1
    return told.replace(b"\xa7threads\x20", b"\xa7threads\x00")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff",
        (MOST_BYTES + 1).to_bytes(4, "little"),
        (3).to_bytes(4, "little") + b"abc",
        encoded(BrokerWelcome(1, "cpu", b"", "tilewright", False)),
        encoded(Finished(0.0, 7, 5.0)),
        no_threads(),
    ],
)
def test_nonsense_ends_a_connection_and_nothing_else(served: Served, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(served.path))
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        link.settimeout(PATIENCE)
        while link.recv(4096):
            pass
    with RemoteCoordinator(served.path) as remote:
        remote.join(NORMAL, lambda action: None)


def test_messages_of_another_version_are_refused() -> None:
    with pytest.raises(InputError, match="not a message"):
        decoded(b"\x92\xa5Other\x80")


def test_one_broker_for_a_socket_and_old_sockets_are_replaced(served: Served) -> None:
    word = served.broker.word
    word.set(3)
    with pytest.raises(HostError, match="already"):
        broker_at(served.path)
    assert word_at(served.path) == 3
    dead = served.path.with_name("dead.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    FileWord(file_of(dead), create=True)
    with broker_at(dead), RemoteCoordinator(dead):
        assert word_at(dead) == UNLIMITED
        assert dead.stat().st_mode & 0o077 == 0
    with pytest.raises(HostError, match="Start one"):
        RemoteCoordinator(dead)
    assert not file_of(dead).exists()


def word_at(path: Path, number: int = BUDGET) -> int:
    return int.from_bytes(file_of(path).read_bytes()[WORD_BYTES * number :][:WORD_BYTES], "little")


def test_files_of_the_user_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("mine")
    with pytest.raises(HostError, match="not a socket"):
        broker_at(path)
    assert path.read_text() == "mine"
    assert not file_of(path).exists()
    other = tmp_path / "other.sock"
    file_of(other).write_text("mine")
    with pytest.raises(HostError, match="budget word"):
        broker_at(other)
    assert file_of(other).read_text() == "mine"
    assert not other.exists()
    with socket.socket(socket.AF_UNIX) as left:  # of a broker that died
        left.bind(str(other))
    with pytest.raises(HostError, match="budget word"):
        broker_at(other)
    assert file_of(other).read_text() == "mine"


def test_a_broker_takes_clients_after_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, accept = [errno.ECONNABORTED, errno.EMFILE, errno.ENFILE], socket.socket.accept

    def failing(listener: socket.socket) -> tuple[socket.socket, Any]:
        if errors:
            raise OSError(errors.pop(), "injected")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    path = tmp_path / "broker.sock"
    with broker_at(path), RemoteCoordinator(path) as remote:
        assert not errors
        remote.join(NORMAL, lambda action: None)


def test_a_client_without_a_thread_leaves_room_for_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(server, "MOST_CLIENTS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(served.path))
            while link.recv(1 << 16):  # the welcome, then the end
                pass
    with RemoteCoordinator(served.path) as remote:
        remote.join(NORMAL, lambda action: None)


def test_an_unexpected_error_of_the_broker_ends_it_with_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sees the end, later ones see no broker, and who runs the broker gets the error."""
    path = tmp_path / "broker.sock"
    served = broker_at(path)

    def fails() -> bytes:
        raise KeyError("injected")

    monkeypatch.setattr(served.word, "handle_bytes", fails)
    with pytest.raises(HostError, match="accepts no more clients, or has ended"):
        RemoteCoordinator(path)
    served._thread.join(PATIENCE)
    with pytest.raises(HostError, match="no broker serves"):
        RemoteCoordinator(path)
    with pytest.raises(HostError, match=r"accepting clients failed: .*injected") as raised:
        served.check()
    assert isinstance(raised.value.__cause__, KeyError)
    served.close()
    assert not path.exists()


def test_an_unexpected_error_of_a_client_ends_its_tasks_with_that_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its requests would wait forever for a thread that has ended."""

    def fails(said: Event | Action) -> str:
        if isinstance(said, Begin):
            raise KeyError("injected")
        return owner(said)

    told = Told()
    with RemoteCoordinator(served.path) as remote:
        owner = remote._delivery.owner
        monkeypatch.setattr(remote._delivery, "owner", fails)
        remote.join(CRITICAL, told.append)
        remote.post(Arrived(now_us(), "critical", remote.request()))
        refusal = told.next()
        assert isinstance(refusal, Refuse)
        assert "injected" in refusal.error.message
        with pytest.raises(HostError, match="injected"):
            remote.join(NORMAL, told.append)


def test_a_broker_that_does_not_answer_is_an_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.elastic.broker.remote.ANSWERS_S", 0.01)
    ended = threading.Event()
    monkeypatch.setattr(served.broker.coordinator, "join", lambda *_: ended.wait(PATIENCE))
    answers = pytest.raises(HostError, match="did not answer")
    with RemoteCoordinator(served.path) as remote, answers:
        remote.join(NORMAL, lambda action: None)
    ended.set()


@pytest.mark.parametrize("taken", [NORMAL, CRITICAL])
def test_a_late_answer_is_not_that_of_another_task(
    served: Served, monkeypatch: pytest.MonkeyPatch, taken: Normal | Critical
) -> None:
    """The first task is answered after its deadline, just before the second one.  Only the task
    whose name another client has may be refused."""
    late, join = list[Normal | Critical](), server._Client._join

    def joins(client: Any, task: Normal | Critical) -> None:
        late.append(task)
        if task == CRITICAL:
            for each in late:
                join(client, each)

    def admitted() -> tuple[Normal | Critical, ...]:
        state = served.broker.coordinator.state
        return *(n.task for n in state.normal), *state.critical_tasks

    with RemoteCoordinator(served.path) as other, RemoteCoordinator(served.path) as remote:
        other.join(taken, lambda action: None)
        monkeypatch.setattr(server._Client, "_join", joins)
        with monkeypatch.context() as patch:
            patch.setattr("tilewright.elastic.broker.remote.ANSWERS_S", 0.01)
            with pytest.raises(HostError, match="did not answer"):
                remote.join(NORMAL, lambda action: None)
        if taken == CRITICAL:
            with pytest.raises(AdmissionRefused, match="already"):
                remote.join(CRITICAL, lambda action: None)
        else:
            remote.join(CRITICAL, lambda action: None)
        until(lambda: len(admitted()) == (1 if taken == CRITICAL else 2))
        assert remote._joined.keys() == {CRITICAL.name} - {taken.name}


def test_a_client_that_does_not_read_is_cut_off(served: Served) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(served.path))
        with contextlib.suppress(OSError):  # it is cut off in the middle of this
            for _ in range(20_000):
                link.sendall(encoded(NORMAL))
        until(lambda: not served.broker.coordinator.state.normal)


def test_nothing_is_kept_of_normal_requests_and_of_who_left(served: Served) -> None:
    """Neither here nor by a coordinator of this process."""
    with (
        RemoteCoordinator(served.path) as remote,
        Coordinator(Scheduler(policy_named("tilewright"), Gpu(2)), lambda _: None) as here,
    ):
        for each in (remote, here):
            told = Told()
            each.join(NORMAL, lambda action: None)
            each.join(CRITICAL, told.append)
            number = each.request() or 1 << 32  # an object of its own
            before = sys.getrefcount(number)
            for _ in range(5):
                each.post(Arrived(now_us(), "normal", number))
            assert sys.getrefcount(number) == before
            each.post(Arrived(now_us(), "critical", number))
            assert isinstance(told.next(), Begin)
            each.post(Gone(now_us(), "critical"))
            assert sys.getrefcount(number) == before


def test_who_left_cannot_speak_for_the_next_of_its_name(served: Served) -> None:
    with RemoteCoordinator(served.path) as one, RemoteCoordinator(served.path) as other:
        one.join(NORMAL, lambda action: None)
        one.post(Gone(now_us(), "normal"))
        until(lambda: not served.broker.coordinator.state.normal)
        other.join(NORMAL, lambda action: None)
        told = Told()
        one.join(replace(NORMAL, name="another"), told.append)
        one.post(Gone(now_us(), "normal"))
        assert isinstance(told.next(), Refuse)  # the end of its connection
        assert served.broker.coordinator.state.normal


def test_requests_that_wait_are_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_REQUESTS", 2)
    with RemoteCoordinator(served.path) as remote:
        told = Told()
        remote.join(CRITICAL, told.append)
        numbers = [remote.request() for _ in range(3)]
        for number in numbers:
            remote.post(Arrived(now_us(), "critical", number))
        assert isinstance(told.next(), Begin)
        refusal = told.next()
        assert isinstance(refusal, Refuse)
        assert refusal.request == numbers[2]
        for number in numbers:
            remote.post(Finished(now_us(), number, 100.0))
        until(lambda: len(told))  # the second one's turn
        remote.post(Arrived(now_us(), "critical", remote.request()))
        until(lambda: len(told) == 2)
        assert all(isinstance(action, Begin) for action in told)


def test_a_broker_that_ends_refuses_what_is_open(tmp_path: Path) -> None:
    served = Served(tmp_path)
    told = Told()
    remote = RemoteCoordinator(served.path)
    agent = NormalAgent(remote, NORMAL, Short(), CpuDevice(1))
    agent.ask()
    remote.join(CRITICAL, told.append)
    number = remote.request()
    remote.post(Arrived(now_us(), "critical", number))
    assert isinstance(told.next(), Begin)
    served.broker.close()
    refusal = told.next()
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, HostError)
    with pytest.raises(HostError, match="broker"):
        until(agent.check)
    remote.close()


class Short:
    """A normal model whose launches end at once."""

    ends = range(1, 3)

    def begin(self) -> None: ...

    def start(self, number: int, workers: int, plain: bool = False) -> None: ...

    def complete_after(self, number: int) -> int:
        return number + 1


class Client:
    """A process with a model."""

    def __init__(self, served: Served, kind: str, bundle: Path) -> None:
        command = [sys.executable, str(CLIENT), str(served.path), kind, str(bundle)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: deque[str] = deque()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, line: str, more: int = 1) -> None:
        want = self.lines.count(line) + more

        def there() -> bool:
            assert self.process.poll() is None, "the client has ended"
            return self.lines.count(line) >= want

        until(there)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.seldom(4)
def test_a_client_that_is_killed_frees_its_share(
    served: Served, bundles: tuple[Path, Path]
) -> None:
    critical, normal = bundles
    # what this process compiles, its clients need not
    ElasticPlan(CudaHost(normal, CpuDevice(1)), Budget(CpuDevice(1)))
    CudaHost(critical, CpuDevice(1))
    started = [
        Client(served, "normal", normal),
        Client(served, "stuck", critical),
        Client(served, "critical", critical),
    ]
    one, stuck, other = started
    try:
        stuck.wait_for("begun")
        assert word_at(served.path) == 0
        # killed in the middle of its request, with nobody allowed to stay
        stuck.kill()
        other.wait_for("answered", 2)
        one.wait_for("inference", 2)
        # a normal one in the middle of a kernel
        one.kill()
        until(lambda: not served.broker.coordinator.state.normal)
        other.wait_for("answered", 2)
        until(lambda: word_at(served.path, ALIVE) == 0)
        other.kill()
        until(lambda: not served.broker.coordinator.state.critical)
        assert served.broker.coordinator.state.running is None
        assert word_at(served.path) == UNLIMITED
    finally:
        for client in started:
            if client.process.poll() is None:
                client.kill()


OTHER = """
import sys
from tilewright.elastic.broker import open_budget_word
word = open_budget_word("gpu", bytes.fromhex(sys.argv[1]))
word.set(5)
word._driver.wait(word._stream)
"""


@pytest.mark.gpu
def test_processes_share_a_word_of_a_gpu() -> None:
    word = GpuWord(Driver(0))
    subprocess.run(
        [sys.executable, "-c", OTHER, word.handle_bytes().hex()], check=True, timeout=PATIENCE
    )
    stream = word._driver.stream()
    assert word._driver.download(word.address, 4, stream) == (5).to_bytes(4, "little")

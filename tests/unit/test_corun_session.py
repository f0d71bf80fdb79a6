"""Sessions on the CPU device: several critical models, curves of another device, stuck requests.

Nothing here is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_call import Called
from helpers.corun_until import all_answered, command_until, run_until
from helpers.waiting import PATIENCE, until
from test_corun_agents import Stuck
from test_corun_agents import bundles as bundles

from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import AdmissionRefused, UsageError
from tilewright.bundle import open_bundle
from tilewright.cli.corun import view
from tilewright.elastic import measure_curves
from tilewright.elastic.arrivals import ClosedLoop, Poisson
from tilewright.elastic.background import NormalWork
from tilewright.elastic.concurrency import Concurrency
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.corun import Corun
from tilewright.elastic.measure_curves import Measured, identity
from tilewright.elastic.policy import Critical, Curve, Phase
from tilewright.elastic.result import CorunResult
from tilewright.elastic.session_devices import CPU_SMS
from tilewright.elastic.settings import CriticalSettings, Settings

#: No request takes so long, however busy the machine is.
LEASE_US = 6e7
#: Later than what is allowed of a request of a minute: none is refused for it.
DEADLINE_MS = 1e12
SETTINGS = Settings(kind="cpu", max_slowdown=1e7, steps=1, measure_seconds=0.01, lease_ms=6e4)


def curves_of(models: Sequence[Path | str], /, **changed: Any) -> Measured:
    """models: the critical one first, by path or by identity"""
    known = tuple(m if isinstance(m, str) else identity(open_bundle(m)) for m in models)
    phases = (Phase(2, 10.0, Curve(((0, 1.0),))),)
    made = Measured("CPU", CPU_SMS, 4, 10.0, (5.0, 5.0), phases, known, Concurrency(1))
    return msgspec.structs.replace(made, **changed)


@pytest.fixture
def session(bundles: tuple[Path, Path]) -> Iterator[Corun]:
    critical, normal = bundles
    several = [CriticalSettings(critical), CriticalSettings(critical, 2e7, DEADLINE_MS, priority=1)]
    with Corun.prepare(several, [normal], SETTINGS, [curves_of(bundles)] * 2) as made:
        yield made


def test_several_critical_models_have_bounds_of_their_own(
    session: Corun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And priorities."""
    tasks, join = dict[str, Any](), Coordinator.join

    def heard(coordinator: Coordinator, task: Any, sink: Any) -> None:
        tasks[task.name] = task
        join(coordinator, task, sink)

    monkeypatch.setattr(Coordinator, "join", heard)
    result = run_until(all_answered, session.run, [ClosedLoop(), Poisson(20)])
    first, second = result.critical
    assert (first.max_slowdown, second.max_slowdown) == (1e7, 2e7)
    assert (first.deadline_us, second.deadline_us) == (None, DEADLINE_MS * 1000)
    assert [tasks[each.name].priority for each in result.critical] == [0, 1]
    assert tasks[second.name].deadline_us == DEADLINE_MS * 1000
    assert first.answered
    assert second.answered
    assert first.over_bound == second.missed == 0
    assert result.inferences[0] >= 0
    # a busy machine's time alone may be found anew between two requests
    solo = sum(answer.solo_us for c in result.critical for answer in c.answered)
    assert result.duty == pytest.approx(solo / (result.seconds * 1e6))


def test_a_normal_model_that_may_not_join_ends_those_that_run(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    critical, normal = bundles
    join = Coordinator.join

    def refused(coordinator: Coordinator, task: Any, sink: Any) -> None:
        if task.name == "normal 1":
            raise AdmissionRefused("there is no place", hint="Leave")
        join(coordinator, task, sink)

    measured = curves_of((critical, normal, normal), concurrency=Concurrency(2))
    with Corun.prepare(critical, [normal] * 2, SETTINGS, [measured]) as session:
        monkeypatch.setattr(Coordinator, "join", refused)
        before = set(threading.enumerate())
        with pytest.raises(AdmissionRefused, match="no place"):
            session.run(ClosedLoop(), PATIENCE)
        assert set(threading.enumerate()) <= before


def test_curves_are_measured_beside_all_normal_models(bundles: tuple[Path, Path]) -> None:
    critical, normal = bundles
    with Corun.prepare(critical, [normal, normal], SETTINGS) as made:
        (curves,) = made.calibration.chosen
        assert [budget for budget, _ in curves.phases[0].curve.points] == [0, UNLIMITED]
        with made.background(UNLIMITED) as busy:
            until(lambda: all(agent.inferences for agent in busy.agents))
            assert len(busy.agents) == busy.concurrent == 2


class Beside:
    """Slowdowns beside so many normal models at once, instead of measurements; what was asked.

    Of normal models alone, of which nothing is asked, the times are made up: measuring takes long.
    """

    def __init__(self, patch: pytest.MonkeyPatch, slowdowns: dict[int, float]) -> None:
        self.asked = list[Concurrency]()

        def measured(model: Any, models: Any, work: NormalWork, _: Any) -> Measured:
            choice = Concurrency(work.scheduler.max_concurrent, work.gated)
            self.asked.append(choice)
            phase = Phase(
                2, 10.0, Curve(((0, slowdowns[choice.max_concurrent] - 0.1 * choice.gated),))
            )
            return curves_of(models, phases=(phase,), concurrency=choice)

        place = "tilewright.elastic"
        patch.setattr(
            f"{place}.normal.kernel_times", lambda _, launches, __: [10.0] * len(launches)
        )
        patch.setattr(f"{place}.normal.repeat_timing", lambda *_: [1.0])
        patch.setattr(f"{place}.calibration.measure", measured)


@pytest.mark.parametrize(
    ("policy", "bound", "asked", "tried", "chosen"),
    [
        ("tilewright", 2.0, None, 1, Concurrency(3)),
        ("tilewright", 1.75, None, 2, Concurrency(3, True)),
        ("tilewright", 1.4, None, 3, Concurrency(2, True)),
        ("tilewright", 1.2, None, 4, Concurrency(1, True)),
        ("tilewright", 0.95, None, 4, Concurrency(1, True)),
        ("tilewright", 1.2, 2, 2, Concurrency(2, True)),
        ("tilewright", 1.2, 0, 2, Concurrency(3, True)),
        ("tilewright", 1.2, 9, 2, Concurrency(3, True)),
        ("priority", 1.2, None, 1, Concurrency(3)),
    ],
)
def test_as_many_normal_models_run_at_once_as_the_bound_allows(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch,
    policy: str, bound: float, asked: int | None, tried: int, chosen: Concurrency,
) -> None:  # fmt: skip
    beside = Beside(monkeypatch, {3: 1.8, 2: 1.4, 1: 1.1})
    critical, normal = bundles
    settings = replace(SETTINGS, policy=policy, max_slowdown=bound, max_concurrent=asked)
    with Corun.prepare(critical, [normal] * 3, settings) as session:
        assert len(beside.asked) == len(set(beside.asked)) == tried
        assert session.concurrency == chosen
        if bound < 1.0:
            with pytest.raises(AdmissionRefused):
                session.run(ClosedLoop(), 0.1)


def test_known_curves_are_chosen_from_and_what_is_missing_is_measured(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of curves belongs to no bound."""
    beside = Beside(monkeypatch, {3: 1.8, 2: 1.3, 1: 1.5})
    critical, normal = bundles
    known: list[Measured] = []
    all_, gated, two, one = (
        Concurrency(3),
        Concurrency(3, True),
        Concurrency(2, True),
        Concurrency(1, True),
    )
    for bound, asked, chosen in [
        (2.0, [all_], all_), (1.7, [gated], gated), (1.3, [two], two), (1.1, [one], two),
        (1.3, [], two), (1.75, [], gated), (9.0, [], all_), (1.0, [], two),
    ]:  # fmt: skip
        beside.asked.clear()
        settings = replace(SETTINGS, max_slowdown=bound)
        with Corun.prepare(critical, [normal] * 3, settings, known) as session:
            assert (beside.asked, session.concurrency) == (asked, chosen)
            known = session.calibration.curves
    assert [each.concurrency for each in known] == [all_, gated, two, one]


def test_without_gates_the_other_choices_are_tried(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that stop each other."""
    beside = Beside(monkeypatch, {3: 1.8, 2: 1.4, 1: 1.1})
    monkeypatch.setattr("tilewright.elastic.calibration.pass_gates", lambda *_: False)
    critical, normal = bundles
    with Corun.prepare(critical, [normal] * 3, replace(SETTINGS, max_slowdown=1.2)):
        assert beside.asked == [Concurrency(3), Concurrency(2), Concurrency(1)]


def test_what_takes_long_is_told(bundles: tuple[Path, Path]) -> None:
    critical, normal = bundles
    told = list[tuple[str, int, int]]()
    with Corun.prepare(critical, [normal] * 2, SETTINGS, show=lambda *part: told.append(part)):
        pass
    assert told == [
        ("Loading normal models", 0, 2),
        ("Loading normal models", 1, 2),
        ("Timing kernels of normal models", 0, 2),
        ("Timing kernels of normal models", 1, 2),
        ("Loading critical models", 0, 1),
        ("Measuring critical models beside 2 normal ones at once", 0, 1),
    ]


def test_a_number_that_is_none_is_refused(bundles: tuple[Path, Path]) -> None:
    critical, normal = bundles
    with pytest.raises(UsageError, match="-1 normal models"):
        Corun.prepare(critical, [normal], replace(SETTINGS, max_concurrent=-1))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"device": "another GPU"}, "another device"),
        ({"sms": 8}, "other multiprocessors"),
        ({"models": ("another", "normal")}, "another critical model"),
    ],
)
def test_curves_of_another_device_or_model_are_refused(
    bundles: tuple[Path, Path], changed: dict[str, Any], words: str
) -> None:
    critical, normal = bundles
    with pytest.raises(UsageError, match=words):
        Corun.prepare(critical, [normal], SETTINGS, [curves_of(bundles, **changed)])
    with pytest.raises(UsageError, match="2 slowdown curves for 1"):
        Corun.prepare(critical, [normal], SETTINGS, [curves_of(bundles)] * 2)
    with pytest.raises(UsageError, match="other normal models"):
        Corun.prepare(
            critical, [normal] * 3, SETTINGS, [curves_of(bundles, concurrency=Concurrency(3))]
        )


def test_models_of_as_many_kernels_have_curves_of_their_own(bundles: tuple[Path, Path]) -> None:
    critical, normal = bundles
    with pytest.raises(UsageError, match="another critical model"):
        Corun.prepare(normal, [critical], SETTINGS, [curves_of(bundles)])


def test_a_stuck_critical_model_has_an_exit_code_of_its_own(
    bundles: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, curves = Corun.run, tmp_path / "curves.json"
    measure_curves.save([curves_of(bundles)], curves)

    def stuck(self: Corun, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(self.models.critical[0].model, "start", lambda *_: Stuck())
        return run(self, *args, **more)

    monkeypatch.setattr(Corun, "run", stuck)
    options = ("--device", "cpu", "--json", "--rate", "0", "--seconds", "0.2", "--curves", curves)
    called = Called(capsys, "corun", *bundles, *options)
    assert called.code == 13, called.out
    assert called.json["error"]["hint"]
    assert called.json["error"]["facts"]["overdue"] >= 1


def test_curves_of_another_device_on_the_command_line(
    bundles: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = tmp_path / "curves.json"
    measure_curves.save([curves_of(bundles, sms=132)], curves)
    called = Called(capsys, "corun", *bundles, "--device", "cpu", "--json", "--curves", curves)
    assert called.code == 2, called.out
    assert "multiprocessors" in called.json["error"]["message"]


def test_a_bound_that_nothing_keeps_ends_normal_work_and_is_told(
    bundles: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The curve says that a request takes 10 us alone and beside others; on the CPU none does."""
    curves = tmp_path / "curves.json"
    measure_curves.save([curves_of(bundles)], curves)

    def noticed(result: CorunResult) -> bool:
        (one,) = result.critical
        return bool(one.noticed) and len(one.answered) > one.noticed[0].requests

    command_until(monkeypatch, noticed)
    monkeypatch.setattr(Critical, "effective_lease_us", property(lambda _: LEASE_US))
    options = ("--device", "cpu", "--rate", "0", "--curves", curves)
    called = Called(capsys, "corun", *bundles, *options, "--json")
    assert called.code == AdmissionRefused.exit_code, called.out
    (told,) = called.json["curves_corrected"]
    assert told["budgets"] == [0]
    assert told["over_bound"] >= 4
    assert told["found"] > 1.05
    assert not called.json["bound_kept"]
    assert called.json["normal_ended"]
    # critical requests were answered until the end
    assert called.json["requests"] > told["requests"]
    assert not called.json["misses"]
    shown = view(called.json)
    assert "normal work has ended" in str([list(column.cells) for column in shown.columns])

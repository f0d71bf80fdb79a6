"""The simulated GPU: the same seed, the same outcome; no work is lost, and none is done twice."""

from __future__ import annotations

from functools import cache

import pytest

from lab.policies import POLICIES
from lab.simulator import Outcome, levels, phases, simulate, solo_us
from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.arrivals import ClosedLoop, Poisson
from tilewright.elastic.policy import (
    Critical,
    Gpu,
    KernelCost,
    Normal,
    Phase,
    Scheduler,
    policy_named,
)

GPU = Gpu(4, submit_us=2.0)
CRITICAL = (KernelCost(9, 256, 40, 2, 0.3), KernelCost(30, 256, 15, 1, 0.3))
NORMAL = (KernelCost(40, 256, 60, 2, 0.3), KernelCost(7, 128, 120, 4, 0.2, 0.05))
LEVELS = levels(GPU, NORMAL, 2)


@cache
def measured() -> tuple[Phase, ...]:
    """Not while tests are collected: each worker collects all of them."""
    return phases(GPU, CRITICAL, NORMAL, LEVELS)


def outcome(name: str, seed: int = 1, bound: float = 1.2, spans: bool = False) -> Outcome:
    task = Critical("critical", measured(), CRITICAL, bound)
    tasks = [(task, Poisson(900)), (Normal("normal", NORMAL), ClosedLoop())]
    return simulate(Scheduler(POLICIES[name], GPU), tasks, 0.04, seed, spans)


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_outcome(name: str) -> None:
    assert outcome(name) == outcome(name)
    assert outcome(name, seed=2) != outcome(name)


@pytest.mark.parametrize("name", POLICIES)
def test_work_is_neither_lost_nor_done_twice(name: str) -> None:
    found = outcome(name, spans=True)
    whole = sum(k.tiles * k.tile_us for k in NORMAL)
    done = found.inferences["normal"] * whole
    worked = found.worked["normal"]
    # tiles in flight, or left, at the end; with a flag at entry whole kernels are done again
    again = found.again * max(k.tile_us for k in NORMAL)
    assert done - 1e-6 <= worked <= done + again + 32 * GPU.sms * max(k.tile_us for k in NORMAL)
    assert (found.again > 0) == (name == "entry")
    assert found.served
    for span in found.spans:
        assert 0 <= span.begin <= span.end <= found.microseconds
    assert 0 < found.occupancy <= 1


def test_threads_on_an_sm_never_exceed_what_it_has() -> None:
    found = outcome("priority", spans=True)
    for sm in range(GPU.sms):
        changes = sorted(
            change
            for span in found.spans
            if span.sm == sm
            for change in ((span.begin, span.threads), (span.end, -span.threads))
        )
        resident = 0
        for _, threads in changes:
            resident += threads
            assert resident <= GPU.threads


def test_parts_of_a_split_share_no_sm() -> None:
    found = outcome("split", spans=True)
    own = {span.sm for span in found.spans if span.critical}
    rest = {span.sm for span in found.spans if not span.critical}
    assert own
    assert rest
    assert not own & rest


def test_curves_rise_and_solo_is_the_sum_of_its_phases() -> None:
    (phase,) = measured()
    assert phase.solo_us == solo_us(GPU, CRITICAL)
    assert 1 <= phase.curve.at(0) < 1.2 < phase.curve.at(LEVELS[-1])


def test_leaving_by_chunks_beats_waiting_for_blocks() -> None:
    """The order of policies that was measured on a GPU holds on the simulated one."""

    def worst(name: str) -> float:
        took = sorted(s.took_us for s in outcome(name, bound=1.2).served)
        return took[int(0.9 * len(took))]

    assert worst("tilewright") < worst("entry") < worst("priority")


def test_the_bound_is_a_dial() -> None:
    normal = [outcome("tilewright", bound=b).inferences["normal"] for b in (1.2, 4.0)]
    assert normal[0] < normal[1]


def test_tiles_that_nobody_may_leave_are_in_the_curve() -> None:
    """With a budget of 0 a request still waits for a tile of one long chunk; so a tight bound is
    refused instead of broken."""
    long = (KernelCost(40, 256, 200.0, 200.0, 0.3),)
    found = phases(GPU, CRITICAL, long, LEVELS)
    assert found[0].curve.at(0) > 1.5
    with pytest.raises(AdmissionRefused):
        simulate(
            Scheduler(policy_named("tilewright"), GPU),
            [(Critical("critical", found, CRITICAL, 1.05), Poisson(100))],
            0.01,
        )


def test_a_client_that_is_refused_asks_again() -> None:
    """Two clients of a closed loop with room for one: each refusal is followed by a request."""
    task = Critical("critical", measured(), CRITICAL, 1.2, deadline_us=1.5 * measured()[0].solo_us)
    found = simulate(Scheduler(policy_named("tilewright"), GPU), [(task, ClosedLoop(2))], 0.004)
    assert len(found.served) > 0.7 * 4000 / task.longest_us
    assert found.refused > len(found.served)

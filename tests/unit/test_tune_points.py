"""Where the page draws a trial (web/page/tuning_log.js): at the latency with its kernel."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { TuningLog } = await import('TUNE/../page/tuning_log.js');
const log = new TuningLog();
const usual = { kind: 'k', shape: 's', node: 'n', flops: 1, milliseconds: 1, current: null };
const start = () => log.take({ type: 'start', class: 'c', kernels: <kernels>.map((kernel) => ({ ...usual, ...kernel })) });
start();
for (const event of <events>) {
  if (event.type === 'start') start();
  else log.take({ round: 1, candidate: 1, mark: 'lite', schedule: '', ...event });
}
console.log(JSON.stringify(log.trials.map(({ milliseconds }) => milliseconds)));
"""  # noqa: E501

#: Of a bundle with four buckets: half of the time of the one that is drawn, and of another one.
DRAWN, OTHER = (
    {"spec": spec, "plan": plan, "part": 0.5, "share": 0.125} for spec, plan in ((0, 3), (1, 2))
)


def drawn(*events: dict[str, Any], **current: Any) -> Any:
    kernels = [DRAWN | ({"current": current} if current else {}), OTHER]
    return run(SCRIPT, kernels=kernels, events=events)


def latency(milliseconds: float, plan: int = 3) -> dict[str, Any]:
    return {"type": "latency", "plan": plan, "milliseconds": milliseconds}


def tried(ratio: float, verdict: str = "faster", spec: int = 0) -> dict[str, Any]:
    return {"type": "trial", "spec": spec, "ratio": ratio, "verdict": verdict}


def swapped(ratio: float, spec: int = 0) -> dict[str, Any]:
    return {"type": "swap", "spec": spec, "ratio": ratio, "candidate": 1}


def test_only_the_part_of_its_kernel_changes() -> None:
    assert drawn(latency(100), tried(2), tried(0.5, "slower")) == [75, 150]


@pytest.mark.parametrize("ratio", [2, 0.5])
def test_a_kernel_of_another_bucket_moves_nothing(ratio: float) -> None:
    assert drawn(latency(100), tried(ratio, spec=1)) == [100]


def test_after_a_swap_less_is_left_of_it() -> None:
    """What was adopted lies where the line goes."""
    swap = (latency(100), tried(2), swapped(2), latency(75))
    assert drawn(*swap, tried(2), tried(0.5, "slower")) == [75, 62.5, 100]


def test_what_an_earlier_visit_found_is_in_use_from_the_start() -> None:
    """Parts were measured with it."""
    first = {"candidate": 7, "schedule": "", "gain": 2, "moved": False}
    events = (latency(100), tried(2), swapped(4), latency(75), tried(2))
    assert drawn(*events, **first) == [75, 62.5]


def test_after_a_hidden_tab_parts_are_measured_anew() -> None:
    events = (latency(100), {"type": "start"}, latency(60), tried(2))
    assert drawn(*events) == [45]
    assert drawn(latency(100), {"type": "start"}, latency(60, 2), tried(2, spec=1)) == [45]


def test_what_was_rejected_has_no_ratio() -> None:
    assert drawn(latency(100), tried(float("nan"), "wrong") | {"ratio": None}) == [100]

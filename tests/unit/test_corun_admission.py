"""Which critical tasks are taken beside others (elastic/policy/admission.py)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from helpers.policy_run import CRITICAL

from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.policy import Curve
from tilewright.elastic.policy.admission import admit


@pytest.mark.parametrize("slowdown", [1.1252, 1.536493, 1.2, 1.0001])
def test_the_bound_that_a_refusal_names_is_taken(slowdown: float) -> None:
    phase = replace(CRITICAL.phases[0], curve=Curve(((0, slowdown),)))
    asked = replace(CRITICAL, phases=(phase,), max_slowdown=1.00001)
    with pytest.raises(AdmissionRefused) as refused:
        admit(asked, ())
    named = re.search(r"to (\d\.\d+) or more", refused.value.hint or "")
    assert named
    admit(replace(asked, max_slowdown=float(named[1])), ())


@pytest.mark.parametrize("order", [("tight", "long"), ("long", "tight")])
def test_a_task_that_makes_another_miss_its_deadline_is_refused(order: tuple[str, str]) -> None:
    """Whichever of the two came first."""
    tasks = {
        "tight": replace(CRITICAL, name="tight", deadline_us=2 * CRITICAL.longest_us),
        "long": replace(CRITICAL, name="long", phases=CRITICAL.phases * 9),
    }
    first, second = (tasks[name] for name in order)
    admit(first, ())
    with pytest.raises(AdmissionRefused, match="tight may miss its deadline"):
        admit(second, (first,))

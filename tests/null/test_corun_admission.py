"""Which critical tasks are taken beside others (elastic/policy/admission.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.policy_run import CRITICAL

from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.policy.admission import admit


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

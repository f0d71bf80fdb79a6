"""Admission: refuses tasks whose bound cannot be kept, and requests that would miss a deadline.

Input: tasks and requests.  Output: none, or a typed error with the limit and advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.policy.budgets import predicted
from tilewright.elastic.policy.tasks import Critical, Phase


def admit(task: Critical, others: Sequence[Critical]) -> None:
    """Raises AdmissionRefused if the task's bound or deadline cannot be kept beside the others."""
    alone = least_slowdown(task.phases)
    if not keeps(task):
        raise AdmissionRefused(
            f"{task.name} cannot be kept below {task.max_slowdown} times its time alone",
            hint=f"Set max_slowdown to {_enough(alone)} or more, its slowdown under a budget of 0",
            task=task.name,
            least=round(alone, 4),
        )
    every = (*others, task)
    for each in every:
        blocked = max((other.longest_us for other in every if other is not each), default=0.0)
        if each.deadline_us is not None and each.longest_us + blocked > each.deadline_us:
            raise AdmissionRefused(
                f"{each.name} may miss its deadline: a request of another model is not interrupted",
                hint="Allow a later deadline, or give the models GPUs of their own",
                task=task.name,
                misses=each.name,
                deadline_us=each.deadline_us,
                needs_us=round(each.longest_us + blocked, 1),
            )
    load = sum((t.rate_hz or 0.0) * least_slowdown(t.phases) * t.solo_us / 1e6 for t in every)
    if load > 1:
        raise AdmissionRefused(
            "the critical models ask for more time than there is",
            hint="Lower their rates, or run one of them as a normal task",
            task=task.name,
            load=round(load, 3),
        )


def least_slowdown(phases: Sequence[Phase]) -> float:
    """The slowdown of a critical task under a budget of 0, the least possible."""
    return predicted(phases, [0] * len(phases))


def keeps(task: Critical) -> bool:
    """True if some budget keeps the bound, as far as is known now."""
    return least_slowdown(task.phases) <= task.max_slowdown


def _enough(slowdown: float) -> str:
    """The slowdown as a short decimal, rounded up."""
    return f"{ceil(1e3 * slowdown) / 1e3:.3f}"


def disturbing(normal: str, critical: Sequence[Critical]) -> AdmissionRefused | None:
    """The refusal of a normal task, if a promised bound cannot be kept beside it."""
    for task in critical:
        alone = least_slowdown(task.phases)
        if not keeps(task):
            return AdmissionRefused(
                f"{task.name} was not kept below {task.max_slowdown} times its time alone while "
                f"normal work made room for it, so {normal} may not run beside it",
                hint=f"Set max_slowdown to {_enough(alone)} or more, or measure the curves again",
                task=normal,
                disturbs=task.name,
                least=round(alone, 4),
            )
    return None


def late(ends: Sequence[tuple[str, float, float | None]], arriving: str) -> AdmissionRefused | None:
    """The refusal of a request, if it makes a request miss its deadline.

    ends: (task, latest end of a request, its deadline), in the order in which they run
    """
    for task, end, deadline in ends:
        if deadline is not None and end > deadline:
            return AdmissionRefused(
                f"with this request of {arriving} one of {task} may miss its deadline",
                hint="Send requests more slowly, or allow later deadlines",
                task=arriving,
                misses=task,
                late_us=round(end - deadline, 1),
            )
    return None

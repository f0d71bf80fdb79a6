"""Decides which model runs when, and with which budget: pure functions without clocks or devices.

`tasks.py` describes the GPU and the models, `events.py` events and actions, `state.py` what the
coordinator knows, and `scheduler.py` is the function from a state and an event to actions.
`policies.py` has the policies: ours, and common ones.  `admission.py` says which tasks and requests
are refused, `budgets.py` chooses budgets below a bound.  `feedback.py`, `baseline.py` and
`sequential_test.py` correct times and margins from answered requests.  `lab/simulator/` simulates a
GPU to try a policy on.
"""

from tilewright.elastic.policy.budgets import Hold, holds
from tilewright.elastic.policy.events import (
    Action,
    Allow,
    Arrived,
    Begin,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    Noticed,
    Overdue,
    Proceed,
    Reached,
    Recalibrated,
    Recount,
    Refuse,
    TaskEvent,
    Tick,
    Withdraw,
)
from tilewright.elastic.policy.policies import POLICIES, Policy, policy_named
from tilewright.elastic.policy.scheduler import Scheduler
from tilewright.elastic.policy.state import SchedulerState
from tilewright.elastic.policy.tasks import (
    Critical,
    Curve,
    Gpu,
    KernelCost,
    Normal,
    Phase,
)

__all__ = [
    "POLICIES",
    "Action",
    "Allow",
    "Arrived",
    "Begin",
    "Critical",
    "Curve",
    "Ended",
    "Enqueue",
    "Event",
    "Finished",
    "Gone",
    "Gpu",
    "Hold",
    "KernelCost",
    "Normal",
    "Noticed",
    "Overdue",
    "Phase",
    "Policy",
    "Proceed",
    "Reached",
    "Recalibrated",
    "Recount",
    "Refuse",
    "Scheduler",
    "SchedulerState",
    "TaskEvent",
    "Tick",
    "Withdraw",
    "holds",
    "policy_named",
]  # fmt: skip

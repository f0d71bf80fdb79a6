"""Decides which model runs when, and with which budget: pure functions without clocks or devices.

`tasks.py` describes the GPU and the models, `events.py` events and actions, `scheduler.py` the
function from events to actions, and `designs.py` the designs: ours, and common ones.
"""

from tilewright.elastic.policy.budgets import Hold, holds
from tilewright.elastic.policy.designs import DESIGNS, Design, design
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
    "DESIGNS",
    "Action",
    "Allow",
    "Arrived",
    "Begin",
    "Critical",
    "Curve",
    "Design",
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
    "design",
    "holds",
]  # fmt: skip

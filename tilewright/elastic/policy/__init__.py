"""Who may run when: pure functions that know neither clocks nor devices.

`tasks.py` has what is known of GPU and models, `events.py` what happens and what is decided,
`scheduler.py` the function from one to the other, `designs.py` ours beside what others do.
"""

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
    Tick,
    Withdraw,
)
from tilewright.elastic.policy.holds import Hold, holds
from tilewright.elastic.policy.scheduler import Scheduler
from tilewright.elastic.policy.state import Shares
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
    "Shares",
    "Tick",
    "Withdraw",
    "design",
    "holds",
]  # fmt: skip

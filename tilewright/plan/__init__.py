"""The plan: what an inference computes, in which order, on which values.  Pure data, no target.

Here are the records (`ir.py`), dependencies of steps (`dependencies.py`) and the arena that values
share (`arena.py`).  Addresses, threads and everything a host does belong to a target's encoding of
the plan.
"""

from tilewright.plan.ir import (
    CLASSES,
    Access,
    Check,
    Extent,
    Growth,
    Plan,
    Program,
    State,
    Step,
    Tensor,
    Value,
    check,
    plan_from_data,
    plan_to_data,
)

__all__ = [
    "CLASSES",
    "Access",
    "Check",
    "Extent",
    "Growth",
    "Plan",
    "Program",
    "State",
    "Step",
    "Tensor",
    "Value",
    "check",
    "plan_from_data",
    "plan_to_data",
]

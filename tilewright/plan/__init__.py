"""The plan: what an inference computes, in which order, on which values.  Pure data, no target.

Here belong the records (`ir.py`), what depends on what (`depends.py`) and how values of different
lives share an arena (`arena.py`).  Where a value lies, who computes a tile and what a host does
belong to a target's encoding of the plan.
"""

from tilewright.plan.ir import (
    CLASSES,
    Access,
    Extent,
    Plan,
    Program,
    State,
    Step,
    Tensor,
    Value,
    check,
)
from tilewright.plan.serial import plan_from_data, plan_to_data

__all__ = [
    "CLASSES",
    "Access",
    "Extent",
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

"""Limits on the work and the memory that a model file may ask for.

Input: nothing.  Output: `LIMITS`, the one table of them, which docs/limits.md lists.  The stage
that would do the work compares first and raises `ModelLimit`.  Limits of targets and devices, such
as 4 GiB of memory, are not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ModelLimit


@dataclass(frozen=True)
class ModelLimits:
    """The most that a model may have.

    nodes:     nodes of the model and its subgraphs; a function counts anew at each call
    nesting:   subgraphs or functions inside one another
    rank:      axes of a tensor, also of one that an operator makes in between
    elements:  elements of a tensor, stored or not; JavaScript too counts exactly up to here
    table:     numbers that an operator computes for one axis while it is imported, such as the
               positions and neighbours of Resize, or padding by other elements
    shape_work: elements computed to know one shape, number or condition
    constant:  elements of a tensor that the compiler computes because it depends on no input; this
               limit and the next grow with the number of elements in the model's weights
    constant_work: elements computed for all constants of the bundle
    repeats:   iterations of a loop in all, counting every iteration of the loops around it
    steps:     steps of a plan, after loops are repeated
    """

    nodes: int = 500_000
    nesting: int = 16
    rank: int = 24
    elements: int = 2**48
    table: int = 2**21
    shape_work: int = 2**20
    constant: int = 2**24
    constant_work: int = 2**27
    repeats: int = 2**16
    steps: int = 2**18


LIMITS = ModelLimits()

#: The hint of the error for each limit.
_HINTS = {
    "nodes": "Export the model with fewer nodes, or without functions that call each other",
    "nesting": "Export the model with fewer subgraphs inside one another",
    "rank": "Merge axes in the model",
    "elements": "Check the shapes: no device could hold this tensor",
    "table": "Check the shapes, scales and pads of this node",
    "shape_work": "Export the model with fixed shapes, folded by the exporter",
    "constant": "Store this constant in the model file, or compute it from an input",
    "constant_work": "Store constants in the model file, or compute them from an input",
    "repeats": "Export the model for a shorter sequence, and run it several times with its state",
    "steps": "Export the model for shorter sequences, and run it several times with its state",
}


def check_limit(name: str, requested: int, what: str, **facts: object) -> None:
    """Raises ModelLimit if `requested` is more than the limit of this name.

    what: what asks for it, for the message;  facts: where
    """
    most: int = getattr(LIMITS, name)
    if requested > most:
        raise ModelLimit(
            f"{what} exceeds the limit of {most}",
            hint=_HINTS[name],
            limit=name,
            most=most,
            asked=requested if requested < 2**63 else "2^63 or more",
            **facts,
        )

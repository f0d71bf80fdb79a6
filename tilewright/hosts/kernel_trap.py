"""The error of a run that met an index out of range: the model's node, the axis, its length.

Input: a step of the manifest, and the words that the kernel wrote.  Output: a `KernelTrap`.  The
engine makes the same sentence (`outOfRange` in web/engine/errors.js).  Each host detects by itself
that a kernel stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.abi import CHECK_BIT
from tilewright.base.errors import KernelTrap
from tilewright.bundle import StepEntry

HINT = "Check token ids and other indices"


def out_of_range(steps: Sequence[StepEntry], step: int, check: int, index: int) -> KernelTrap:
    """The error.  check: the number of the kernel's check;  index: as the kernel counts it"""
    at = steps[step]
    facts = {"kernel": at.kernel, "step": step}
    if check not in range(len(at.checks)):  # a bundle of an older build
        return KernelTrap("an index is out of range", hint=HINT, node=at.node, index=index, **facts)
    known = at.checks[check]
    if index < 0:
        index += known.least  # as the model gave it; the kernel counts from 0
    return KernelTrap(
        f"index {index} of {known.op or 'node'} {known.node} is out of range: "
        f"axis {known.axis} has {known.length} elements",
        hint=HINT, node=known.node, op=known.op or None, axis=known.axis, length=known.length,
        index=index, **facts,
    )  # fmt: skip


def of_word(steps: Sequence[StepEntry], word: int, index: int) -> KernelTrap:
    """The error for the word that GPU kernels write (base/abi.py).  The word of an older build only
    says that an index is out of range."""
    step, check = (word & ((1 << CHECK_BIT) - 1)) - 1, word >> CHECK_BIT
    if step in range(len(steps)) and check in range(len(steps[step].checks)):
        return out_of_range(steps, step, check, index)
    return KernelTrap(
        "an index is out of range", hint=f"{HINT}. A bundle that is built anew says which one"
    )

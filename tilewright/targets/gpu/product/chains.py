"""Chains: a norm, the products that read its rows, and a gate, in one dispatch.

Input: consecutive kernels. Output: `Chain`, which gives them one list of buffers, and the rows that
its products read. These rows are either in memory, or each workgroup computes them.
step_joining/joined_steps.py finds the chains of a plan; few_rows.py and few_rows_int8.py make their
loops.

    norm, product       each group reduces whole rows, and computes elements where it uses them; or
                        it multiplies unscaled elements, and its sums by the rows' factors
    product, product    half of a group computes columns of the first product, the other half the
                        same columns of the second, which gets the first one's results through
                        shared memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TypeVar

from tilewright.base.abi import WORD_BYTES
from tilewright.kernel.expr import (
    Expr,
    Load,
)
from tilewright.kernel.spec import Buffer, Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.gpu.product.schedule import FewRowsSchedule
from tilewright.targets.gpu.tile.addressing import operands
from tilewright.targets.gpu.tile.staging import panel_of
from tilewright.targets.gpu.workgroup_limits import limit_objection
from tilewright.targets.vectors import LANES


@dataclass(frozen=True)
class Chain:
    """Kernels that share one list: the buffers of all of them, in order.

    products: one, or two of equal shape that read the same rows
    norm:     computes the rows; None: they are in memory
    output:   number of the buffer that the last product writes
    forwarded: number of the buffer through which the second product would read the first one's
              results; 0: it reads none
    """

    products: tuple[Kernel, ...]
    norm: Kernel | None = None
    output: int = 0
    forwarded: int = 0

    @property
    def last(self) -> Kernel:
        return self.products[-1]

    @property
    def norm_areas(self) -> int:
        """The number of shared areas for the norm: for each row one with an element for each
        thread.  They are areas of their own, since several threads must not write to one vector."""
        return prod(v.extent for v in self.norm.rows) if self.norm else 0

    @property
    def area(self) -> int:
        """The number of the first shared area after the norm's."""
        return len(self.last.buffers) + self.norm_areas


def make_chain(products: Sequence[Kernel], norm: Kernel | None = None, forwarded: int = 0) -> Chain:
    """A chain of kernels that number their buffers separately.  forwarded: as the last kernel
    numbers it"""
    kernels = [norm, *products] if norm else list(products)
    buffers = tuple(buffer for kernel in kernels for buffer in kernel.buffers)
    moved, start = [], 0
    for kernel in kernels:
        moved.append(_moved(kernel, buffers, start))
        start += len(kernel.buffers)
    output = start - len(kernels[-1].buffers)
    first = 1 if norm else 0
    return Chain(
        tuple(moved[first:]),
        moved[0] if norm else None,
        output,
        output + forwarded if forwarded else 0,
    )


def _moved(kernel: Kernel, buffers: tuple[Buffer, ...], start: int) -> Kernel:
    """The kernel on this common list of buffers, in which its own begin at number `start`."""

    def moved(e: Expr) -> Expr:
        return replace(e, buffer=e.buffer + start) if isinstance(e, Load) else e

    stages = tuple(replace(s, value=rewrite(s.value, moved)) for s in kernel.stages)
    return replace(kernel, stages=stages, value=rewrite(kernel.value, moved), buffers=buffers)


S = TypeVar("S", bound=FewRowsSchedule)


def schedule_for_chain(chain: Chain, schedule: S) -> S | None:
    """The schedule for the chain's products, each with whole panels; None if no such schedule
    fits."""
    ops, count = operands(chain.last), len(chain.products)
    schedule = replace(schedule, r0=min(schedule.r0, schedule.most_unrolled_in_chain))
    least = count * max(LANES, panel_of(chain.last, ops))
    if count == 1:
        found = schedule
    else:
        # Each product has as many columns as it would have alone, so fewer groups reduce the row.
        y1 = ceil(schedule.y1 * count / least) * least
        slices = 1 << max(1, schedule.threads * LANES // y1).bit_length() - 1
        found = replace(schedule, y1=y1, slices=slices)
    even = not chain.norm or not found.threads & (found.threads - 1)
    shared = found.shared(chain.last) + WORD_BYTES * found.threads * chain.norm_areas
    fits = even and not found.objection(chain.last) and not limit_objection(found.threads, shared)
    return found if fits else None

"""Encodes the steps of a plan for a section (docs/bundle-wgsl.md): slots, counts, first words.

Input: the codes of each kernel, where the buffers of each step begin.  Output: a dict per step,
ready for JSON, and the texts of all slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from tilewright.base.errors import MemoryLimit
from tilewright.plan import Plan, Step
from tilewright.targets.gpu.gpu_target import workgroup_threads
from tilewright.targets.gpu.memory.memory_layout import Location
from tilewright.targets.gpu.step_joining.joined_steps import JoinedSteps, joined_loops
from tilewright.targets.gpu.vector_buffers import needs_whole_vectors
from tilewright.targets.protocol import Code
from tilewright.targets.scalar_lowering import numbers_of
from tilewright.targets.vectors import LANES
from tilewright.targets.wgsl.arrays import MOST, WEIGHTS, annex
from tilewright.targets.wgsl.emit import module

#: Gives the codes of a kernel, best first, from its number and whether its buffers are aligned to
#: vectors.
UsableCodes = Callable[[int, bool], tuple[Code, ...]]


class Bindings:
    """The bindings of a dispatch's buffers.  annexes: in the order of their bindings"""

    def __init__(self, places: Sequence[Location]) -> None:
        self._places = places
        self.annexes = sorted({place.annex for place in places if place.annex})
        self._banks = {place.bank for place in places if place.bank}

    @property
    def apart(self) -> dict[int, str]:
        """The array names of buffers in a bank or annex, by buffer number."""
        names = {number: annex(at) for at, number in enumerate(self.annexes)}
        every = enumerate(self._places)
        return {n: names.get(p.annex, WEIGHTS) for n, p in every if p.bank or p.annex}

    @property
    def possible(self) -> bool:
        """True if one dispatch can bind all of them."""
        return len(self._banks) <= 1 and len(self.annexes) <= MOST

    @property
    def whole(self) -> bool:
        """True if all buffers begin at whole vectors."""
        return not any(place.begin % LANES for place in self._places)

    @property
    def fields(self) -> dict[str, object]:
        more = {"bank": max(self._banks, default=0), "annexes": self.annexes}
        words = [place.begin for place in self._places]
        return {"words": words} | {name: found for name, found in more.items() if found}


class Steps:
    """Encodes the steps of plans that share texts.

    slots: the slot of each text;  needs: the features that each slot requires
    """

    def __init__(self, texts: Sequence[str], usable_codes: UsableCodes) -> None:
        """texts: of the first slots"""
        self.slots = {text: slot for slot, text in enumerate(texts)}
        self.needs: dict[int, list[str]] = {}
        self._usable_codes = cache(usable_codes)
        self._joined = cache(_joined)

    def of(
        self, plan: Plan, joined: Sequence[JoinedSteps], buffers: Sequence[Sequence[Location]]
    ) -> list[dict[str, object]]:
        """The steps of a plan.  buffers: those of each step (`MemoryLayout.buffers`)

        Raises MemoryLimit for a step with too many annexes.
        """
        found: list[dict[str, object]] = []
        for step, places in zip(plan.steps, buffers, strict=True):
            bound = Bindings(places)
            if not bound.possible:
                raise MemoryLimit(
                    f"the kernel of {step.node or 'a node'} reads and writes {len(places)} "
                    f"tensors in {len(bound.annexes)} further GPU buffers, and {MOST} is the most",
                    hint="Raise --bank, build smaller buckets, or join fewer tensors at a time",
                    node=step.node,
                    op=step.op,
                    buffers=len(bound.annexes),
                    limit=MOST,
                )
            codes = self._usable_codes(step.kernel, bound.whole)
            *better, default = (self._fields(code, bound, len(found)) for code in codes)
            found.append(default | bound.fields | ({"better": better} if better else {}))
        for join in joined:
            steps = slice(join.steps.start, join.steps.stop)
            bound = Bindings([*chain.from_iterable(buffers[steps])])
            if alternatives := self._alternatives(join, plan.steps[steps], bound):
                # Bundles call the alternatives "ways".
                own = {"steps": len(join.steps), "ways": alternatives}
                found[join.first]["joined"] = own | bound.fields
        return found

    def _alternatives(
        self, join: JoinedSteps, steps: Sequence[Step], bound: Bindings
    ) -> list[dict[str, object]]:
        """The codes with which one dispatch runs joined steps; [] if it cannot bind all buffers."""
        if not bound.possible:
            return []
        each = tuple(self._usable_codes(step.kernel, True) for step in steps)
        codes = self._joined(replace(join, first=0, last=len(steps) - 1), each)
        usable = (code for code in codes if bound.whole or not needs_whole_vectors(code.loops))
        return [self._fields(code, bound, join.first) for code in usable]

    def _fields(self, code: Code, bound: Bindings, place: int) -> dict[str, object]:
        """The fields of step number `place` that depend on the code."""
        text = module(code.loops, code.needs, bound.apart) if bound.apart else str(code.body)
        slot = self.slots.setdefault(text, len(self.slots))
        if code.needs:
            self.needs[slot] = sorted(code.needs)
        count, *scalars = numbers_of(code.loops, place)
        return {
            "slot": slot,
            "tiles": count,
            "group": workgroup_threads(code.loops),
            "scalars": scalars,
        }


def _joined(join: JoinedSteps, codes: tuple[tuple[Code, ...], ...]) -> list[Code]:
    """Codes that run joined steps in one dispatch, best first.  codes: of each step by itself"""
    last = codes[-1][-1].kernel
    return [
        Code(last, s, fn, 0, s.features, module(fn, s.features))
        for fn, s in joined_loops(join, codes)
    ]

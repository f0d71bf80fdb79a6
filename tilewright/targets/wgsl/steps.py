"""Encodes the steps of a plan for a section (docs/bundle.md): slots, counts, first words.

Input: the codes of each kernel, and the memory of values.  Output: a dict per step, ready for JSON,
and the texts of all slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tilewright.base.errors import MemoryLimit
from tilewright.plan import Plan, Step
from tilewright.targets.gpu.gpu_target import group_of
from tilewright.targets.gpu.joined.joints import Joint, ways_of
from tilewright.targets.gpu.tile.staging import LANES
from tilewright.targets.gpu.vectors import in_vectors
from tilewright.targets.protocol import Code
from tilewright.targets.scalar_lowering import numbers_of
from tilewright.targets.wgsl.arenas import each_of
from tilewright.targets.wgsl.arrays import MOST, WEIGHTS, annex
from tilewright.targets.wgsl.emit import WORDS, module
from tilewright.targets.wgsl.weight_buffers import Banks

#: Gives the codes of a kernel, best first, from its number and whether its buffers are aligned to
#: vectors.
Able = Callable[[int, bool], tuple[Code, ...]]


@dataclass(frozen=True)
class Lying:
    """The buffers of a dispatch: the first word of each, its bank, and its annex."""

    words: list[int]
    banks: list[int]
    annexes: list[int]

    @classmethod
    def together(cls, parts: Sequence[Lying]) -> Lying:
        """The buffers of all parts, one after the other."""
        return cls(
            [word for part in parts for word in part.words],
            [bank for part in parts for bank in part.banks],
            [annex for part in parts for annex in part.annexes],
        )

    @property
    def bound(self) -> list[int]:
        """The annexes, in the order of their bindings."""
        return sorted({annex for annex in self.annexes if annex})

    @property
    def apart(self) -> dict[int, str]:
        """The array names of buffers in a bank or annex, by buffer number."""
        names = {number: annex(at) for at, number in enumerate(self.bound)}
        banks = {n: WEIGHTS for n, bank in enumerate(self.banks) if bank}
        return banks | {n: names[number] for n, number in enumerate(self.annexes) if number}

    @property
    def possible(self) -> bool:
        """True if one dispatch can bind all of them."""
        return len({bank for bank in self.banks if bank}) <= 1 and len(self.bound) <= MOST

    @property
    def whole(self) -> bool:
        """True if all buffers begin at whole vectors."""
        return not any(word % LANES for word in self.words)

    @property
    def fields(self) -> dict[str, object]:
        more = {"bank": max(self.banks), "annexes": self.bound}
        return {"words": self.words} | {name: found for name, found in more.items() if found}


class Steps:
    """Encodes the steps of plans that share texts.

    slots: the slot of each text;  needs: the features that each slot requires
    """

    def __init__(
        self, texts: Sequence[str], able: Able, banks: Banks, dense: Mapping[int, int]
    ) -> None:
        """texts: of the first slots;  dense: the result of `dense_of`"""
        self.slots = {text: slot for slot, text in enumerate(texts)}
        self.needs: dict[int, list[str]] = {}
        self._able, self._banks, self._dense = cache(able), banks, dense
        self._joined = cache(_joined)

    def of(
        self, plan: Plan, joints: Sequence[Joint], places: Sequence[tuple[int, int]]
    ) -> list[dict[str, object]]:
        """The steps of a plan.  places: first word and annex of each value (`MemoryLayout.places`)

        Raises MemoryLimit for a step with too many annexes.
        """
        found: list[dict[str, object]] = []
        lies = [self._lying(plan, step, places) for step in plan.steps]
        for step, lying in zip(plan.steps, lies, strict=True):
            if not lying.possible:
                raise MemoryLimit(
                    f"the kernel of {step.node or 'a node'} reads and writes {len(lying.words)} "
                    f"tensors in {len(lying.bound)} further GPU buffers, and {MOST} is the most",
                    hint="Raise --bank, build smaller buckets, or join fewer tensors at a time",
                    node=step.node,
                    op=step.op,
                    buffers=len(lying.bound),
                    limit=MOST,
                )
            ways = self._able(step.kernel, lying.whole)
            *better, usual = (self._way(code, lying, len(found)) for code in ways)
            found.append(usual | lying.fields | ({"better": better} if better else {}))
        for joint in joints:
            steps = slice(joint.first, joint.last + 1)
            lying = Lying.together(lies[steps])
            if joined := self._joining(joint, plan.steps[steps], lying):
                own = {"steps": joint.last + 1 - joint.first, "ways": joined}
                found[joint.first]["joined"] = own | lying.fields
        return found

    def _lying(self, plan: Plan, step: Step, places: Sequence[tuple[int, int]]) -> Lying:
        values = [plan.values[a.value] for a in step.accesses]
        begin = [
            places[a.value][0] + a.offset * WORDS[v.dtype.name] // each_of(v, self._dense)
            for a, v in zip(step.accesses, values, strict=True)
        ]
        banks = [self._banks.of[v.tensor] if v.kind == "weight" else 0 for v in values]
        return Lying(begin, banks, [places[a.value][1] for a in step.accesses])

    def _joining(
        self, joint: Joint, steps: Sequence[Step], lying: Lying
    ) -> list[dict[str, object]]:
        """The codes with which one dispatch runs a joint; [] if it cannot bind all buffers."""
        if not lying.possible:
            return []
        ways = tuple(self._able(step.kernel, True) for step in steps)
        codes = self._joined(replace(joint, first=0, last=len(steps) - 1), ways)
        usable = (code for code in codes if lying.whole or not in_vectors(code.loops))
        return [self._way(code, lying, joint.first) for code in usable]

    def _way(self, code: Code, lying: Lying, place: int) -> dict[str, object]:
        """The fields of step number `place` that depend on the code."""
        text = module(code.loops, code.needs, lying.apart) if lying.apart else str(code.body)
        slot = self.slots.setdefault(text, len(self.slots))
        if code.needs:
            self.needs[slot] = sorted(code.needs)
        count, *scalars = numbers_of(code.loops, place)
        return {"slot": slot, "tiles": count, "group": group_of(code.loops), "scalars": scalars}


def _joined(joint: Joint, ways: tuple[tuple[Code, ...], ...]) -> list[Code]:
    """Codes for a joint in one dispatch, best first.  ways: the codes of each step by itself"""
    last = ways[-1][-1].kernel
    return [
        Code(last, s, fn, 0, s.features, module(fn, s.features)) for fn, s in ways_of(joint, ways)
    ]

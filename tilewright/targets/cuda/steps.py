"""Encodes the steps of a plan for a section (docs/bundle-cuda.md): slots, counts, first bytes.

Input: the codes of each kernel, where the buffers of each step begin.  Output: a dict per step,
ready for JSON, and the kernels of all slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tilewright.kernel.loops import TileFn
from tilewright.plan import Plan
from tilewright.targets.cuda.emit import dynamic_of
from tilewright.targets.cuda.features import BASE_FEATURES, HOPPER_ONLY, least_capability
from tilewright.targets.gpu.gpu_target import workgroup_threads
from tilewright.targets.gpu.memory.memory_layout import Location
from tilewright.targets.protocol import Code
from tilewright.targets.scalar_lowering import numbers_of

#: Bytes of the longest vector load.
WHOLE = 16
#: Gives the codes of a kernel, best first, from its number and the first byte of each of its
#: buffers, modulo `WHOLE`.
UsableCodes = Callable[[int, tuple[int, ...]], tuple[Code, ...]]


class LaunchEncoder:
    """Encodes the steps of plans that share texts.

    loops: the kernel of each text, in the order of the slots
    """

    def __init__(self, codes: Sequence[Code], usable_codes: UsableCodes) -> None:
        """codes: of the first slots"""
        self.loops: dict[str, TileFn] = {str(code.body): code.loops for code in codes}
        self._slots = {text: slot for slot, text in enumerate(self.loops)}
        self._usable_codes = cache(usable_codes)

    def of(self, plan: Plan, buffers: Sequence[Sequence[Location]]) -> list[dict[str, object]]:
        """The steps of a plan.  buffers: those of each step (`MemoryLayout.buffers`)"""
        found: list[dict[str, object]] = []
        for step, places in zip(plan.steps, buffers, strict=True):
            begins = [place.begin for place in places]
            codes = self._usable_codes(step.kernel, tuple(at % WHOLE for at in begins))
            *better, default = (self._fields(code, len(found)) for code in codes)
            found.append(default | {"bytes": begins} | ({"better": better} if better else {}))
        return found

    def _fields(self, code: Code, place: int) -> dict[str, object]:
        """The fields of step number `place` that depend on the code."""
        text = str(code.body)
        self.loops[text] = code.loops
        count, *scalars = numbers_of(code.loops, place)
        found: dict[str, object] = {
            "slot": self._slots.setdefault(text, len(self._slots)),
            "count": count,
            "group": workgroup_threads(code.loops),
            "scalars": scalars,
        }
        if shared := dynamic_of(code.loops):
            found["shared"] = shared
        if code.needs - BASE_FEATURES:
            found["least"] = least_capability(code.needs)
        if code.needs & HOPPER_ONLY:
            found["only"] = True
        return found

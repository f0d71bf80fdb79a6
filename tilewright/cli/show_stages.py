"""The text that `show` prints for a stage of the compiler.

Input: a compilation.  Output: text.  Each stage renders itself; this module only joins the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.compiler import Compiled
from tilewright.graph import node
from tilewright.kernel import loops, spec
from tilewright.targets import target


def text_of(compiled: Compiled, stage: str) -> str:
    common = _RENDER.get(stage)
    made = _code(compiled, stage) if common is None else common(compiled)
    return "\n\n".join(made) + "\n"


def _graph(compiled: Compiled) -> list[str]:
    return [f"{_title(p.dims)}{node.render(p.graph)}" for p in compiled.plans]


def _kernels(compiled: Compiled) -> list[str]:
    return [f"{spec.render(c.kernel)}\n  schedule {c.schedule}" for c in compiled.codes]


def _loops(compiled: Compiled) -> list[str]:
    return [loops.render(c.loops) for c in compiled.codes]


def _code(compiled: Compiled, stage: str) -> list[str]:
    """One kernel per slot, of the first target that has the stage, in its first variant."""
    name, made = next((n, m) for n, m in compiled.made.items() if stage in target(n).stages)
    variant, codes = next(iter(made.codes.items()))
    slots = reversed(made.section.kernels)
    by_slot = dict(zip(slots, reversed(codes), strict=True))
    return [target(name).text(by_slot[slot], variant, stage) for slot in sorted(by_slot)]


def _title(dims: Mapping[str, int]) -> str:
    named = " ".join(f"{k}={v}" for k, v in dims.items())
    return f"plan {named}\n" if named else ""


_RENDER: Mapping[str, Callable[[Compiled], list[str]]] = {
    "graph": _graph,
    "kernels": _kernels,
    "loops": _loops,
}

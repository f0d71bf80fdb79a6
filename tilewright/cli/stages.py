"""What `show` prints of each stage of the compiler.

Input: a compilation.  Output: text.  Each stage renders itself; here they are only put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.compiler import Compiled
from tilewright.graph import node
from tilewright.kernel import loops, spec
from tilewright.targets.wasm import TARGETS, emit_text


def text_of(compiled: Compiled, stage: str) -> str:
    return "\n\n".join(_RENDER[stage](compiled)) + "\n"


def _graph(compiled: Compiled) -> list[str]:
    return [f"{_title(p.dims)}{node.render(p.graph)}" for p in compiled.plans]


def _kernels(compiled: Compiled) -> list[str]:
    return [f"{spec.render(e.kernel)}\n  schedule {e.first.schedule}" for e in compiled.entries]


def _loops(compiled: Compiled) -> list[str]:
    return [loops.render(e.first.loops) for e in compiled.entries]


def _wasm(compiled: Compiled) -> list[str]:
    best = TARGETS[next(iter(compiled.modules))]
    by_slot = {e.slot: e for e in reversed(compiled.entries)}
    return [emit_text(by_slot[slot].first.loops, best) for slot in sorted(by_slot)]


def _title(dims: Mapping[str, int]) -> str:
    named = " ".join(f"{k}={v}" for k, v in dims.items())
    return f"plan {named}\n" if named else ""


_RENDER: Mapping[str, Callable[[Compiled], list[str]]] = {
    "graph": _graph,
    "kernels": _kernels,
    "loops": _loops,
    "wasm": _wasm,
}

"""Links kernels into one module that fills the slots of a bundle's function table.

Input: compiled kernels, one per slot.  Output: module bytes.  Equal kernels are stored once, and so
are math helpers.  No code is generated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.targets.wasm import mathlib
from tilewright.targets.wasm.emit import CompiledKernel, FuncCode, assemble, flatten
from tilewright.targets.wasm.module import Import, Module, encode_module
from tilewright.targets.wasm.variant import WasmVariant


def _rename(kernel: CompiledKernel, prefix: str) -> list[FuncCode]:
    """The kernel's functions under names that are unique in the module."""
    names = {f.name: f"{prefix}.{f.name}" for f in kernel.functions}
    return [
        replace(
            f,
            name=names[f.name],
            parts=tuple(names.get(p, p) if isinstance(p, str) else p for p in f.parts),
        )
        for f in kernel.functions
    ]


def link(
    kernels: Sequence[CompiledKernel],
    variant: WasmVariant,
    memory_pages_min: int,
    named: bool = False,
) -> bytes:
    """A module whose table entry i is kernel i, which is also exported as `k<i>`.

    A kernel listed for several slots is one function with several entries.
    """
    wanted = frozenset().union(*(k.helpers for k in kernels))
    helpers = [flatten(fn, variant.fma) for fn in mathlib.helpers(wanted, variant)]
    functions: list[FuncCode] = list(assemble(helpers, variant))
    placed: dict[CompiledKernel, int] = {}
    slots: list[int] = []
    for n, kernel in enumerate(kernels):
        if kernel not in placed:
            functions += _rename(kernel, str(n))
            placed[kernel] = len(functions) - 1
        slots.append(placed[kernel])
    imports = [Import("memory", "memory", memory_pages_min), Import("table", "table", len(slots))]
    if any(k.uses_scratch for k in kernels):
        imports.append(Import("scratch", "global"))
    exports = tuple((f"k{n}", at) for n, at in enumerate(slots))
    module = Module(tuple(imports), tuple(functions), exports, tuple(slots), named)
    return encode_module(module)

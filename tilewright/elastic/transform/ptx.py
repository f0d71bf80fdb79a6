"""Inline assembly of a kernel: special registers become operands, other cases are refused.

Input: an `asm` expression.  Output: reasons to refuse it, or edits of its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import Edit, Source, inside

if TYPE_CHECKING:
    from tree_sitter import Node

#: Patterns of assembly that a tile may not contain, with the reasons.
REFUSED = (
    (re.compile(r"\bexit\b|(?<![%\w])ret(?:\.uni)?\s*;"),
     "assembly ends the thread, and so the worker"),
    (re.compile(r"\b(?:cluster|mapa|multimem)\b|%+\w*cluster"), "assembly uses a cluster"),
    (re.compile(r"\bmbarrier\b|cp\.async\.bulk|cp\.reduce\.async"),
     "assembly uses barrier objects in shared memory, which each tile would initialise again"),
    (re.compile(r"\bcudaLaunchDevice"),
     "assembly launches kernels, which nobody could ask to leave: launch them from the host"),
    (re.compile(r"\b(?:tcgen05|setmaxnreg|griddepcontrol)\b"),
     "assembly changes the state of the block beyond a tile"),
    (re.compile(r"\bcall\b(?!.*cudaLaunch)", re.DOTALL),
     "assembly calls a function, which may read the block's number"),
)  # fmt: skip
BARRIER = re.compile(r"\b(?:bar|barrier)\.(?:cta\.)?(?:sync|red|arrive)\b")
_REGISTER = re.compile(r"%%?(n?ctaid|n?tid)\.([xyz])\b")
_TEXTS = frozenset({"string_literal", "concatenated_string", "string_content", "escape_sequence",
                    "comment"})  # fmt: skip
_ESCAPE = re.compile(r"\\[^nrt\\\"'?]")
_ANY = re.compile(r"%%?n?(?:ctaid|tid)\b")


def code_of(source: Source, asm: Node) -> str:
    """The assembly's text, with its strings joined."""
    code = asm.child_by_field_name("assembly_code")
    if code is None:
        return ""
    return "".join(
        source.of(n) for n in inside(code) if n.type in ("string_content", "escape_sequence")
    )


def refused(code: str) -> Iterator[str]:
    """Reasons why a text of assembly cannot be part of a tile."""
    yield from (why for pattern, why in REFUSED if pattern.search(code))


def reasons(source: Source, asm: Node) -> Iterator[str]:
    """Reasons why an `asm` expression cannot be part of a tile."""
    code = code_of(source, asm)
    yield from refused(code)
    node = asm.child_by_field_name("assembly_code")
    if node is None or any(n.type not in _TEXTS for n in inside(node)):
        yield "assembly of more than strings is not understood"
    elif _ESCAPE.search(code):
        yield "assembly with characters by their numbers is not understood"
    if len(_ANY.findall(code)) != len(_REGISTER.findall(code)):
        yield "assembly reads the block's number in a way that is not understood"


def edits(source: Source, asm: Node, values: Mapping[str, str]) -> list[Edit]:
    """Replaces registers that `values` names ("ctaid") by operands with these values."""
    code = asm.child_by_field_name("assembly_code")
    lists = [asm.child_by_field_name(f"{kind}_operands") for kind in ("output", "input")]
    count = sum(len(found.named_children) for found in lists if found is not None)
    if code is None:
        return []
    added: dict[str, str] = {}
    made = []
    plain = all(found is None for found in lists)  # then a percent sign is not doubled
    for text in (n for n in inside(code) if n.type == "string_content"):
        before = source.of(text)

        def operand(found: re.Match[str]) -> str:
            name = f"{found[1]}.{found[2]}"
            if found[1] not in values:
                return found[0]
            added.setdefault(name, f"%{count + len(added)}")
            return added[name]

        after = _REGISTER.sub(operand, before)
        if after != before:
            if plain:
                after = re.sub(r"%(?!\d)", "%%", after)
            made.append(Edit(text.start_byte, text.end_byte, after))
    if added:
        given = ", ".join(f'"r"({values[n[:-2]]}{n[-2:]})' for n in added)
        made.append(_inputs(code, lists[0], lists[1], given))
    return made


def _inputs(code: Node, outputs: Node | None, inputs: Node | None, given: str) -> Edit:
    if inputs is not None:
        more = f", {given}" if inputs.named_children else f" {given} "
        return Edit(inputs.end_byte, inputs.end_byte, more)
    at = outputs.end_byte if outputs is not None else code.end_byte
    return Edit(at, at, f" : {given}" if outputs is not None else f" : : {given}")

"""Pads shared arrays whose columns are read with one element per row, against bank conflicts.

Input: a kernel.  Output: edits of its text.  Rows of 32 words (or a multiple) begin in the same
bank, so threads that read a column wait for each other; one more element shifts each row.  An array
is padded only if every use of it is `name[i][j]`, and if its rows are a multiple of all banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import Edit, inside, is_shared, name_of
from tilewright.elastic.transform.definitions import Definition
from tilewright.elastic.transform.modules import SourceModule

if TYPE_CHECKING:
    from tree_sitter import Node

#: Bytes of one row of all banks.
BANKS = 128


@dataclass(frozen=True)
class Padding:
    """The edits, and a note for each array."""

    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = ()


def padding(module: SourceModule, kernel: Definition) -> Padding:
    of = module.source.of
    edits, notes = [], []
    columns = _by_thread(module, kernel)
    for node in inside(kernel.body):
        if node.type != "declaration" or not is_shared(module.source, node):
            continue
        kind = node.child_by_field_name("type")
        for declarator in node.children_by_field_name("declarator"):
            name, sizes = name_of(declarator), _sizes(declarator)
            if kind is None or name is None or len(sizes) != 2:
                continue
            words = [n for n in inside(kernel.body) if n.type == "identifier"]
            uses = [n for n in words if of(n) == of(name) and n.id != name.id]
            rows = [_row_of(use) for use in uses]
            if not rows or any(row is None for row in rows):
                continue
            if any(row is not None and _names(module, row) & columns for row in rows):
                size, width = sizes[1], f"({of(sizes[1])})"
                more = f"({width} * sizeof({of(kind)}) % {BANKS} == 0)"
                edits.append(Edit(size.start_byte, size.end_byte, f"{width} + {more}"))
                notes.append(f"shared array {of(name)}: rows are one element longer "
                             f"where they are a multiple of {BANKS} bytes")  # fmt: skip
    return Padding(tuple(edits), tuple(notes))


def _sizes(declarator: Node) -> list[Node]:
    """The extents of an array, outermost first."""
    found: list[Node] = []
    node: Node | None = declarator
    while node is not None and node.type == "array_declarator":
        size = node.child_by_field_name("size")
        if size is None:
            return []
        found.insert(0, size)
        node = node.child_by_field_name("declarator")
    return found if node is not None and node.type == "identifier" else []


def _row_of(use: Node) -> Node | None:
    """The first index of `name[i][j]`; None if it is used in another way."""
    first = use.parent
    second = first.parent if first is not None else None
    outer = second.parent if second is not None else None
    for node, inner in ((first, use), (second, first)):
        if node is None or inner is None or node.type != "subscript_expression":
            return None
        argument = node.child_by_field_name("argument")
        if argument is None or argument.id != inner.id:
            return None
    if outer is not None and (
        outer.type in ("subscript_expression", "pointer_expression", "sizeof_expression")
    ):
        return None
    return first.child_by_field_name("indices") if first is not None else None


def _names(module: SourceModule, node: Node) -> set[str]:
    found = {module.source.of(n) for n in inside(node) if n.type == "identifier"}
    text = module.source.of(node).replace(" ", "")
    return found | ({"threadIdx.x"} if "threadIdx.x" in text else set())


def _by_thread(module: SourceModule, kernel: Definition) -> set[str]:
    """Names whose values depend on threadIdx.x."""
    found, before = {"threadIdx.x"}, 0
    while before != len(found):
        before = len(found)
        for node in inside(kernel.body):
            name = name_of(node.child_by_field_name("declarator"))
            value = node.child_by_field_name("value")
            if node.type != "init_declarator" or name is None or value is None:
                continue
            if _names(module, value) & found:
                found.add(module.source.of(name))
    return found

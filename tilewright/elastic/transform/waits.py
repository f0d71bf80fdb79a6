"""Loops in which a thread waits for another block.

Input: a function of a source.  Output: the loops with what gives them away.  A worker that waits
for a tile that nobody runs would wait for ever, so kernels with such loops are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.elastic.transform.flow import LOOPS
from tilewright.elastic.transform.module import CudaSource, Definition, volatile_names
from tilewright.elastic.transform.source import inside, name_of

if TYPE_CHECKING:
    from tree_sitter import Node

_ATOMIC = re.compile(r"atomic[A-Z]\w*$")
#: Atomics with which a lock is taken.
_LOCK = ("atomicCAS", "atomicExch")
#: A read of memory that others write, in words of the text.
_FRESH = re.compile(
    r"\bvolatile\b|\bld\.(?:acquire|volatile|relaxed)\b|__nanosleep|\.load\s*\(|\bwait\s*\("
)
_JUMPS = ("break_statement", "return_statement")


def waits(module: CudaSource, function: Definition) -> Iterator[tuple[Node, str]]:
    """Loops that end only when somebody else writes, with why."""
    of = module.source.of
    volatile = _volatile(module, function)
    for loop in inside(function.body):
        if loop.type not in LOOPS:
            continue
        body = loop.child_by_field_name("body")
        conditions = list(_ends(loop))
        if body is None or any(_steps(module, body, c) for c in conditions):
            continue
        for condition in conditions:
            names = {of(n) for n in inside(condition) if n.type == "identifier"}
            atomics = [n for n in names if _ATOMIC.match(n)]
            if atomics:
                if not (set(atomics) <= set(_LOCK) and _released(module, function, condition)):
                    yield loop, f"a loop waits for another block ({atomics[0]})"
            elif _FRESH.search(of(condition)) or names & volatile:
                yield loop, "a loop waits for another block (volatile memory)"
            elif _bare(body) and _reads(condition):
                yield loop, "a loop waits for another block (memory that it does not write)"
            elif _fetched(module, body, names):
                yield loop, "a loop waits for another block (a value that it reads again)"


def _ends(loop: Node) -> Iterator[Node]:
    """Conditions that end the loop: its own, and those around a break."""
    own = loop.child_by_field_name("condition")
    if own is not None and not _constant(own):
        yield own
        return
    body = loop.child_by_field_name("body")
    for node in inside(body) if body is not None else ():
        condition = node.child_by_field_name("condition")
        if node.type == "if_statement" and condition is not None:
            taken = node.child_by_field_name("consequence")
            if taken is not None and any(n.type in _JUMPS for n in inside(taken)):
                yield condition


def _constant(condition: Node) -> bool:
    return all(
        n.type in ("condition_clause", "parenthesized_expression", "true", "number_literal")
        for n in inside(condition)
    )


def _steps(module: CudaSource, body: Node, condition: Node) -> bool:
    """Whether the loop counts: something in the condition changes by arithmetic alone."""
    of = module.source.of
    names = {of(n) for n in inside(condition) if n.type == "identifier"}
    loop = body.parent
    update = loop.child_by_field_name("update") if loop is not None else None
    for part in (condition, body, *([update] if update is not None else [])):
        for node in inside(part):
            if node.type == "update_expression":
                target = name_of(node.child_by_field_name("argument"))
            elif node.type == "assignment_expression":
                target = name_of(node.child_by_field_name("left"))
                value = node.child_by_field_name("right")
                if value is None or any(n.type == "call_expression" for n in inside(value)):
                    continue
                if _FRESH.search(of(value)) or value.type == "subscript_expression":
                    continue
            else:
                continue
            if target is not None and of(target) in names:
                return True
    return False


def _released(module: CudaSource, function: Definition, condition: Node) -> bool:
    """Whether what the condition takes is given back by the same function: a lock."""
    of = module.source.of
    taken = {
        of(arguments.named_children[0]).lstrip("&")
        for call in inside(condition)
        if call.type == "call_expression"
        and (arguments := call.child_by_field_name("arguments")) is not None
        and arguments.named_children
    }
    for node in inside(function.body):
        if condition.start_byte <= node.start_byte < condition.end_byte:
            continue
        if node.type == "call_expression" and of(node).startswith(("atomicExch", "atomicCAS")):
            given = node.child_by_field_name("arguments")
            if given is not None and of(given.named_children[0]).lstrip("&") in taken:
                return True
        elif node.type == "assignment_expression":
            left = node.child_by_field_name("left")
            if left is not None and of(left).lstrip("*") in taken:
                return True
    return False


def _volatile(module: CudaSource, function: Definition) -> set[str]:
    """Parameters and global variables that are volatile, but for arrays in shared memory."""
    own = (node for node in function.parameters.named_children)
    return {*module.volatile, *volatile_names(module.source, own)}


def _bare(body: Node) -> bool:
    """Nothing but fences and barriers."""
    return not any(
        n.type in ("assignment_expression", "update_expression", "init_declarator")
        for n in inside(body)
    )


def _reads(condition: Node) -> bool:
    return any(n.type in ("subscript_expression", "pointer_expression") for n in inside(condition))


def _fetched(module: CudaSource, body: Node, names: set[str]) -> bool:
    """Whether the condition's names are only read again from memory that others write."""
    of = module.source.of
    for node in inside(body):
        if node.type not in ("assignment_expression", "init_declarator"):
            continue
        target = name_of(node.child_by_field_name("left") or node.child_by_field_name("declarator"))
        value = node.child_by_field_name("right") or node.child_by_field_name("value")
        if target is None or value is None or of(target) not in names:
            continue
        text = of(value)
        if _FRESH.search(text) or re.search(
            r"\batomic(?:Add|Or|Xor|Max)\s*\([^;]*,\s*0u?\s*\)", text
        ):
            return True
    return False

"""Finds loops in which a thread waits for another block.

Input: a function of a source.  Output: the loops, each with the evidence.  A worker that waits for
a tile which no worker is running would wait forever, so kernels with such loops are refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import inside, name_of
from tilewright.elastic.transform.definitions import (
    NAMES,
    WORD,
    Definition,
    Macro,
)
from tilewright.elastic.transform.flow import LOOPS
from tilewright.elastic.transform.modules import SourceModule

if TYPE_CHECKING:
    from tree_sitter import Node

_ATOMIC = re.compile(r"atomic[A-Z]\w*$")
#: Atomic functions that can take a lock.
_LOCK = ("atomicCAS", "atomicExch")
#: Text that reads memory which other threads write.
_FRESH = re.compile(
    r"\bvolatile\b|\bld\.(?:acquire|volatile|relaxed)\b|__nanosleep|\.load\s*\(|\bwait\s*\("
)
#: A word that reads memory which other threads write.
OTHERS = re.compile(rf"{_ATOMIC.pattern}|volatile$|__nanosleep$")
_ASKING = re.compile(rf"{_FRESH.pattern}|\batomic[A-Z]\w*")
_LOOP = re.compile(r"\bwhile\b(?!\s*\(\s*(?:0|false)\s*\))|\bfor\s*\(\s*;|\bgoto\b")
_JUMPS = ("break_statement", "return_statement")


def waits(
    module: SourceModule, function: Definition, asked: frozenset[str]
) -> Iterator[tuple[Node, str]]:
    """Loops that end only when another thread writes, each with the evidence.

    asked: names of code that reads memory which other threads write
    """
    of = module.source.of
    volatile = _volatile(module, function, asked)
    for loop in inside(function.body):
        if loop.type not in LOOPS:
            continue
        body = loop.child_by_field_name("body")
        conditions = list(_ends(loop))
        if body is None or any(_steps(module, body, c) for c in conditions):
            continue
        for condition in conditions:
            names = {of(n) for n in inside(condition) if n.type in NAMES}
            atomics = [n for n in names if _ATOMIC.match(n)]
            if atomics:
                if not (set(atomics) <= set(_LOCK) and _released(module, function, condition)):
                    yield loop, f"a loop waits for another block ({atomics[0]})"
            elif _FRESH.search(of(condition)) or names & volatile:
                yield loop, "a loop waits for another block (volatile memory)"
            elif names & asked:
                yield loop, "a loop waits for another block (what its condition calls)"
            elif _bare(body) and _reads(condition):
                yield loop, "a loop waits for another block (memory that it does not write)"
            elif _fetched(module, body, names):
                yield loop, "a loop waits for another block (a value that it reads again)"
    yield from _loops_of_macros(module, function, asked)
    yield from _jumps_back(module, function)


def _loops_of_macros(
    module: SourceModule, function: Definition, asked: frozenset[str]
) -> Iterator[tuple[Node, str]]:
    """Uses of a macro with a loop whose condition is an argument: `#define UNTIL(c) while
    (!(c))`."""
    of = module.source.of
    looping = {n for n, found in module.around.macros.items() if any(map(_has_loop, found))}
    if not looping:
        return
    for call in inside(function.body):
        callee, given = (call.child_by_field_name(f) for f in ("function", "arguments"))
        if call.type != "call_expression" or callee is None or given is None:
            continue
        words = {of(n) for n in inside(given) if n.type in NAMES}
        if looping & module.around.meant([of(callee)]) and (
            words & asked or _ASKING.search(of(given))
        ):  # fmt: skip
            yield call, f"a loop of the macro {of(callee)} may wait for another block"


def _has_loop(macro: Macro) -> bool:
    return bool(_LOOP.search(macro.value))


def asking(module: SourceModule) -> frozenset[str]:
    """Names of macros, types and functions whose own text reads memory which other threads
    write."""
    of = module.source.of
    types = (
        n for n in inside(module.source.root) if n.type in ("type_definition", "alias_declaration")
    )
    own = [
        n for n, found in module.own.macros.items() if any(_ASKING.search(m.value) for m in found)
    ]
    own += [
        n for n, found in module.named.items() if any(_ASKING.search(of(f.body)) for f in found)
    ]
    own += [
        of(name)
        for node in types
        if (name := name_of(node.child_by_field_name("declarator") or node)) is not None
        and "volatile" in module.around.meant(WORD.findall(of(node)))
    ]
    return frozenset(own)


def is_spin_macro(macro: Macro, asked: frozenset[str]) -> bool:
    """True if a macro has a loop and reads memory which other threads write.

    asked: names of code that reads such memory
    """
    return _has_loop(macro) and bool(_ASKING.search(macro.value) or macro.words & asked)


def _jumps_back(module: SourceModule, function: Definition) -> Iterator[tuple[Node, str]]:
    """Jumps back to a label, with a read of memory which other threads write in between."""
    of, body = module.source.of, function.body
    jumps = [n for n in inside(body) if n.type in ("labeled_statement", "goto_statement")]
    reads = (
        [body.start_byte + found.start() for found in _ASKING.finditer(of(body))] if jumps else []
    )
    labels: dict[str, int] = {}
    for node in jumps:
        label = node.child_by_field_name("label")
        if label is None:
            continue
        if node.type == "labeled_statement":
            labels[of(label)] = node.start_byte
        elif (start := labels.get(of(label))) is not None and (
            bisect_left(reads, start) < bisect_left(reads, node.start_byte)
        ):  # fmt: skip
            yield node, "a jump back may wait for another block"


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


def _steps(module: SourceModule, body: Node, condition: Node) -> bool:
    """True if the loop counts: something in the condition changes by arithmetic alone."""
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


def _released(module: SourceModule, function: Definition, condition: Node) -> bool:
    """True if the same function releases what the condition acquires: a lock."""
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


def _volatile(module: SourceModule, function: Definition, asked: frozenset[str]) -> set[str]:
    """Volatile parameters and global variables, except arrays in shared memory."""
    given = function.parameters.named_children
    return {*module.around.volatile, *module.around.volatile_names(module.source, given, asked)}


def _bare(body: Node) -> bool:
    """True if the body has only fences and barriers."""
    return not any(
        n.type in ("assignment_expression", "update_expression", "init_declarator")
        for n in inside(body)
    )


def _reads(condition: Node) -> bool:
    return any(n.type in ("subscript_expression", "pointer_expression") for n in inside(condition))


def _fetched(module: SourceModule, body: Node, names: set[str]) -> bool:
    """True if the body only reads the condition's names again from memory which others write."""
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

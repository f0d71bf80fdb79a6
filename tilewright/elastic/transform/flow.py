"""Finds returns of a kernel that only some threads of a block take, and the code after them.

Input: a function of a `SourceModule`.  Output: names whose values may differ between the threads of
a block, and returns that only some threads may take.  An unknown value counts as different.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import above, declared, inside, name_of
from tilewright.elastic.transform.definitions import BLOCK, Definition
from tilewright.elastic.transform.modules import SourceModule

if TYPE_CHECKING:
    from tree_sitter import Node

LAMBDA = frozenset({"lambda_expression"})
LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_CONTROL = (*LOOPS, "if_statement", "switch_statement", "conditional_expression")
#: Names that are the same for all threads of a block.
_SAME = BLOCK | {"blockDim", "warpSize", "true", "false", "NULL", "nullptr"}
#: Functions whose result depends only on their arguments.
_PURE = frozenset({
    "min", "max", "abs", "fabsf", "ceilf", "floorf", "sqrtf", "powf", "log2f", "exp2f", "ceil",
    "floor", "sqrt", "pow", "__mul24", "__umul24", "make_int2", "make_float2",
})  # fmt: skip
#: Functions of CUDA that take values and pointers.
_BY_VALUE = re.compile(
    r"__\w+$|atomic\w+$|make_\w+$|tex\w+$|\w+f$|printf$|assert$|sin$|cos$|exp$|log$"
)


class Flow:
    """Data flow of a function.  varying: its variables and parameters that may differ between
    threads"""

    def __init__(self, module: SourceModule, function: Definition) -> None:
        self.module, self.function, self._of = module, function, module.source.of
        self._known = self._constants() | declared(module.source, function.parameters)
        self.varying: set[str] = set()
        writes = list(self._writes())
        self._known |= {name for name, _, _ in writes}
        before = -1
        while before != len(self.varying):
            before = len(self.varying)
            for name, value, at in writes:
                if value is None or self.differs(value) or self.divergent(at):
                    self.varying.add(name)

    def _constants(self) -> set[str]:
        found = {self._of(n) for t in self.function.templates for n in inside(t)
                 if n.type == "identifier"}  # fmt: skip
        return found | self.module.constants

    def _writes(self) -> Iterator[tuple[str, Node | None, Node]]:
        """Names that are written, each with its value (None: any) and the place."""
        for node in inside(self.function.body):
            if node.type == "init_declarator":
                target, value = (node.child_by_field_name(f) for f in ("declarator", "value"))
            elif node.type == "assignment_expression":
                target, value = (node.child_by_field_name(f) for f in ("left", "right"))
            elif node.type == "update_expression":
                target = value = node.child_by_field_name("argument")
            elif node.type == "declaration":
                for declared in node.children_by_field_name("declarator"):
                    if declared.type == "identifier":
                        yield self._of(declared), declared, node
                continue
            else:
                yield from ((self._of(n), None, node) for n in self._escaping(node))
                continue
            if target is not None and (name := name_of(_root(target))) is not None:
                yield self._of(name), value, node

    def _escaping(self, node: Node) -> Iterator[Node]:
        """Identifiers that other code may write: by address, by reference, by assembly."""
        if node.type == "pointer_expression" and self._of(node).startswith("&"):
            found = name_of(_root(node.child_by_field_name("argument")))
            yield from [found] if found else []
        elif node.type == "gnu_asm_output_operand":
            found = name_of(_root(node.child_by_field_name("value")))
            yield from [found] if found else []
        elif node.type == "call_expression":
            callee, given = (node.child_by_field_name(f) for f in ("function", "arguments"))
            if callee is not None and callee.type == "field_expression":
                found = name_of(_root(callee.child_by_field_name("argument")))
                yield from [found] if found else []
            if given is not None and self._by_reference(name_of(callee)):
                yield from (n for n in given.named_children if n.type == "identifier")

    def _by_reference(self, callee: Node | None) -> bool:
        """True if a call may write to variables that it is passed."""
        name = self._of(callee) if callee is not None else ""
        if name in self.module.named:
            return any("&" in self._of(f.parameters) for f in self.module.named[name])
        return not (name in _PURE or _BY_VALUE.match(name))

    def differs(self, value: Node) -> bool:
        """True if the value of an expression may differ between threads of a block."""
        for node in inside(value):
            if node.type in ("subscript_expression", "gnu_asm_expression", "lambda_expression"):
                return True
            if node.type == "pointer_expression" and self._of(node).startswith("*"):
                return True
            if node.type == "field_expression" and "->" in self._of(node):
                return True
            if node.type == "call_expression":
                name = name_of(node.child_by_field_name("function"))
                if name is None or self._of(name) not in _PURE:
                    return True
            if node.type == "identifier" and self._name_differs(self._of(node)):
                return True
        return False

    def _name_differs(self, name: str) -> bool:
        pending, seen = [name], {name}
        while pending:
            word = pending.pop()
            if word in self.varying:
                return True
            if word in self._known or word in _SAME or word in _PURE:
                continue
            macros = self.module.own.macros.get(word)
            if not macros:
                return True
            more = {w for macro in macros for w in macro.words} - seen
            seen |= more
            pending += more
        return False

    def divergent(self, node: Node) -> bool:
        """True if only some threads of a block may reach this node."""
        for outer in above(node, self.function.body):
            if outer.type not in _CONTROL:
                continue
            if any(self.differs(c) for c in outer.children_by_field_name("condition")):
                return True
            if outer.type in LOOPS and any(
                self._leaves_loop(inner, outer) for inner in inside(outer, skip=LAMBDA)
            ):
                return True
        return False

    def _leaves_loop(self, node: Node, loop: Node) -> bool:
        """True if some, but not all, threads may leave the loop here."""
        if node.type not in ("break_statement", "continue_statement", "return_statement"):
            return False
        return any(
            self.differs(c)
            for outer in above(node, loop)
            if outer.type in _CONTROL
            for c in outer.children_by_field_name("condition")
        )

    def returns(self) -> list[Node]:
        """Returns that only some threads of a block may take, in the order of the text.

        A macro that contains a return counts as one.
        """
        around = self.module.around
        returning = {name for name in around.macros if "return" in around.meant([name])}
        return [
            node
            for node in inside(self.function.body, skip=LAMBDA)
            if (
                (node.type == "return_statement" and self.divergent(node))
                or (node.type == "identifier" and self._of(node) in returning)
            )
        ]

    @cached_property
    def _jumps(self) -> bool:
        return any(n.type == "goto_statement" for n in inside(self.function.body))

    def followed(self, nodes: Iterable[Node], later: Iterable[Node]) -> list[Node]:
        """Those of `nodes` after which a thread that stays may reach one of `later`."""
        starts = sorted(node.start_byte for node in later)
        return [node for node in nodes if starts and self._followed(node, starts)]

    def _followed(self, node: Node, starts: list[int]) -> bool:
        if self._jumps or starts[-1] > node.start_byte:
            return True
        return any(
            bisect_left(starts, outer.start_byte) < bisect_left(starts, outer.end_byte)
            for outer in above(node, self.function.body)
            if outer.type in LOOPS
        )


def _root(node: Node | None) -> Node | None:
    """The variable that an assignment to `a.x`, `(a)` or `*a` writes, as far as names show."""
    while node is not None and node.type in (
        "field_expression", "parenthesized_expression", "pointer_expression", "subscript_expression"
    ):  # fmt: skip
        node = node.child_by_field_name("argument") or next(iter(node.named_children), None)
    return node

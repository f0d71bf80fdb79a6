"""The definitions in the text of one CUDA source: kernels, functions, macros, declarations.

Input: a `Source`.  Output: `Definitions`, as plain data.  Nothing is known here of headers:
modules.py joins the definitions of a file and its headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.base.errors import required
from tilewright.elastic.transform.cuda_source import Source, above, inside, name_of

if TYPE_CHECKING:
    from tree_sitter import Node

BLOCK = frozenset({"blockIdx", "gridDim"})
THREAD = frozenset({"threadIdx", "blockDim"})
#: Barriers of a block.
BARRIERS = frozenset(
    {"__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count"}
)
#: Functions whose first argument is a mask of lanes that must all call them.
LANES = re.compile(r"__(?:shfl(?:_\w+)?|ballot|any|all|reduce_\w+|match_\w+)_sync$|__syncwarp$")
#: A special register in assembly, as a word of the text.
REGISTER = re.compile(r"%(?:n?ctaid|n?tid)\b")
NAMES = ("identifier", "field_identifier", "type_identifier")
WORD = re.compile(rf"{REGISTER.pattern}|[A-Za-z_]\w*")
#: Nodes in which a kernel's mark may be.
_HOMES = ("function_definition", "declaration", "field_declaration", "friend_declaration",
          "template_instantiation", "ERROR")  # fmt: skip
#: Nodes around a function that belong to its text.
_AROUND = ("template_declaration", "linkage_specification")


@dataclass(frozen=True)
class Definition:
    """A definition.  whole: with its template and linkage;  declarator: its name and parameters

    made: True if a macro expands to a part of its head, which the parser did not see
    """

    name: str
    node: Node = field(repr=False)
    whole: Node = field(repr=False)
    declarator: Node = field(repr=False)
    body: Node = field(repr=False)
    kernel: bool
    made: bool = False

    @property
    def parameters(self) -> Node:
        found = self.declarator.child_by_field_name("parameters")
        return required(found, "a function has no parameters", function=self.name)

    @cached_property
    def labels(self) -> Node:
        """The node of its name; for `k<float>` the name of the template."""
        found = name_of(self.declarator.child_by_field_name("declarator"))
        return required(found, "a function has no name", function=self.name)

    @property
    def templates(self) -> list[Node]:
        """Its lists of template parameters, outermost first."""
        found = []
        node: Node | None = self.node.parent
        while node is not None and node.start_byte >= self.whole.start_byte:
            if node.type == "template_declaration":
                found.append(node.child_by_field_name("parameters"))
            node = node.parent
        return [node for node in reversed(found) if node is not None]


@dataclass(frozen=True)
class Macro:
    """A `#define`; value: its replacement, as text."""

    name: str
    value: str
    node: Node = field(repr=False)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(WORD.findall(self.value))


@dataclass(frozen=True, eq=False)
class Definitions:
    """The definitions in one source.

    declarations: of functions, without a body;  odd: operators and others without a name
    lost: where a kernel begins that the parser did not find
    empty: macros that expand to nothing
    """

    source: Source
    functions: tuple[Definition, ...]
    macros: dict[str, tuple[Macro, ...]]
    declarations: tuple[Node, ...]
    odd: tuple[Node, ...]
    lost: tuple[Node, ...]
    empty: frozenset[str]

    @property
    def kernels(self) -> list[Definition]:
        return [f for f in self.functions if f.kernel]


def definitions(source: Source) -> Definitions:
    functions: list[Definition] = []
    empty: set[str] = set()
    odd: list[Node] = []
    macros: dict[str, list[Macro]] = {}
    declarations: list[Node] = []
    for node in inside(source.root):
        if node.type == "function_definition":
            made = list(_functions(source, node))
            functions += made
            if not made:
                odd.append(node)
        elif node.type in ("preproc_def", "preproc_function_def"):
            name, value = (node.child_by_field_name(f) for f in ("name", "value"))
            if name is not None and value is not None:
                macro = Macro(source.of(name), source.of(value), node)
                macros.setdefault(macro.name, []).append(macro)
            elif name is not None:
                empty.add(source.of(name))
        elif node.type in ("declaration", "field_declaration"):
            declarator = node.child_by_field_name("declarator")
            if declarator is not None and function_in(declarator) is not None:
                declarations.append(node)
    made_macros = {name: tuple(found) for name, found in macros.items()}
    lost = tuple(_lost(source.root, functions))
    return Definitions(
        source, tuple(functions), made_macros, tuple(declarations), tuple(odd), lost,
        frozenset(empty),
    )  # fmt: skip


def _lost(root: Node, functions: Iterable[Definition]) -> Iterator[Node]:
    """Marks of kernels without a named definition or a whole declaration."""
    known = {function.node.id for function in functions}
    for node in inside(root, tokens=True):
        if node.type == "__global__":
            home = next((outer for outer in above(node, root) if outer.type in _HOMES), None)
            if home is None or home.type == "ERROR":
                yield node
            elif home.type == "function_definition":
                if home.id not in known:
                    yield node
            elif any(part.is_missing for part in home.children):
                yield node


def _functions(source: Source, node: Node) -> Iterator[Definition]:
    """Definitions of functions in a node, one for each name; its name is None for operators and
    constructors, which are not called by name.

    If a macro makes the head, several names may be the function's: `MAKE(name, int *given) {`.
    """
    declarator, body = (node.child_by_field_name(f) for f in ("declarator", "body"))
    found = function_in(declarator) if declarator is not None else None
    name = name_of(found.child_by_field_name("declarator")) if found else None
    if found is None or body is None or name is None or _is_literal(name):
        return
    kernel = any(child.type == "__global__" for child in node.children)
    made = is_untyped(node)
    if (kernel and made) or (node.child_by_field_name("type") is None and not made):
        return
    given = found.child_by_field_name("parameters")
    names = [name]
    if made and given is not None:
        names += (n for p in given.named_children if p.child_by_field_name("declarator") is None
                  for n in inside(p) if n.type == "type_identifier")  # fmt: skip
    for word in names:
        yield Definition(source.of(word), node, whole(node), found, body, kernel, made)


def function_in(declarator: Node) -> Node | None:
    """The part of a declarator with the parameters, below returned pointers and references."""
    node: Node | None = declarator
    while node is not None and node.type != "function_declarator":
        if node.type not in ("pointer_declarator", "reference_declarator"):
            return None
        node = next((c for c in node.named_children if c.type.endswith("declarator")), None)
    return node


def whole(node: Node) -> Node:
    """A definition or declaration with the template and linkage around it."""
    while node.parent is not None and node.parent.type in _AROUND:
        node = node.parent
    return node


def is_untyped(node: Node) -> bool:
    """True if a function has no result type in the text, so a macro before it must contain one.
    Constructors and conversion functions need none."""
    declarator = node.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return (
        node.child_by_field_name("type") is None
        and name is not None
        and name.type == "identifier"
        and not in_class(node)
    )


def in_class(node: Node) -> bool:
    outer = node.parent
    while outer is not None and outer.type != "field_declaration_list":
        outer = outer.parent
    return outer is not None


def _is_literal(name: Node) -> bool:
    """True if a name is the suffix of `operator""_suffix`, which is never called by name."""
    return name.parent is not None and name.parent.type == "operator_name"

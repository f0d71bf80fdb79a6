"""What a CUDA source defines: kernels, device functions, macros, and which of them reach what.

Input: a `Source`.  Output: a `CudaSource`.  Functions are known by name alone: where one of several
overloads reads the block's number, all of them are taken to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform.source import Source, above, declared, inside, name_of

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
#: A special register in assembly, as one of the words of a text.
REGISTER = re.compile(r"%(?:n?ctaid|n?tid)\b")
NAMES = ("identifier", "field_identifier", "type_identifier")
WORD = re.compile(rf"{REGISTER.pattern}|[A-Za-z_]\w*")
#: Where the mark of a kernel belongs.
_HOMES = ("function_definition", "declaration", "field_declaration", "friend_declaration",
          "template_instantiation", "ERROR")  # fmt: skip
_DEVICE = re.compile(r"__device__|__global__|\bconstexpr\b")
#: Definitions that stand around a function and belong to its text.
_AROUND = ("template_declaration", "linkage_specification")


@dataclass(frozen=True)
class Definition:
    """A definition; `whole` is it with its template and linkage, `declarator` its name and
    parameters."""

    name: str
    node: Node = field(repr=False)
    whole: Node = field(repr=False)
    declarator: Node = field(repr=False)
    body: Node = field(repr=False)
    kernel: bool

    @property
    def parameters(self) -> Node:
        found = self.declarator.child_by_field_name("parameters")
        assert found is not None
        return found

    @cached_property
    def labels(self) -> Node:
        """Where its name stands; of `k<float>` the name of the template."""
        found = name_of(self.declarator.child_by_field_name("declarator"))
        assert found is not None
        return found

    @property
    def templates(self) -> list[Node]:
        """Its lists of template parameters, from outside in."""
        found = []
        node: Node | None = self.node.parent
        while node is not None and node.start_byte >= self.whole.start_byte:
            if node.type == "template_declaration":
                found.append(node.child_by_field_name("parameters"))
            node = node.parent
        return [node for node in reversed(found) if node is not None]


@dataclass(frozen=True)
class Macro:
    """A `#define`; value: what it stands for, as text."""

    name: str
    value: str
    node: Node = field(repr=False)

    @property
    def words(self) -> frozenset[str]:
        return frozenset(WORD.findall(self.value))


@dataclass(frozen=True, eq=False)
class CudaSource:
    """declarations: of functions, without a body;  odd: operators and others without a name
    lost: where a kernel begins that the parser did not find
    """

    source: Source
    functions: tuple[Definition, ...]
    macros: dict[str, tuple[Macro, ...]]
    declarations: tuple[Node, ...]
    odd: tuple[Node, ...]
    lost: tuple[Node, ...]

    @property
    def kernels(self) -> list[Definition]:
        return [f for f in self.functions if f.kernel]

    def is_device(self, node: Node) -> bool:
        """Whether a definition is marked as the device's, perhaps by a macro."""
        body = node.child_by_field_name("body")
        end = body.start_byte if body is not None else node.end_byte
        head = self.source.between(whole(node).start_byte, end)
        texts = [head, *(m.value for w in WORD.findall(head) for m in self.macros.get(w, ()))]
        return any(_DEVICE.search(text) for text in texts)

    @cached_property
    def named(self) -> dict[str, list[Definition]]:
        """By name, what kernels may call."""
        found: dict[str, list[Definition]] = {}
        for function in self.functions:
            if not function.kernel and self.is_device(function.node):
                found.setdefault(function.name, []).append(function)
        return found

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """By name of a macro or of what kernels may call: the words of its text."""
        return self._of_each(lambda macro: macro.words, lambda f: self.words_in(f.body))

    @cached_property
    def calls(self) -> dict[str, frozenset[str]]:
        """By the same names: what they may call, and macros that they use."""
        return self._of_each(lambda macro: macro.words & self._names, self.calls_in)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.macros) | frozenset(self.named)

    def _of_each(
        self,
        of_macro: Callable[[Macro], frozenset[str]],
        of_function: Callable[[Definition], frozenset[str]],
    ) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for name in self._names:
            sets = [*map(of_macro, self.macros.get(name, ()))]
            sets += map(of_function, self.named.get(name, ()))
            found[name] = frozenset[str]().union(*sets)
        return found

    def words_in(self, node: Node) -> frozenset[str]:
        """Identifiers below a node, and special registers in its assembly."""
        found: set[str] = set()
        for inner in inside(node):
            if inner.type in NAMES:
                found.add(self.source.of(inner))
            elif inner.type == "string_content":
                found.update(REGISTER.findall(self.source.of(inner)))
        return frozenset(found)

    def calls_in(self, function: Definition) -> frozenset[str]:
        """Names of the file that a function calls or constructs, and macros that it uses."""
        found = set[str]()
        for inner in inside(function.body):
            if inner.type == "call_expression":
                name = name_of(inner.child_by_field_name("function"))
                found |= {self.source.of(name)} if name else set()
            elif inner.type == "type_identifier" or (
                inner.type == "identifier" and self.source.of(inner) in self.macros
            ):
                found.add(self.source.of(inner))
        return (self._names & found) - self.locals_of(function)

    def locals_of(self, function: Definition) -> frozenset[str]:
        """Names that mean something of the function's own."""
        return declared(self.source, function.parameters) | declared(self.source, function.body)

    def behind(self, names: Iterable[str]) -> frozenset[str]:
        """These names, and what they reach over any number of calls."""
        pending, found = [n for n in names if n in self._names], set[str]()
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self.calls[name]
        return frozenset(found)

    @cached_property
    def constants(self) -> frozenset[str]:
        """Constants and enumerators, which are the same for all threads."""
        of, found = self.source.of, set[str]()
        for node in self.source.root.named_children:
            if node.type == "declaration" and any(
                of(q) in ("const", "constexpr", "__constant__")
                for q in node.named_children
                if q.type == "type_qualifier"
            ):
                name = name_of(node.child_by_field_name("declarator"))
                found |= {of(name)} if name else set()
        return frozenset(found) | {
            of(n) for n in inside(self.source.root) if n.type == "enumerator"
        }

    @cached_property
    def volatile(self) -> frozenset[str]:
        """Volatile variables of the file."""
        nodes = (n for n in self.source.root.named_children if n.type == "declaration")
        return frozenset(volatile_names(self.source, nodes))

    @cached_property
    def _callers(self) -> dict[str, list[str]]:
        """By name, what calls it or uses it."""
        found: dict[str, list[str]] = {}
        for name in self._names:
            for called in self.calls[name]:
                found.setdefault(called, []).append(name)
        return found

    @cached_property
    def _reaching(self) -> dict[frozenset[str], frozenset[str]]:
        return {}

    def reaching(self, wanted: frozenset[str]) -> frozenset[str]:
        """Names of the file whose text, or what it calls, mentions any of the wanted."""
        if wanted not in self._reaching:
            pending = [name for name in self._names if self.words[name] & wanted]
            found = set[str]()
            while pending:
                name = pending.pop()
                if name not in found:
                    found.add(name)
                    pending += self._callers.get(name, ())
            self._reaching[wanted] = frozenset(found)
        return self._reaching[wanted]

    def bodies(self, function: Definition) -> list[Definition]:
        """The function, and all of the file that it may call."""
        names = sorted(self.behind(self.calls_in(function)))
        return [function, *(f for name in names for f in self.named.get(name, ()))]


def module(source: Source) -> CudaSource:
    functions: list[Definition] = []
    odd: list[Node] = []
    macros: dict[str, list[Macro]] = {}
    declarations: list[Node] = []
    for node in inside(source.root):
        if node.type == "function_definition":
            made = _function(source, node)
            if made is None:
                odd.append(node)
            else:
                functions.append(made)
        elif node.type in ("preproc_def", "preproc_function_def"):
            name, value = (node.child_by_field_name(f) for f in ("name", "value"))
            if name is not None and value is not None:
                macro = Macro(source.of(name), source.of(value), node)
                macros.setdefault(macro.name, []).append(macro)
        elif node.type in ("declaration", "field_declaration"):
            declarator = node.child_by_field_name("declarator")
            if declarator is not None and function_in(declarator) is not None:
                declarations.append(node)
    made_macros = {name: tuple(found) for name, found in macros.items()}
    lost = tuple(_lost(source.root, functions))
    return CudaSource(source, tuple(functions), made_macros, tuple(declarations), tuple(odd), lost)


def _lost(root: Node, functions: Iterable[Definition]) -> Iterator[Node]:
    """The marks of kernels that have neither a definition with a name nor a whole declaration."""
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


def volatile_names(source: Source, nodes: Iterable[Node]) -> Iterator[str]:
    """Of declarations, the names of those that are volatile."""
    for node in nodes:
        name = name_of(node.child_by_field_name("declarator"))
        if name is not None and re.search(r"\bvolatile\b", source.of(node)):
            yield source.of(name)


def function_in(declarator: Node) -> Node | None:
    """The part with the parameters, below pointers and references that are returned."""
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


def _function(source: Source, node: Node) -> Definition | None:
    """None: it has no name by which it is called, such as an operator or a constructor."""
    declarator, body, result = (node.child_by_field_name(f) for f in ("declarator", "body", "type"))
    if declarator is None or body is None or result is None:
        return None
    found = function_in(declarator)
    name = name_of(found.child_by_field_name("declarator")) if found else None
    if found is None or name is None or _is_literal(name):
        return None
    kernel = any(child.type == "__global__" for child in node.children)
    return Definition(source.of(name), node, whole(node), found, body, kernel)


def _is_literal(name: Node) -> bool:
    """Whether a name is the suffix of `operator""_suffix`, which nobody calls by it."""
    return name.parent is not None and name.parent.type == "operator_name"

"""The definitions in CUDA sources (kernels, device functions, macros), and which lead to which.

Input: the `Source`s of a file and its headers.  Output: a `CudaSource` of each.  Functions are
identified by name only: if one of several overloads reads the block's number, all of them count.  A
word has every meaning that any of the sources gives it, since the order of headers is not known.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.base.errors import required
from tilewright.elastic.transform.cuda_source import Source, above, declared, inside, name_of

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
_DEVICE = frozenset({"__device__", "__global__", "constexpr"})
#: Words before a function's name that are not types.
_SPECIFIERS = re.compile(
    r"__\w+__|__\w*inline|static|inline|extern|virtual|friend|explicit|const|constexpr|consteval"
    r"|volatile|register|typename|struct|class|union|enum|template|requires|alignas|__declspec"
    r"|noexcept|restrict|__restrict|mutable|using|namespace|C"
)
_PLAIN = frozenset({"void", "bool", "char", "short", "int", "long", "float", "double", "signed",
                    "unsigned", "auto", "decltype", "wchar_t"})  # fmt: skip
#: Types of headers that every compiler has.
_LIBRARY_TYPES = re.compile(r"\w+_t|dim3|FILE|u?(?:char|short|int|long|float|double)\w*|std")
_TYPES = frozenset({"struct_specifier", "class_specifier", "union_specifier", "enum_specifier",
                    "type_definition", "alias_declaration", "type_parameter_declaration",
                    "variadic_type_parameter_declaration"})  # fmt: skip
_DEPTHS = {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1, ">>": -2}
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
class SourceGroup:
    """The shared knowledge of a file and its headers.

    lacking: True if headers were not found
    """

    lacking: bool
    sources: list[CudaSource] = field(default_factory=list, repr=False)

    @cached_property
    def macros(self) -> dict[str, tuple[Macro, ...]]:
        found: dict[str, tuple[Macro, ...]] = {}
        for each in self.sources:
            for name, macros in each.macros.items():
                found[name] = (*found.get(name, ()), *macros)
        return found

    def meant(self, words: Iterable[str]) -> frozenset[str]:
        """These words, and the words that macros among them expand to."""
        pending, found = list(words), set[str]()
        while pending:
            word = pending.pop()
            if word not in found:
                found.add(word)
                pending += (w for macro in self.macros.get(word, ()) for w in macro.words)
        return frozenset(found)

    def marks(self, words: Iterable[str]) -> bool:
        """True if these words of a head mark a function as device code."""
        return bool(_DEVICE & self.meant(words))

    def pastes(self, words: Iterable[str]) -> bool:
        """True if macros among these words paste tokens, so the result is in no text."""
        return any("##" in m.value for w in self.meant(words) for m in self.macros.get(w, ()))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of macros and of functions that kernels may call."""
        return frozenset(self.macros).union(*(each.named for each in self.sources))

    @cached_property
    def declared(self) -> frozenset[str]:
        """Names of functions that are marked as device code in a declaration without a body."""
        found = set[str]()
        for each in self.sources:
            for node in each.declarations:
                name = name_of(node.child_by_field_name("declarator"))
                if name is not None and self.marks(WORD.findall(each.source.of(node))):
                    found.add(each.source.of(name))
        return frozenset(found)

    @cached_property
    def empty(self) -> frozenset[str]:
        """Macros that expand to nothing."""
        return frozenset[str]().union(*(each.empty for each in self.sources))

    @cached_property
    def types(self) -> frozenset[str]:
        """Names of types that the sources define."""
        found = set[str]()
        for each in self.sources:
            for node in inside(each.source.root):
                if node.type in _TYPES:
                    found |= {each.source.of(n) for n in node.named_children
                              if n.type == "type_identifier"}  # fmt: skip
        return frozenset(found)

    @cached_property
    def volatile(self) -> frozenset[str]:
        """Volatile variables of all sources, outside of functions."""
        skip = frozenset({"function_definition"})
        return frozenset(
            name
            for each in self.sources
            for name in volatile_names(
                each, (n for n in inside(each.source.root, skip=skip) if n.type == "declaration")
            )
        )


@dataclass(frozen=True, eq=False)
class CudaSource:
    """The definitions in one source.

    declarations: of functions, without a body;  odd: operators and others without a name
    lost: where a kernel begins that the parser did not find
    empty: macros that expand to nothing;  around: all sources, this one among them
    """

    source: Source
    functions: tuple[Definition, ...]
    macros: dict[str, tuple[Macro, ...]]
    declarations: tuple[Node, ...]
    odd: tuple[Node, ...]
    lost: tuple[Node, ...]
    empty: frozenset[str]
    around: SourceGroup = field(repr=False)

    @property
    def kernels(self) -> list[Definition]:
        return [f for f in self.functions if f.kernel]

    def head(self, node: Node) -> list[str]:
        """Words of a definition before its body."""
        body = node.child_by_field_name("body")
        end = body.start_byte if body is not None else node.end_byte
        return WORD.findall(self.source.between(whole(node).start_byte, end))

    def is_marked(self, node: Node) -> bool:
        """True if a definition is marked as device code, perhaps by a macro of any source."""
        return self.around.marks(self.head(node))

    def is_device(self, node: Node) -> bool:
        """True if a definition is device code, or if that cannot be excluded."""
        return self.is_marked(node) or self._may_be_marked(node)

    def _may_be_marked(self, node: Node) -> bool:
        declarator = node.child_by_field_name("declarator")
        name = name_of(declarator)
        if declarator is None or name is None:
            return False
        ahead = self._ahead(node)
        return (
            is_untyped(node)
            or self.around.marks(ahead)
            or not self.around.macros.keys() >= {w for w in ahead if not _SPECIFIERS.fullmatch(w)}
            or self.around.pastes(ahead)
            or (not _in_class(node) and self.source.of(name) in self.around.declared)
            or self.around.pastes(self.head(node))
            or self._has_unknown(self._before(node, declarator))
        )

    def is_made(self, node: Node) -> bool:
        """True if a macro outside of the node expands to a part of a device function's head."""
        return is_untyped(node) or (bool(self._ahead(node)) and not self.is_marked(node))

    def _ahead(self, node: Node) -> list[str]:
        """Words between a definition and the end of the item before it: a macro with brackets,
        which the parser took for a statement of its own."""
        if _in_class(node):
            return []
        lexed = self.source.lexed
        at = bisect_left(lexed.starts, whole(node).start_byte)
        words = []
        while at and lexed.tokens[at - 1].text not in (";", "{", "}"):
            at -= 1
            if lexed.tokens[at].kind == "word":
                words.append(lexed.tokens[at].text)
        return words

    def _has_unknown(self, tokens: Iterable[tuple[str, str]]) -> bool:
        """True if words before a name, each with the sign after it, are macros that no source
        defines."""
        around = self.around
        typed, unknown = False, []
        for word, after in tokens:
            if word in around.macros:
                typed = typed or any(
                    not _SPECIFIERS.fullmatch(w) and w not in around.macros
                    for w in around.meant([word])
                )
            elif word in _PLAIN:
                typed = True
            elif not (_SPECIFIERS.fullmatch(word) or word in around.empty):
                unknown.append(word)
                if after == "(":
                    return True
        if len(unknown) + typed > 1 and not around.types.issuperset(unknown):
            return True
        return around.lacking and not all(
            word in around.types or _LIBRARY_TYPES.fullmatch(word) for word in unknown
        )

    def _before(self, node: Node, declarator: Node) -> Iterator[tuple[str, str]]:
        """Words outside of brackets before a declarator, each with the sign after it; of `a::b` the
        first."""
        tokens = self.source.lexed.between(node.start_byte, declarator.start_byte)
        depth, before = 0, ""
        for token, after in zip(tokens, (*(t.text for t in tokens[1:]), ""), strict=False):
            depth += _DEPTHS.get(token.text, 0)
            if token.kind == "word" and depth == 0 and before != "::":
                yield token.text, after
            before = token.text

    @cached_property
    def named(self) -> dict[str, list[Definition]]:
        """Definitions that kernels may call, by name."""
        found: dict[str, list[Definition]] = {}
        for function in self.functions:
            if not function.kernel and self.is_device(function.node):
                found.setdefault(function.name, []).append(function)
        return found

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """The words in the text of a macro or callable function, by its name."""
        return self._of_each(lambda macro: macro.words, lambda f: self.words_in(f.body))

    @cached_property
    def calls(self) -> dict[str, frozenset[str]]:
        """The functions that each may call and the macros that it uses, by the same names."""
        return self._of_each(lambda macro: macro.words & self.around.names, self.calls_in)

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
        """Names of all sources that a function calls or constructs, and macros that it uses."""
        found = set[str]()
        for inner in inside(function.body):
            if inner.type == "call_expression":
                name = name_of(inner.child_by_field_name("function"))
                found |= {self.source.of(name)} if name else set()
            elif inner.type == "type_identifier" or (
                inner.type == "identifier" and self.source.of(inner) in self.around.macros
            ):
                found.add(self.source.of(inner))
        return (self.around.names & found) - self.locals_of(function)

    def locals_of(self, function: Definition) -> frozenset[str]:
        """Names that are the function's own variables or parameters."""
        return declared(self.source, function.parameters) | declared(self.source, function.body)

    def behind(self, names: Iterable[str]) -> frozenset[str]:
        """These names, and all names that they reach by calls, through any source."""
        pending, found = [n for n in names if n in self.around.names], set[str]()
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                for each in self.around.sources:
                    pending += each.calls.get(name, ())
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
    def _callers(self) -> dict[str, list[str]]:
        """Callers and users of each name."""
        found: dict[str, list[str]] = {}
        for name in self._names:
            for called in self.calls[name]:
                found.setdefault(called, []).append(name)
        return found

    @cached_property
    def _reaching(self) -> dict[frozenset[str], frozenset[str]]:
        return {}

    def reaching(self, wanted: frozenset[str]) -> frozenset[str]:
        """Names of the file whose text, or whose callees' text, mentions any of the wanted
        names."""
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
        """The function, and all functions of the file that it may call."""
        names = sorted(self.behind(self.calls_in(function)))
        return [function, *(f for name in names for f in self.named.get(name, ()))]


def modules(sources: Iterable[Source], lacking: bool = False) -> tuple[CudaSource, ...]:
    """The definitions in a file and its headers.  lacking: as in `SourceGroup`"""
    around = SourceGroup(lacking)
    around.sources.extend(_module(source, around) for source in sources)
    return tuple(around.sources)


def _module(source: Source, around: SourceGroup) -> CudaSource:
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
    return CudaSource(
        source, tuple(functions), made_macros, tuple(declarations), tuple(odd), lost,
        frozenset(empty), around,
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


def volatile_names(
    module: CudaSource, nodes: Iterable[Node], words: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Names of variables that are declared volatile, perhaps by a macro.

    words: other words that mean volatile
    """
    of, wanted = module.source.of, words | {"volatile"}
    for node in nodes:
        name = name_of(node.child_by_field_name("declarator"))
        if name is not None and wanted & module.around.meant(WORD.findall(of(node))):
            yield of(name)


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


def is_untyped(node: Node) -> bool:
    """True if a function has no result type in the text, so a macro before it must contain one.
    Constructors and conversion functions need none."""
    declarator = node.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return (
        node.child_by_field_name("type") is None
        and name is not None
        and name.type == "identifier"
        and not _in_class(node)
    )


def _in_class(node: Node) -> bool:
    outer = node.parent
    while outer is not None and outer.type != "field_declaration_list":
        outer = outer.parent
    return outer is not None


def _is_literal(name: Node) -> bool:
    """True if a name is the suffix of `operator""_suffix`, which is never called by name."""
    return name.parent is not None and name.parent.type == "operator_name"

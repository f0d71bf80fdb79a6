"""Maps the words of a source to the units of text that may define them.

Input: a file and the headers that were found for it.  Output: a `WordIndex`.  A word leads to every
unit that defines it, whatever its meaning at that place, so the index names too many units rather
than too few.  It does not decide which definition a compiler uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.base.errors import required
from tilewright.elastic.transform.cuda_source import Source, inside, name_of
from tilewright.elastic.transform.definitions import Definition, function_in
from tilewright.elastic.transform.modules import SourceModule
from tilewright.elastic.transform.tokens import Directive, Token

if TYPE_CHECKING:
    from tree_sitter import Node

#: Kinds of units that may be copied with the tile as a parameter.  Others must not read the block's
#: number.
COPIED = frozenset({"function", "method", "declared", "macro"})
_CONTAINERS = frozenset({
    "translation_unit", "namespace_definition", "declaration_list", "preproc_if", "preproc_ifdef",
    "preproc_else", "preproc_elif", "preproc_elifdef",
})  # fmt: skip
CLASSES = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
_NOT_COPIED = frozenset({"virtual", "override", "final", "friend"})
_LANGUAGE = re.compile(
    r"__\w+__|void|int|float|double|char|long|short|bool|unsigned|signed|const|constexpr|static"
    r"|inline|template|typename|class|struct|union|enum|extern|auto|using|typedef|namespace|if|else"
    r"|blockIdx|gridDim|threadIdx|blockDim|for|while|do|return|switch|case|break|continue|goto|operator|volatile"
)
_UNNAMED = frozenset({"template_instantiation", "static_assert_declaration", "friend_declaration"})


@dataclass(frozen=True, eq=False)
class SourceUnit:
    """A unit of text.

    kind: kernel, function, method, declared (a function without a body), macro, host (a host
          function), class (its contents besides methods), operator, or other
    names: names it defines;  tokens: its own;  parameters: of a macro, None without a list
    """

    kind: str
    names: tuple[str, ...]
    source: Source = field(repr=False)
    tokens: tuple[Token, ...] = field(repr=False)
    start: int
    end: int
    node: Node | None = field(default=None, repr=False)
    function: Definition | None = field(default=None, repr=False)
    parameters: tuple[str, ...] | None = None

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens if token.kind == "word")

    @property
    def definition(self) -> Definition:
        """The definition of a kernel, which is always a function."""
        return required(self.function, "it defines no function", names=self.names)


@dataclass(frozen=True, eq=False)
class WordIndex:
    """units: of all sources, those of the file first"""

    units: tuple[SourceUnit, ...]

    @cached_property
    def named(self) -> dict[str, list[SourceUnit]]:
        return self._by(lambda unit: unit.names)

    @cached_property
    def _users(self) -> dict[str, list[SourceUnit]]:
        return self._by(lambda unit: unit.words)

    def _by(self, words_of: Callable[[SourceUnit], Iterable[str]]) -> dict[str, list[SourceUnit]]:
        found: dict[str, list[SourceUnit]] = {}
        for unit in self.units:
            for word in words_of(unit):
                found.setdefault(word, []).append(unit)
        return found

    def leading_to(
        self, start: Iterable[SourceUnit], words: Iterable[str]
    ) -> frozenset[SourceUnit]:
        """These units, units with one of these words, and units that mention any of them,
        transitively."""
        pending = [*start, *(unit for word in words for unit in self._users.get(word, ()))]
        found: set[SourceUnit] = set()
        seen: set[str] = set()
        while pending:
            unit = pending.pop()
            if unit in found:
                continue
            found.add(unit)
            if unit.kind in ("kernel", "operator"):
                continue
            for name in unit.names:
                if name not in seen:
                    seen.add(name)
                    pending += self._users.get(name, ())
        return frozenset(found)

    def reached(self, unit: SourceUnit, more: Iterable[str] = ()) -> list[SourceUnit]:
        """The unit, and all units that its words name, directly or through other units."""
        found = {unit}
        seen: set[str] = set()
        pending = [*unit.words, *more]
        while pending:
            word = pending.pop()
            if word in seen:
                continue
            seen.add(word)
            for other in self.named.get(word, ()):
                if other not in found and other.kind not in ("kernel", "host"):
                    found.add(other)
                    pending += other.words
        return sorted(found, key=lambda u: (u is not unit, u.source.name, u.start, u.end, u.kind))


def index(modules: Sequence[SourceModule]) -> WordIndex:
    return WordIndex(tuple(unit for module in modules for unit in _units(module)))


def _units(module: SourceModule) -> Iterator[SourceUnit]:
    source = module.source
    for directive in source.lexed.directives:
        if directive.name == "define" and (unit := _macro(source, directive)) is not None:
            yield unit
    known = {function.node.id: function for function in module.own.functions}
    pending = [source.root]
    while pending:
        for child in pending.pop().named_children:
            if child.type in _CONTAINERS or _is_block(child):
                pending.append(child)
            elif child.type == "namespace_identifier":
                continue
            elif child.type == "ERROR":
                yield from _error(module, known, child)
            else:
                yield from _item(module, known, child, "")


def _error(module: SourceModule, known: dict[int, Definition], node: Node) -> Iterator[SourceUnit]:
    """Functions that the parser found in text that it did not understand, and the rest of that
    text."""
    found = [unit for child in node.named_children if child.type == "function_definition"
             for unit in _item(module, known, child, "")]  # fmt: skip
    yield from found
    tokens = module.source.lexed.between(node.start_byte, node.end_byte)
    rest = tuple(_without(tokens, found))
    names = tuple(dict.fromkeys(_outer_words(rest)))
    yield SourceUnit("other", names, module.source, rest, node.start_byte, node.end_byte, node)


def _is_block(node: Node) -> bool:
    body = node.child_by_field_name("body") if node.type == "linkage_specification" else None
    return body is not None and body.type == "declaration_list"


def _macro(source: Source, directive: Directive) -> SourceUnit | None:
    tokens = directive.tokens
    if not tokens:
        return None
    parameters = None
    first = 1
    if len(tokens) > 1 and tokens[1].text == "(" and tokens[1].start == tokens[0].end:
        last = next((n for n, t in enumerate(tokens) if t.text == ")"), len(tokens))
        text = "".join(t.text for t in tokens[2:last])
        parameters = tuple(text.split(",")) if text else ()
        first = last + 1
    return SourceUnit(
        "macro", (tokens[0].text,), source, tokens[first:], directive.start, directive.end,
        parameters=parameters,
    )  # fmt: skip


def _item(
    module: SourceModule, known: dict[int, Definition], node: Node, outer: str
) -> Iterator[SourceUnit]:
    """The units of an item.  outer: the class around it"""
    source = module.source
    tokens = source.lexed.between(node.start_byte, node.end_byte)
    if not tokens:
        return

    def unit(kind: str, names: Iterable[str], function: Definition | None = None) -> SourceUnit:
        given = tuple(dict.fromkeys(names))
        return SourceUnit(
            kind, given, source, tokens, node.start_byte, node.end_byte, node, function
        )

    inner = _inner(node)
    words = {token.text for token in tokens}
    if inner.type == "function_definition":
        function = known.get(inner.id)
        if function is None:
            kind = "operator" if module.marks.is_device(inner) else "host"
            yield unit(kind, _scopes(source, inner, outer))
        elif function.kernel:
            yield unit("kernel", [function.name], function)
        elif not module.marks.is_device(inner):
            yield unit("host", [function.name], function)
        elif module.marks.is_made(inner):
            yield unit("other", [f.name for f in module.own.functions if f.node == inner], function)
        elif _NOT_COPIED & module.around.meant(_head(function, tokens)):
            yield unit("other", [function.name, *([outer] if outer else [])])
        else:
            yield unit("method" if outer else "function", [function.name], function)
    elif (body := _class_body(inner)) is not None:
        yield from _class(module, known, node, inner, body)
    elif inner.type in ("declaration", "field_declaration") and not words & _NOT_COPIED:
        declarator = inner.child_by_field_name("declarator")
        made = function_in(declarator) if declarator is not None else None
        name = name_of(made.child_by_field_name("declarator")) if made is not None else None
        if name is not None and inner.child_by_field_name("type") is not None:
            yield unit("host" if "__global__" in words else "declared", [source.of(name)])
        elif not outer:
            yield unit("other", _declared(source, inner, tokens))
    elif not outer:
        yield unit("other", _declared(source, inner, tokens))


def _inner(node: Node) -> Node:
    """The definition within its templates and linkage."""
    while node.type in ("template_declaration", "linkage_specification"):
        inside_it = [c for c in node.named_children if c.type not in ("comment", "string_literal")]
        if not inside_it:
            break
        node = inside_it[-1]
    return node


def _head(function: Definition, tokens: Sequence[Token]) -> set[str]:
    begin, end = function.body.start_byte, function.body.end_byte
    return {token.text for token in tokens if not begin <= token.start < end}


def _scopes(source: Source, node: Node, outer: str) -> list[str]:
    """Names by which a constructor, an operator or a conversion may be called."""
    declarator = node.child_by_field_name("declarator")
    if outer:
        return [outer]
    found = []
    while declarator is not None and declarator.type in (
        "function_declarator", "qualified_identifier", "operator_cast", "reference_declarator",
        "pointer_declarator",
    ):  # fmt: skip
        scope = declarator.child_by_field_name("scope")
        if scope is not None:
            found += [source.of(n) for n in inside(scope) if n.type.endswith("identifier")]
        declarator = (
            declarator.child_by_field_name("name")
            or declarator.child_by_field_name("declarator")
            or next((c for c in declarator.named_children if c.type.endswith("declarator")), None)
        )
    return found


def _class_body(node: Node) -> Node | None:
    for holder in (node, node.child_by_field_name("type")):
        if holder is not None and holder.type in CLASSES:
            return holder.child_by_field_name("body")
    return None


def _class(
    module: SourceModule, known: dict[int, Definition], node: Node, inner: Node, body: Node
) -> Iterator[SourceUnit]:
    source = module.source
    holder = body.parent
    label = name_of(holder.child_by_field_name("name")) if holder is not None else None
    name = source.of(label) if label is not None else ""
    members: list[SourceUnit] = []
    pending = [body]
    while pending:
        for child in pending.pop().named_children:
            if child.type in _CONTAINERS:
                pending.append(child)
            else:
                members += (u for u in _item(module, known, child, name or "?"))
    kept = [m for m in members if m.kind in ("method", "declared", "class", "host")]
    yield from kept
    every = source.lexed.between(node.start_byte, node.end_byte)
    names = [*([name] if name else []), *_declarators(source, inner)]
    yield SourceUnit(
        "class", tuple(dict.fromkeys(names)), source, tuple(_without(every, kept)),
        node.start_byte, node.end_byte, node,
    )  # fmt: skip


def _without(tokens: Iterable[Token], units: Sequence[SourceUnit]) -> Iterator[Token]:
    ranges = sorted((unit.start, unit.end) for unit in units)
    at = 0
    for token in tokens:
        while at < len(ranges) and ranges[at][1] <= token.start:
            at += 1
        if at == len(ranges) or token.start < ranges[at][0]:
            yield token


def _declarators(source: Source, node: Node) -> list[str]:
    names = [name_of(found) for found in node.children_by_field_name("declarator")]
    return [source.of(name) for name in names if name is not None]


def _declared(source: Source, node: Node, tokens: Sequence[Token]) -> list[str]:
    """Names that an item defines; if that is not clear, all of its words."""
    if node.type in _UNNAMED or source.of(node).startswith("using namespace"):
        return []
    named = name_of(node.child_by_field_name("name"))
    found = [source.of(named)] if named is not None else []
    found += _declarators(source, node)
    if node.type == "using_declaration":
        found.append(next(t.text for t in reversed(tokens) if t.kind == "word"))
    found += [
        source.of(name)
        for n in inside(node)
        if n.type == "enumerator" and (name := n.child_by_field_name("name")) is not None
    ]
    if node.type == "expression_statement" and node.named_children and (
        node.named_children[0].type not in ("identifier", "call_expression")
    ):  # fmt: skip
        return []
    if not found or any(n.type == "ERROR" for n in inside(node)):
        found += _outer_words(tokens)
    return found


def _outer_words(tokens: Iterable[Token]) -> Iterator[str]:
    """Words outside of brackets that may be names of declarations."""
    depth = 0
    for token in tokens:
        if token.kind == "sign":
            depth += (token.text in "([{") - (token.text in ")]}")
        elif token.kind == "word" and depth <= 0 and not _LANGUAGE.fullmatch(token.text):
            yield token.text

"""Proves that all code a kernel reaches reads the block's number only where it can be rewritten.

Input: an `Identity`, and what a `Copier` would rewrite.  Output: why a unit cannot be copied, and
where.  Each token that may stand for the block's number must be one that the copier rewrites, at a
place where the tile is in scope and the name has no other meaning.  Anything else is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tilewright.elastic.transform.copies import Copier
from tilewright.elastic.transform.cuda_source import declared, inside, is_local, name_of
from tilewright.elastic.transform.definitions import Definition
from tilewright.elastic.transform.eligibility import MISREAD_WHY
from tilewright.elastic.transform.identity import Identity
from tilewright.elastic.transform.pasting import pastes
from tilewright.elastic.transform.tokens import Directive, Token, balanced, closing
from tilewright.elastic.transform.word_index import CLASSES, COPIED, SourceUnit

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN_PRAGMAS = frozenset({
    "unroll", "nounroll", "nv_diag_suppress", "nv_diag_default", "GCC", "clang", "diag_suppress",
    "diag_default", "region", "endregion", "omp", "message", "nv_exec_check_disable",
})  # fmt: skip
#: Signs and words that may precede a statement.
_BEFORE = frozenset({";", "{", "}", ":", ")", "else", "do"})
_HEAD = "the head of a function reads the block's number, which is known in its body only"
#: Why a unit of this kind cannot be copied.
WHYS = {
    "operator": "an operator or constructor reads the block's number or waits",
    "class": "a class reads the block's number where it cannot be passed (constructor, value of a "
             "member, operator, virtual function)",
    "host": "a function without __device__ reads the block's number",
    "other": "something other than a plain function reads the block's number (a variable, a "
             "lambda, a virtual function, a using-declaration)",
}  # fmt: skip


class Fault(NamedTuple):
    """Why a unit cannot be copied; at: byte of its source."""

    at: int
    why: str


class RewriteCheck:
    def __init__(self, identity: Identity, copier: Copier) -> None:
        self.identity, self.copier, self.index = identity, copier, identity.index
        self._known: dict[SourceUnit, Fault | None] = {}

    def fault(self, unit: SourceUnit) -> Fault | None:
        """Why a unit that reads its block's number, or a kernel's body, cannot be copied; None if
        it can."""
        if unit not in self._known:
            self._known[unit] = next(self._faults(unit), None)
        return self._known[unit]

    def _faults(self, unit: SourceUnit) -> Iterator[Fault]:
        if unit.kind not in COPIED and unit.kind != "kernel":
            tokens = self.identity.tokens(unit)
            at = next((t.start for t in tokens if t.text not in unit.names), unit.start)
            yield Fault(at, WHYS.get(unit.kind, WHYS["other"]))
        if unit.source.included:
            yield Fault(unit.start, "a header reads the block's number, and headers stay as they "
                                    "are: put this into the source")  # fmt: skip
        if unit.kind in COPIED:
            yield from self._mixed(unit)
        if unit.kind == "macro":
            yield from self._macro(unit)
        elif unit.kind == "declared":
            for token in self.identity.tokens(unit):
                if token.text not in unit.names:
                    yield Fault(token.start, _HEAD)
        elif unit.function is not None:
            yield from directives(unit, self.identity)
            yield from self._function(unit, unit.function)

    def _mixed(self, unit: SourceUnit) -> Iterator[Fault]:
        """Names that are rewritten and have other meanings, too."""
        for name in unit.names:
            for other in self.index.named[name]:
                if other.kind == "host" and other not in self.identity.units:
                    continue
                if other.kind not in COPIED or (other.kind == "macro") != (unit.kind == "macro"):
                    yield Fault(unit.start, f"{name} reads the block's number, and something else "
                                            "has the same name")  # fmt: skip

    # ---- functions -------------------------------------------------------------------------------

    def _function(self, unit: SourceUnit, function: Definition) -> Iterator[Fault]:
        body = function.body
        local = self.local(unit)
        tokens = [
            token
            for token in self.identity.tokens(unit)
            if token.start != function.labels.start_byte and token.start not in local
        ]
        edits = self.copier.edits(function, self.identity.counts_lanes(unit))
        written = _written(tokens, [(e.start, e.end) for e in edits if e.end > e.start])
        for token in tokens:
            if not body.start_byte <= token.start < body.end_byte:
                yield Fault(token.start, _HEAD)
            elif token not in written and not self._is_refused_elsewhere(token) and (
                not self._is_member(unit, token)
            ):  # fmt: skip
                yield Fault(token.start, self._why(token))
        yield from _scopes(body, tokens)
        yield from self._macros_of(unit, tokens)

    def _is_refused_elsewhere(self, token: Token) -> bool:
        """True if the unit that the name leads to is refused itself."""
        return token.kind == "word" and any(
            unit in self.identity.units and unit.kind in ("class", "operator", "other")
            for unit in self.index.named.get(token.text, ())
        )

    def _why(self, token: Token) -> str:
        if token.kind != "word":
            return "a string here has the name of a register, and its use is not known"
        if token.text in self.identity.words:
            return f"{token.text} cannot be rewritten at this place"
        return (f"{token.text} reads the block's number; here it is a pointer to a function, or "
                "means something else")  # fmt: skip

    def _is_member(self, unit: SourceUnit, token: Token) -> bool:
        """True for a member `.name` that is not called."""
        found = unit.source.lexed
        at = bisect_left(found.starts, token.start)
        return (
            token.kind == "word"
            and token.text not in self.identity.words
            and all(u.kind != "macro" for u in self.index.named.get(token.text, ()))
            and found.tokens[at - 1].text in (".", "->")
            and found.tokens[at + 1].text not in ("(", "<")
        )

    def local(self, unit: SourceUnit) -> set[int]:
        """Places where names mean the function's own variables and are not called."""
        source, named, function = unit.source, self.index.named, unit.function
        names = {
            token.text
            for token in self.identity.tokens(unit)
            if token.kind == "word" and token.text not in self.identity.words
            and all(u.kind != "macro" for u in named.get(token.text, ()))
        }  # fmt: skip
        if not names or function is None:
            return set()
        own = declared(source, function.parameters) & names
        found = {
            name.start_byte
            for node in function.parameters.named_children
            for declarator in node.children_by_field_name("declarator")
            if (name := name_of(declarator)) is not None and source.of(name) in own
        }
        for node in inside(function.body):
            if node.type == "identifier" and (word := source.of(node)) in names:
                parent = node.parent
                called = parent is not None and parent.type == "call_expression" and (
                    parent.child_by_field_name("function") == node
                )  # fmt: skip
                if not called and (word in own or is_local(source, node, function.body)):
                    found.add(node.start_byte)
        return found

    def _macros_of(self, unit: SourceUnit, tokens: Sequence[Token]) -> Iterator[Fault]:
        """Macros that paste or stringify rewritten words, and macros used where their copies are
        not defined."""
        starts = {token.start for token in tokens}
        found = unit.tokens
        for at, token in enumerate(found):
            macros = [u for u in self.index.named.get(token.text, ()) if u.kind == "macro"]
            if token.kind != "word" or not macros:
                continue
            called = at + 1 < len(found) and found[at + 1].text == "("
            if called and token.text in self.identity.pasting:
                for inner in found[at + 2 : closing(found, at + 1)]:
                    if inner.start in starts:
                        yield Fault(
                            inner.start, f"the macro {token.text} makes a name or a string of it"
                        )
            if token.start in starts:
                if any(macro.end > token.start for macro in macros):
                    yield Fault(token.start, f"the macro {token.text} is defined after this use")
                if not called and any(macro.parameters is not None for macro in macros):
                    yield Fault(
                        token.start,
                        f"the macro {token.text} is used without arguments",
                    )

    # ---- macros ----------------------------------------------------------------------------------

    def _macro(self, unit: SourceUnit) -> Iterator[Fault]:
        name, identity = unit.names[0], self.identity
        shape = shape_of(unit)
        for wrong, what in (
            (name in identity.undefined, "is undefined by #undef"),
            (name in identity.conditions, "is tested by #if"),
            (pastes(unit), "pastes tokens or makes strings"),
            (shape.lambdas, "contains a lambda"),
            (shape.odd, "has unbalanced brackets"),
            (any(p.removesuffix("...") in identity.words | identity.names
                 for p in unit.parameters or ()),
             "has a parameter with the name of something else that reads it"),
        ):  # fmt: skip
            if wrong:
                yield Fault(unit.start, f"the macro {name} reads the block's number, and {what}")
        for token in identity.tokens(unit):
            why = self.copier.edits_in_macro(unit, token)
            if isinstance(why, str):
                yield Fault(token.start, why)


def _written(tokens: Sequence[Token], edits: list[tuple[int, int]]) -> set[Token]:
    """Tokens within an edit, and strings that contain one of its words."""
    edits.sort()
    starts = [start for start, _ in edits]
    found = set()
    at = end = 0
    for token in tokens:
        while at < len(edits) and edits[at][0] <= token.start:
            end = max(end, edits[at][1])
            at += 1
        if token.kind == "word":
            inside_it = end >= token.end
        else:
            after = bisect_left(starts, token.start)
            inside_it = after < len(starts) and starts[after] < token.end
        if inside_it:
            found.add(token)
    return found


def _scopes(body: Node, tokens: Sequence[Token]) -> Iterator[Fault]:
    """Parts of a function that cannot see its tile."""
    starts = [token.start for token in tokens]
    for node in inside(body) if tokens else ():
        why = _unseeing(node)
        at = bisect_left(starts, node.start_byte)
        if why and at < len(starts) and starts[at] < node.end_byte:
            yield Fault(starts[at], f"{why} reads the block's number")


def _unseeing(node: Node) -> str:
    """The kind of a node that cannot see the tile around it; "" if it can."""
    if node.type in CLASSES:
        return "a class within a function"
    if node.type == "lambda_expression" and not captures(node):
        return "a lambda without a default capture"
    if node.type == "optional_parameter_declaration":
        return "a default argument"
    if node.type == "declaration" and any(
        child.text in (b"static", b"constexpr", b"constinit") for child in node.named_children
    ):
        return "a static or constant variable"
    return ""


def captures(node: Node) -> bool:
    """True if a lambda captures the names that it mentions."""
    found = node.child_by_field_name("captures")
    return found is not None and any(
        child.type == "lambda_default_capture" for child in found.named_children
    )


class Shape(NamedTuple):
    """lambdas: a lambda may begin in the macro;  odd: its brackets are not balanced"""

    lambdas: bool
    odd: bool


def shape_of(macro: SourceUnit) -> Shape:
    """Properties of a macro that do not show in the syntax tree of a source that uses it."""
    before = ""
    lambdas = False
    for token in macro.tokens:
        lambdas |= token.text == "[" and not (before[-1:].isalnum() or before[-1:] in "_)]")
        lambdas |= token.text == "[" and not before
        before = token.text
    return Shape(lambdas, not balanced(macro.tokens))


def directives(unit: SourceUnit, identity: Identity) -> Iterator[Fault]:
    """Faults of preprocessor directives within a text that will be copied."""
    found = unit.source.lexed
    pending: list[Directive] = []
    begin = bisect_left(found.lines, unit.start)
    for directive in found.directives[begin : bisect_left(found.lines, unit.end)]:
        name = directive.name
        if name in ("elif", "else", "endif", "elifdef", "elifndef"):
            if not pending or not _is_whole(unit, pending[-1], directive):
                yield Fault(directive.start, MISREAD_WHY)
                return
            pending.pop()
        if name in ("if", "ifdef", "ifndef", "elif", "else", "elifdef", "elifndef"):
            pending.append(directive)
        elif name in ("include", "include_next", "import"):
            yield Fault(directive.start, "a header is included within a function or a class")
        elif name in ("define", "undef"):
            yield from _redefined(unit, directive, identity)
        elif name == "pragma" and directive.tokens[:1] and (
            directive.tokens[0].text not in _PLAIN_PRAGMAS
        ):  # fmt: skip
            yield Fault(directive.start, f"the pragma {directive.tokens[0].text} is not supported")
    if pending:
        yield Fault(pending[0].start, MISREAD_WHY)


def _is_whole(unit: SourceUnit, begin: Directive, end: Directive) -> bool:
    """True if there are whole statements between two directives."""
    found = unit.source.lexed
    between = found.between(begin.end, end.start)
    at = bisect_left(found.starts, begin.start) - 1
    return not between or (
        balanced(between)
        and found.tokens[at].text in _BEFORE
        and between[-1].text in (";", "{", "}", ":", ",")
    )


def _redefined(unit: SourceUnit, directive: Directive, identity: Identity) -> Iterator[Fault]:
    """A fault if a macro is redefined: the copy follows the text, where the macro must have had one
    meaning from the start."""
    name = directive.tokens[0].text if directive.tokens else ""
    macros = [u for u in identity.index.named.get(name, ()) if u.kind == "macro"]
    before = unit.source.lexed.between(unit.start, directive.start)
    if (
        directive.name == "undef"
        or len(macros) > 1
        or name in identity.undefined
        or any(token.text == name for token in before)
    ):
        yield Fault(directive.start, f"the macro {name} is redefined within the text")

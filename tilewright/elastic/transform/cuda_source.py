"""A CUDA source as text and as a syntax tree, and edits of its text.

Input: text of a file, and folders with headers.  Output: nodes of the tree with their text and
lines.  Nothing is preprocessed, and headers are not inserted: they are only read for their
definitions.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from tilewright.base.errors import UsageError, required
from tilewright.elastic.transform.tokens import Directive, Lexed, Problem, Token, closing, lexed

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

#: Bytes that are not UTF-8, such as names in comments, are preserved.
KEPT = "surrogateescape"
#: The most bytes of a source or header.
LARGEST = 1 << 20
#: The greatest depth of the tree.
DEEPEST = 1000
#: The most headers that are read.
MOST_HEADERS = 256
#: Words that the grammar lacks, with their brackets; blanks replace them in the parsed copy.
_UNKNOWN = frozenset({"__align__", "__builtin_align__", "alignas", "__maxnreg__",
                      "__cluster_dims__", "__block_size__"})  # fmt: skip


def text_of(path: Path) -> str:
    """The text of a source.  Raises UsageError if the file cannot be read as text."""
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a file", hint="Give a CUDA C++ source")
        text = _start(path, status.st_size)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read: {why}", hint="Give a CUDA C++ source") from None
    return text.decode(errors=KEPT)


def _start(path: Path, size: int) -> bytes:
    """The first bytes of a file, up to `size`; special files may never end."""
    if size == 0:
        return b""
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


@dataclass(frozen=True)
class SourceLine:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Edit:
    """Replaces bytes [start, end) by `text`."""

    start: int
    end: int
    text: str


class Source:
    """text: UTF-8;  name: of the file, for reports;  included: True if another file includes it"""

    def __init__(self, text: bytes, name: str, included: bool = False) -> None:
        self.text, self.name, self.included = text, name, included

    @cached_property
    def lexed(self) -> Lexed:
        return lexed(self.text)

    @cached_property
    def problem(self) -> Problem | None:
        """Why the text is not parsed, and where; None if it is."""
        for problem in self.lexed.problems:
            return problem
        cursor, depth = self.root.walk(), 0
        while True:
            if cursor.goto_first_child():
                depth += 1
                if depth > DEEPEST:
                    node = required(cursor.node, "the cursor is at no node")
                    why = f"expressions or statements in more than {DEEPEST} others"
                    return Problem(node.start_byte, why)
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return None
                depth -= 1

    @cached_property
    def root(self) -> Node:
        blank = bytearray(self.text)
        tokens = self.lexed.tokens
        for at, token in enumerate(tokens):
            end = token.end
            if token.text in _UNKNOWN and at + 1 < len(tokens) and tokens[at + 1].text == "(":
                end = tokens[min(closing(tokens, at + 1), len(tokens) - 1)].end
            elif token.text != "__grid_constant__":
                continue
            blank[token.start : end] = re.sub(rb"[^\r\n]", b" ", blank[token.start : end])
        return _parser().parse(bytes(blank)).root_node

    def of(self, node: Node) -> str:
        return self.between(node.start_byte, node.end_byte)

    def between(self, start: int, end: int) -> str:
        return self.text[start:end].decode(errors=KEPT)

    @cached_property
    def _lines(self) -> list[int]:
        return [found.start() for found in re.finditer(rb"\n", self.text)]

    def line(self, at: int) -> SourceLine:
        return SourceLine(self.name, bisect_right(self._lines, at - 1) + 1)

    def place(self, node: Node) -> SourceLine:
        return self.line(node.start_byte)

    def edited(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        """Bytes [start, end) with the edits that lie within; of nested edits the outer one
        counts."""
        parts, at = [], start
        for edit in sorted(edits, key=lambda e: (e.start, e.end)):
            if edit.start < at or edit.end > end:
                continue
            parts += [self.between(at, edit.start), edit.text]
            at = edit.end
        return "".join([*parts, self.between(at, end)])


def read(text: str, name: str) -> Source:
    """A source from its text.  Raises UsageError if it is not text, or too long."""
    given = text.removeprefix("\ufeff").encode(errors=KEPT)
    if b"\0" in given:
        line = given[: given.index(b"\0")].count(b"\n") + 1
        raise UsageError(f"{name} has bytes of zero", hint="Give a text in UTF-8", line=line)
    if len(given) > LARGEST:
        raise UsageError(
            f"{name} has more than {LARGEST >> 20} MiB", hint="Give the kernels alone",
            limit=LARGEST,
        )  # fmt: skip
    return Source(given, name)


@dataclass(frozen=True)
class Headers:
    """found: sources, each once;  missing: includes without a file, each with its source"""

    found: tuple[Source, ...]
    missing: tuple[tuple[Source, Directive], ...]


def headers(source: Source, folders: Sequence[Path]) -> Headers:
    """The headers that the source includes, transitively, from these folders."""
    found: dict[Path, Source] = {}
    missing: list[tuple[Source, Directive]] = []
    pending: list[tuple[Source, tuple[Path, ...]]] = [(source, tuple(folders))]
    while pending:
        outer, places = pending.pop()
        for directive in outer.lexed.directives:
            if directive.name not in ("include", "include_next", "import"):
                continue
            name = included(directive.tokens)
            path = _header(name, places) if name else None
            text = _text_of_header(path) if path is not None else None
            if path in found:
                continue
            if path is None or text is None or len(found) == MOST_HEADERS:
                missing.append((outer, directive))
                continue
            found[path] = Source(text, path.name, included=True)
            pending.append((found[path], (path.parent, *folders)))
    return Headers(tuple(found.values()), tuple(missing))


def included(tokens: Sequence[Token]) -> str:
    """The name of a header; "" if a macro makes it."""
    if tokens and tokens[0].kind == "string":
        return tokens[0].text.strip('"')
    if len(tokens) > 2 and tokens[0].text == "<" and tokens[-1].text == ">":
        return "".join(token.text for token in tokens[1:-1])
    return ""


def _header(name: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        try:
            path = (folder / name).resolve()
            if S_ISREG(path.stat().st_mode):
                return path
        except (OSError, ValueError, RuntimeError):
            continue
    return None


def _text_of_header(path: Path) -> bytes | None:
    """The text of a header; None if it cannot be read, is not text or is too long."""
    try:
        text = _start(path, path.stat().st_size)
    except OSError:
        return None
    return None if len(text) > LARGEST or b"\0" in text else text


@cache
def _parser() -> Parser:
    try:
        import tree_sitter
        import tree_sitter_cuda
    except ImportError as error:
        raise UsageError(
            "the parser of CUDA sources is not installed",
            hint="Install it: pip install 'tilewright[elastic]'",
        ) from error
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def inside(
    node: Node, *, skip: frozenset[str] = frozenset(), tokens: bool = False
) -> Iterator[Node]:
    """The node and all named nodes below it, in the order of the text; not below a `skip` type.

    tokens: also words and signs, which are unnamed nodes
    """
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        if found is node or found.type not in skip:
            pending += reversed(found.children if tokens else found.named_children)


def above(node: Node, stop: Node) -> Iterator[Node]:
    """The nodes around a node, innermost first, up to but excluding `stop`."""
    found = node.parent
    while found is not None and found.id != stop.id:
        yield found
        found = found.parent


def name_of(node: Node | None) -> Node | None:
    """The identifier to which an expression, a declarator or a callee refers."""
    while node is not None:
        if node.type in ("identifier", "field_identifier", "type_identifier"):
            return node
        node = (
            node.child_by_field_name("name")
            or node.child_by_field_name("field")
            or node.child_by_field_name("declarator")
            or next(
                (
                    child
                    for child in node.named_children
                    if child.type.endswith(("declarator", "identifier", "template_method"))
                    or child.type in ("template_function", "dependent_name")
                ),
                None,
            )
        )
    return None


def is_shared(source: Source, declaration: Node) -> bool:
    """True if it declares variables in shared memory."""
    return any(
        source.of(child) == "__shared__"
        for child in declaration.named_children
        if child.type == "type_qualifier"
    )


def declared(source: Source, node: Node) -> frozenset[str]:
    """Names of variables and parameters that are declared below a node."""
    found = set()
    for inner in inside(node):
        if inner.type.endswith("declaration") or inner.type == "for_range_loop":
            names = [name_of(d) for d in inner.children_by_field_name("declarator")]
            found |= {source.of(name) for name in names if name is not None}
    return frozenset(found)


def is_local(source: Source, node: Node, body: Node) -> bool:
    """True if a name means a variable that is declared around it, within a function's body."""
    name = source.of(node)
    for outer in (*above(node, body), body):
        if any(
            source.of(found) == name and found.start_byte <= node.start_byte
            for found in _declared_by(outer)
        ):
            return True
    return False


def _declared_by(outer: Node) -> Iterator[Node]:
    """Names of variables that a block, loop, condition or lambda declares for its inside."""
    if outer.type == "compound_statement":
        holders = outer.named_children
    elif outer.type == "lambda_expression":
        declarator = outer.child_by_field_name("declarator")
        parameters = declarator.child_by_field_name("parameters") if declarator else None
        holders = parameters.named_children if parameters is not None else []
    elif outer.type in ("for_statement", "for_range_loop", "if_statement", "while_statement",
                        "switch_statement", "condition_clause", "init_statement"):  # fmt: skip
        holders = [outer, *outer.named_children]
        condition = outer.child_by_field_name("condition")
        holders += condition.named_children if condition is not None else []
    else:
        return
    for holder in holders:
        if holder.type.endswith("declaration") or holder.type == "for_range_loop":
            for declarator in holder.children_by_field_name("declarator"):
                if (name := name_of(declarator)) is not None:
                    yield name

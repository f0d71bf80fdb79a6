"""A CUDA source as text and as a syntax tree, and edits of its text.

Input: text of a file, and the folder where its local headers lie.  Output: nodes of the tree with
their text and where they came from.  Nothing is preprocessed: macros stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import UsageError

if TYPE_CHECKING:
    from tree_sitter import Node

#: Bytes that are no UTF-8, such as names in comments, stay what they are.
KEPT = "surrogateescape"
#: What the grammar does not know.  Blanks take its place in the copy that is parsed.
_UNKNOWN = re.compile(
    rb"(?:__align__|__builtin_align__|alignas|__maxnreg__|__cluster_dims__|__block_size__)"
    rb"\s*\((?:[^()]|\([^()]*\))*\)|__grid_constant__"
)
_INCLUDE = re.compile(r'\s*#\s*include\s*["<]([^">]+)[">]')
#: Headers with none of these words stay includes.
_DEVICE = re.compile(r"__device__|__global__|__shared__|__constant__|\b(?:block|grid)(?:Idx|Dim)\b")
_ONCE = re.compile(r"\s*#\s*pragma\s+once\b")


def text_of(path: Path) -> str:
    return path.read_text(errors=KEPT)


@dataclass(frozen=True)
class SourceLine:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Edit:
    """Bytes [start, end) become `text`."""

    start: int
    end: int
    text: str


class Source:
    """A file with those of its local headers that hold device code, in their place.

    text: UTF-8;  places: where each line came from
    """

    def __init__(self, text: bytes, places: tuple[SourceLine, ...]) -> None:
        self.text, self.places = text, places

    @cached_property
    def root(self) -> Node:
        blank = _UNKNOWN.sub(lambda found: re.sub(rb"[^\n]", b" ", found[0]), self.text)
        return _parser().parse(blank).root_node  # type: ignore[no-any-return]

    def of(self, node: Node) -> str:
        return self.between(node.start_byte, node.end_byte)

    def between(self, start: int, end: int) -> str:
        return self.text[start:end].decode(errors=KEPT)

    def place(self, node: Node) -> SourceLine:
        return self.places[min(node.start_point[0], len(self.places) - 1)]

    def edited(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        """Bytes [start, end) with the edits that lie within; of nested ones the outer counts."""
        parts, at = [], start
        for edit in sorted(edits, key=lambda e: (e.start, e.end)):
            if edit.start < at or edit.end > end:
                continue
            parts += [self.between(at, edit.start), edit.text]
            at = edit.end
        return "".join([*parts, self.between(at, end)])


def read(text: str, name: str, folders: Sequence[Path] = (), every: bool = False) -> Source:
    """A file, and headers from these folders: those that hold device code, or `every` one.

    Raises UsageError if the parser is not installed.
    """
    wanted = re.compile("") if every else _DEVICE
    rows = list(_rows(text, name, folders, wanted, set()))
    return Source(
        "".join(row for row, _ in rows).encode(errors=KEPT), tuple(place for _, place in rows)
    )


def _rows(
    text: str, name: str, folders: Sequence[Path], wanted: re.Pattern[str], taken: set[Path]
) -> Iterator[tuple[str, SourceLine]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        row, place = line + "\n", SourceLine(name, number)
        found = _INCLUDE.match(row)
        header = _header(found[1], folders) if found else None
        inner = text_of(header) if header else ""
        if header is None or not wanted.search(inner):
            yield ("\n" if _ONCE.match(row) else row), place
        elif header not in taken:
            taken.add(header)
            yield from _rows(inner, header.name, (header.parent, *folders), wanted, taken)
            yield "\n", place


def _header(name: str, folders: Sequence[Path]) -> Path | None:
    paths = ((folder / name).resolve() for folder in folders)
    return next((path for path in paths if path.is_file()), None)


@cache
def _parser() -> Any:
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
    """The node and all named ones below it, in the order of the text; none below a `skip` type.

    tokens: also words and signs, which have no name
    """
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        if found is node or found.type not in skip:
            pending += reversed(found.children if tokens else found.named_children)


def above(node: Node, stop: Node) -> Iterator[Node]:
    """What encloses the node, from inside out, up to `stop` alone."""
    found = node.parent
    while found is not None and found.id != stop.id:
        yield found
        found = found.parent


def name_of(node: Node | None) -> Node | None:
    """The identifier that names what an expression, a declarator or a callee refers to."""
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
    """Whether it declares variables in shared memory."""
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

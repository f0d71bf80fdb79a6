"""Whether a function of a CUDA source is device code, which a macro may decide.

Input: a function's node, the words of its `SourceGroup`.  Output: True if it is marked, or if that
cannot be excluded.  A macro of a header that was not found may contain the mark.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import Source, name_of
from tilewright.elastic.transform.definitions import WORD, in_class, is_untyped, whole
from tilewright.elastic.transform.source_group import SourceGroup
from tilewright.elastic.transform.tokens import STRUCTURE

if TYPE_CHECKING:
    from tree_sitter import Node

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
_DEPTHS = {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1, ">>": -2}


@dataclass(frozen=True, eq=False)
class DeviceMarks:
    """Finds the marks of device code in one source.  around: all sources, this one among them"""

    source: Source
    around: SourceGroup

    def is_marked(self, node: Node) -> bool:
        """True if a definition is marked as device code, perhaps by a macro of any source."""
        return self.around.marks(self._head(node))

    def is_device(self, node: Node) -> bool:
        """True if a definition is device code, or if that cannot be excluded."""
        return self.is_marked(node) or self._may_be_marked(node)

    def is_made(self, node: Node) -> bool:
        """True if a macro outside of the node expands to a part of a device function's head."""
        return is_untyped(node) or (bool(self._ahead(node)) and not self.is_marked(node))

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
            or (not in_class(node) and self.source.of(name) in self.around.declared)
            or self.around.pastes(self._head(node))
            or self._has_unknown(self._before(node, declarator))
        )

    def _head(self, node: Node) -> list[str]:
        """Words of a definition before its body."""
        body = node.child_by_field_name("body")
        end = body.start_byte if body is not None else node.end_byte
        return WORD.findall(self.source.between(whole(node).start_byte, end))

    def _ahead(self, node: Node) -> list[str]:
        """Words between a definition and the end of the item before it: a macro with brackets,
        which the parser took for a statement of its own."""
        if in_class(node):
            return []
        lexed = self.source.lexed
        at = bisect_left(lexed.starts, whole(node).start_byte)
        words = []
        while at and lexed.tokens[at - 1].text not in STRUCTURE:
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

"""What words mean in a CUDA source and its headers: macros, types, declared device functions.

Input: the `Definitions` of the sources.  Output: a `SourceGroup`.  A word has every meaning that
any of the sources gives it, since the order of headers is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import Source, inside, name_of
from tilewright.elastic.transform.definitions import WORD, Definitions, Macro

if TYPE_CHECKING:
    from tree_sitter import Node

_DEVICE = frozenset({"__device__", "__global__", "constexpr"})
_TYPES = frozenset({"struct_specifier", "class_specifier", "union_specifier", "enum_specifier",
                    "type_definition", "alias_declaration", "type_parameter_declaration",
                    "variadic_type_parameter_declaration"})  # fmt: skip


@dataclass(frozen=True, eq=False)
class SourceGroup:
    """The shared knowledge of a file and its headers.

    lacking: True if headers were not found
    """

    sources: tuple[Definitions, ...] = field(repr=False)
    lacking: bool

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
        skip, found = frozenset({"function_definition"}), set[str]()
        for each in self.sources:
            nodes = inside(each.source.root, skip=skip)
            declarations = (node for node in nodes if node.type == "declaration")
            found.update(self.volatile_names(each.source, declarations))
        return frozenset(found)

    def volatile_names(
        self, source: Source, nodes: Iterable[Node], words: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        """Names of variables that are declared volatile, perhaps by a macro.

        words: other words that mean volatile
        """
        of, wanted = source.of, words | {"volatile"}
        for node in nodes:
            name = name_of(node.child_by_field_name("declarator"))
            if name is not None and wanted & self.meant(WORD.findall(of(node))):
                yield of(name)

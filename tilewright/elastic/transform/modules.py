"""A CUDA source and its headers: their definitions, and which lead to which.

Input: the `Source`s of a file and its headers.  Output: a `SourceModule` of each.  Functions are
identified by name only: if one of several overloads reads the block's number, all of them count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import Source, declared, inside, name_of
from tilewright.elastic.transform.definitions import (
    NAMES,
    REGISTER,
    Definition,
    Definitions,
    Macro,
    definitions,
)
from tilewright.elastic.transform.device_marks import DeviceMarks
from tilewright.elastic.transform.source_group import SourceGroup

if TYPE_CHECKING:
    from tree_sitter import Node


def modules(sources: Iterable[Source], lacking: bool = False) -> tuple[SourceModule, ...]:
    """A file and its headers.  lacking: True if headers were not found"""
    around = SourceGroup(tuple(map(definitions, sources)), lacking)
    return ModuleGroup(around).modules


@dataclass(frozen=True, eq=False)
class ModuleGroup:
    """A file and its headers, which may call each other."""

    around: SourceGroup

    @cached_property
    def modules(self) -> tuple[SourceModule, ...]:
        return tuple(SourceModule(own, self.around, self) for own in self.around.sources)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of macros and of functions that kernels may call."""
        return frozenset(self.around.macros).union(*(each.named for each in self.modules))

    def behind(self, names: Iterable[str]) -> frozenset[str]:
        """These names, and all names that they reach by calls, through any source."""
        pending, found = [n for n in names if n in self.names], set[str]()
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                for each in self.modules:
                    pending += each.calls.get(name, ())
        return frozenset(found)


@dataclass(frozen=True, eq=False)
class SourceModule:
    """One source among others.

    own: its definitions;  around: the words of all sources;  group: all sources
    """

    own: Definitions
    around: SourceGroup = field(repr=False)
    group: ModuleGroup = field(repr=False)

    @property
    def source(self) -> Source:
        return self.own.source

    @cached_property
    def marks(self) -> DeviceMarks:
        """Which of its functions are device code."""
        return DeviceMarks(self.source, self.around)

    @cached_property
    def named(self) -> dict[str, list[Definition]]:
        """Definitions that kernels may call, by name."""
        found: dict[str, list[Definition]] = {}
        for function in self.own.functions:
            if not function.kernel and self.marks.is_device(function.node):
                found.setdefault(function.name, []).append(function)
        return found

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """The words in the text of a macro or callable function, by its name."""
        return self._of_each(lambda macro: macro.words, lambda f: self.words_in(f.body))

    @cached_property
    def calls(self) -> dict[str, frozenset[str]]:
        """The functions that each may call and the macros that it uses, by the same names."""
        return self._of_each(lambda macro: macro.words & self.group.names, self.calls_in)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.own.macros) | frozenset(self.named)

    def _of_each(
        self,
        of_macro: Callable[[Macro], frozenset[str]],
        of_function: Callable[[Definition], frozenset[str]],
    ) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for name in self._names:
            sets = [*map(of_macro, self.own.macros.get(name, ()))]
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
        return (self.group.names & found) - self.locals_of(function)

    def locals_of(self, function: Definition) -> frozenset[str]:
        """Names that are the function's own variables or parameters."""
        return declared(self.source, function.parameters) | declared(self.source, function.body)

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
        names = sorted(self.group.behind(self.calls_in(function)))
        return [function, *(f for name in names for f in self.named.get(name, ()))]

"""Reasons to refuse a kernel that may run code whose text was not read or not understood.

Input: sources with a `WordIndex`, a kernel and the units that it leads to.  Output: reasons: names
that a macro or unreadable text may define, that other files define, or that a caller passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import (
    Headers,
    Source,
    SourceLine,
    declared,
    included,
    inside,
    name_of,
)
from tilewright.elastic.transform.definitions import function_in
from tilewright.elastic.transform.eligibility import ALONE, Reason
from tilewright.elastic.transform.identity import Identity
from tilewright.elastic.transform.proof import RewriteCheck
from tilewright.elastic.transform.tokens import STRUCTURE
from tilewright.elastic.transform.word_index import SourceUnit

if TYPE_CHECKING:
    from tree_sitter import Node

#: Words of the language and of CUDA's own headers.
_OF_CUDA = re.compile(
    ALONE.pattern + r"|(?:u|unsigned|signed)?(?:char|short|int|long|longlong|float|double)[1-4]?"
    r"|u(?:ll)?(?:min|max)|__\w+|cuda\w+|cg|cooperative_groups|std"
    r"|(?:u|s)?(?:int|char|short|long)|\w+_t|dim3|u?int3"
    r"|NULL|nullptr|true|false|[A-Z]+_(?:MAX|MIN|EPSILON|PI)|M_\w+|INFINITY|NAN|tex\w+|surf\w+"
    r"|curand\w*|wmma|nvcuda|half2?|bool|void|signed|unsigned|const|constexpr|static|inline|if|else"
    r"|for|while|do|switch|case|default|return|goto|break|continue|struct|class|union|enum|template"
    r"|typename|using|typedef|namespace|operator|volatile|register|extern|this|sizeof|alignof|auto"
    r"|decltype|noexcept|new|delete|static_assert|and|or|not|asm|warpSize|threadIdx|blockIdx"
    r"|blockDim|gridDim|restrict|C|unroll|memcpy|memset|defined|public|private|protected|virtual"
    r"|memory|u?char|wchar_t|friend|explicit|mutable|group_index|thread_block\w*|this_\w+"
)
#: Headers of the compiler and system; none of their macros and functions reads the block's number.
_SYSTEM = re.compile(
    r"(?:[a-z_0-9]+|(?:std|float|limits|strings|wchar|pthread|fcntl|locale|setjmp|memory|values"
    r"|math|stdint|stdio|stdlib|string|assert|time|ctype|errno"
    r"|complex|signal|stddef|stdarg|stdbool|inttypes|unistd|fenv|getopt|malloc|omp)\.h"
    r"|(?:sys|cuda|cub|thrust|cooperative_groups|nv|crt|bits)/.*"
    r"|(?:cu|nv|mma|cooperative_groups|device_|driver_|vector_|texture_|surface_|channel_|builtin_"
    r"|host_|math_|sm_|common_functions)\w*\.(?:h|hpp|cuh))"
)
_DECLARES = frozenset({"type_parameter_declaration", "variadic_type_parameter_declaration",
                       "optional_type_parameter_declaration", "labeled_statement",
                       "lambda_capture_specifier", "structured_binding_declarator"})  # fmt: skip
_PLAIN_TYPES = ("primitive_type", "sized_type_specifier")


@dataclass(frozen=True, eq=False)
class UnknownCode:
    """sources: the file and the headers found for it
    meant: words, and the words that macros among them expand to
    """

    sources: tuple[Source, ...]
    headers: Headers
    identity: Identity
    proof: RewriteCheck
    meant: Callable[[Iterable[str]], frozenset[str]]

    def reasons(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Why a kernel is refused for unknown code.  reached: the units that it leads to"""
        yield from self._doubted(reached)
        yield from self._open(kernel, reached)
        yield from self._elsewhere(reached)
        yield from self._missing(reached)

    @cached_property
    def _structural(self) -> frozenset[str]:
        """Macros that expand to more than an expression."""
        units = [u for u in self.identity.index.units
                 if u.kind == "macro" and any(t.text in STRUCTURE for t in u.tokens)]  # fmt: skip
        found = self.identity.index.leading_to(units, ())
        return frozenset(name for u in found if u.kind == "macro" for name in u.names)

    @cached_property
    def unclear(self) -> tuple[SourceUnit, ...]:
        """Units whose definitions a macro makes, or that the parser did not understand."""
        return tuple(u for u in self.identity.index.units if self._is_unclear(u))

    def _is_unclear(self, unit: SourceUnit) -> bool:
        if unit.kind == "macro" or unit.node is None:
            return False
        named = self.identity.index.named
        if unit.kind != "kernel" and any(
            other.kind == "macro" for name in unit.names for other in named[name]
        ):
            return True
        if unit.kind in ("class", "other", "operator") and unit.node.has_error:
            return True
        body = unit.function.body if unit.function is not None else None
        return any(
            token.text in self._structural
            and (body is None or not body.start_byte <= token.start < body.end_byte)
            for token in unit.tokens
        )

    @cached_property
    def _doubtful(self) -> frozenset[str]:
        """Words in text that the parser did not understand, or where a macro makes definitions."""
        units = [u for u in self.identity.index.units if u.node is not None and u.node.has_error]
        return frozenset(word for u in (*units, *self.unclear) for word in u.words)

    def _doubted(self, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Calls of functions that may be defined in such text."""
        named = self.identity.index.named
        for unit in reached if self._doubtful else ():
            before = ""
            for token, after in pairwise(unit.tokens):
                if (
                    after.text in ("(", "<")
                    and before not in (".", "->")
                    and token.text in self._doubtful
                    and token.kind == "word"
                    and token.text not in named
                    and not _OF_CUDA.fullmatch(token.text)
                ):
                    yield Reason(
                        unit.source.line(token.start),
                        f"{token.text} may be defined in text that the parser could not read",
                    )
                    return
                before = token.text

    def _open(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """A kernel that may be passed code, while some code reads the block's number."""
        if self._loose and _is_open(kernel, reached):
            yield Reason(
                self._loose[0],
                "the block's number is read here, and a template or a pointer to a function may "
                "lead here",
            )

    @cached_property
    def _loose(self) -> tuple[SourceLine, ...]:
        """Lines where something other than a call by name may lead to the block's number."""
        return tuple(self._loose_lines())

    def _loose_lines(self) -> Iterator[SourceLine]:
        identity, named = self.identity, self.identity.index.named
        functions = {n for n in identity.names
                     if any(u.kind in ("function", "method") for u in named[n])}  # fmt: skip
        for unit in identity.index.units:
            own = [t for t in unit.tokens if t.text in identity.words]
            if unit in identity.units and (
                unit.kind in ("class", "operator", "other") or (unit.kind == "host" and own)
            ):
                yield unit.source.line((own or identity.tokens(unit))[0].start)
            named_only = [
                token
                for token, after in pairwise(unit.tokens)
                if token.text in functions and after.text in (")", ";", ",", "}", ">")
            ]
            local = self.proof.local(unit) if named_only else ()
            yield from (unit.source.line(t.start) for t in named_only if t.start not in local)

    def _elsewhere(self, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Functions that the sources declare and do not define."""
        named = self.identity.index.named
        called = {
            token.text
            for unit in reached
            if unit.kind not in ("declared", "class")
            for token, after in pairwise(unit.tokens)
            if after.text in ("(", "<") and not _OF_CUDA.fullmatch(token.text)
        }
        for unit in reached:
            name = unit.names[0] if unit.names else ""
            outside = unit.kind == "declared" and all(u.kind == "declared" for u in named[name])
            places = [(unit.start, name)] if outside and (
                "__device__" in self.meant(unit.words) or name in called
            ) else []  # fmt: skip
            places += (
                (n.start_byte, word)
                for n, word in _declared_inside(unit, self.meant)
                if word in called
                and not any(u.kind in ("function", "method") for u in named.get(word, ()))
            )
            for at, word in places:
                yield Reason(
                    unit.source.line(at),
                    f"{word} is defined elsewhere, and may read the block's number",
                )

    def _missing(self, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """The first name that a header may define that was not found."""
        missing = ", ".join(missing_names(self.headers))
        if not missing:
            return
        for unit in reached:
            before = ""
            for token in unit.tokens:
                if token.kind == "word" and before not in (".", "->") and (
                    token.text not in self._known and not _OF_CUDA.fullmatch(token.text)
                ):  # fmt: skip
                    yield Reason(unit.source.line(token.start),
                                 f"{token.text} may come from a header that was not found "
                                 f"({missing}): give its folder by -I")  # fmt: skip
                    return
                before = token.text

    @cached_property
    def _known(self) -> frozenset[str]:
        """Names that the sources define or declare anywhere."""
        found = set(self.identity.index.named)
        for source in self.sources:
            for node in inside(source.root):
                for kind in ("declarator", "name"):
                    for child in node.children_by_field_name(kind):
                        if (name := name_of(child)) is not None:
                            found.add(source.of(name))
                if node.type in _DECLARES:
                    found |= {source.of(n) for n in inside(node) if n.type.endswith("identifier")}
        for unit in self.identity.index.units:
            found |= {p.removesuffix("...") for p in unit.parameters or ()}
        return frozenset(found)


def missing_names(headers: Headers) -> list[str]:
    """Headers that were not found and are not the system's."""
    names: dict[str, None] = {}
    for _, directive in headers.missing:
        name = included(directive.tokens)
        if not name or not _SYSTEM.fullmatch(name):
            names[name or "a header that a macro names"] = None
    return list(names)


def _is_open(kernel: SourceUnit, reached: Iterable[SourceUnit]) -> bool:
    """True if it may call a function that its caller chooses."""
    for parameters in kernel.definition.templates:
        for node in parameters.named_children:
            kind = node.child_by_field_name("type")
            if node.type != "comment" and (kind is None or kind.type not in _PLAIN_TYPES):
                return True
    return any(_calls_values(unit) for unit in reached)


def _calls_values(unit: SourceUnit) -> bool:
    """True if a function calls something that is not a name of the sources."""
    if unit.function is None:
        return False
    source, function = unit.source, unit.function
    own = declared(source, function.parameters) | declared(source, function.body)
    for node in inside(function.body):
        if node.type == "call_expression":
            callee = node.child_by_field_name("function")
            if callee is None or callee.type not in ("identifier", "qualified_identifier",
                                                     "template_function"):  # fmt: skip
                return True
            if callee.type == "identifier" and source.of(callee) in own:
                return True
    return False


def _declared_inside(
    unit: SourceUnit, meant: Callable[[Iterable[str]], frozenset[str]]
) -> Iterator[tuple[Node, str]]:
    """Functions that a function declares within its body, and their names."""
    for node in inside(unit.function.body) if unit.function is not None else ():
        declarator = node.child_by_field_name("declarator") if node.type == "declaration" else None
        made = function_in(declarator) if declarator is not None else None
        name = name_of(made.child_by_field_name("declarator")) if made is not None else None
        given = made.child_by_field_name("parameters") if made is not None else None
        if made is None or name is None or given is None:
            continue
        head = meant(unit.source.between(node.start_byte, made.start_byte).split())
        kinds = [n.child_by_field_name("type") for n in given.named_children]
        plain = all(kind is not None and kind.type in _PLAIN_TYPES for kind in kinds)
        if plain or head & {"extern", "__device__"}:
            yield node, unit.source.of(name)

"""Reasons to refuse a kernel that lie in the text of one unit that it leads to.

Input: sources with a `WordIndex`, a unit.  Output: reasons: words and libraries that read the grid,
text that means something else in a copy, functions that the language calls without naming them.
eligibility.py judges the text of kernels, unknown_code.py names without a known definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from tilewright.elastic.transform import ptx
from tilewright.elastic.transform.cuda_source import (
    Headers,
    Source,
    included,
    inside,
    name_of,
)
from tilewright.elastic.transform.definitions import BARRIERS, LANES, NAMES
from tilewright.elastic.transform.eligibility import LAUNCHES, OBJECTS_WHY, REFUSED, Reason
from tilewright.elastic.transform.identity import Identity, registers
from tilewright.elastic.transform.proof import WHYS, shape_of
from tilewright.elastic.transform.spin_loops import OTHERS
from tilewright.elastic.transform.tokens import STRUCTURE, Token, closing
from tilewright.elastic.transform.word_index import COPIED, SourceUnit

#: Compiler intrinsics that read registers.
_INTRINSIC = re.compile(
    r"__nvvm_\w+|__builtin_\w*(?:sreg|ctaid)\w*|__nv_ptx\w*|get_sreg_\w+|__cluster\w+"
    r"|__cuda_builtin_\w+|__cudaGet_\w+|__cuda_\w*Idx\w*"
)
#: Words whose value differs in a copy of the text.
_OF_PLACE = frozenset({
    "__LINE__", "__COUNTER__", "__func__", "__FUNCTION__", "__PRETTY_FUNCTION__", "__FUNCSIG__",
    "__builtin_LINE", "__builtin_FUNCTION", "source_location", "bitand", "compl", "and_eq", "or_eq",
    "xor_eq", "__INCLUDE_LEVEL__",
})  # fmt: skip
_OBJECTS = frozenset({"barrier", "latch", "semaphore", "counting_semaphore", "binary_semaphore"})
#: Parts of libraries that read the grid, as (name before `::`, names after it).
_LIBRARIES = {
    **{f"cuda::{word}": OBJECTS_WHY for word in _OBJECTS},
    "cuda::hierarchy": "a library reads the block's number (cuda::hierarchy)",
    "cuda::hierarchy_dimensions": "a library reads the block's number (cuda::hierarchy)",
    "cuda::grid": "a library reads the block's number (cuda::grid)",
    "cuda::block": "a library reads the block's number (cuda::block)",
    "cub::GridEvenShare": "a library reads the block's number (cub::GridEvenShare)",
    "cub::GridBarrier": "it waits for the whole grid (cub::GridBarrier)",
}  # fmt: skip
#: Functions that the language calls without naming them: by syntax node, and by word of a macro.
_IMPLICIT = (
    ("for_range_loop", "for", frozenset({"begin", "end"})),
    ("structured_binding_declarator", "auto", frozenset({"get"})),
)
_ASM = frozenset({"asm", "__asm__", "__asm"})
#: Libraries with classes for a GPU.
_CLASSES_OF = re.compile(r"cooperative_groups|cuda/|cub/|thrust/|mma")
#: Kinds of units that get no copy.
_NOT_COPIED = ("class", "operator", "other")
_LOOPS = frozenset({"while", "for", "goto"})
#: Static variables that are the same in each copy, or belong to the block.
_FIXED = frozenset({"const", "constexpr", "__shared__", "static_assert"})
#: Components of the block's number, as copies of assembly read them.
_PARTS = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class UnitRefusals:
    """sources: the file and the headers found for it"""

    sources: tuple[Source, ...]
    headers: Headers
    identity: Identity

    def reasons(self, unit: SourceUnit, kernel: SourceUnit) -> Iterator[Reason]:
        """Why a kernel is refused for a unit that it leads to."""
        if unit.kind != "host":
            yield from self._in_text(unit)
        yield from self._implied(unit)
        yield from self._kept(unit, kernel)
        yield from self._of_others(unit)

    def _in_text(self, unit: SourceUnit) -> Iterator[Reason]:
        """Words, signs and assembly that no tile may contain."""
        yield from self._words(unit)
        if unit.kind == "macro":
            yield from _macro_shape(unit)
            yield from _macro_assembly(unit)
        elif unit.kind in _NOT_COPIED:
            yield from self._waits(unit)
            if unit.words & _ASM:
                yield Reason(unit.source.line(unit.start), "assembly is not supported here")

    def _words(self, unit: SourceUnit) -> Iterator[Reason]:
        """Words and signs that no tile may contain."""
        place = unit.source.line
        tokens = unit.tokens
        for at, token in enumerate(tokens):
            if token.kind == "sign":
                if token.text == "<<<":
                    yield Reason(place(token.start), LAUNCHES)
                continue
            if token.kind != "word":
                continue
            if (why := REFUSED.get(token.text)) is not None:
                yield Reason(place(token.start), why)
            elif _INTRINSIC.fullmatch(token.text):
                yield Reason(place(token.start), f"{token.text} may read the block's number")
            elif token.text in _OF_PLACE:
                yield Reason(place(token.start), f"{token.text} means something else in a copy")
            elif (why := self._library(tokens[at : at + 3])) is not None:
                yield Reason(place(token.start), why)

    def _waits(self, unit: SourceUnit) -> Iterator[Reason]:
        """The first word of a unit without a copy that waits for other threads."""
        looping = bool(unit.words & _LOOPS)
        for token in unit.tokens:
            if token.text in self._waiting or LANES.match(token.text) or (
                looping and OTHERS.match(token.text)
            ):  # fmt: skip
                yield Reason(unit.source.line(token.start), WHYS["operator"])
                return

    @cached_property
    def _renamed(self) -> dict[str, str]:
        """Aliases of libraries' namespaces; "" for a library that is used without a prefix."""
        found = {}
        for source in self.sources:
            words = [token.text for token in source.lexed.tokens]
            for first, second, third, last in zip(
                words, words[1:], words[2:], words[3:], strict=False
            ):
                if first == "namespace" and third == "=":
                    found[second] = last
                elif f"{first} {second} {third}" == "using namespace cuda" and last == ";":
                    found[""] = third
        return found

    def _library(self, tokens: Sequence[Token]) -> str | None:
        """Why a part of a library that begins here cannot be used."""
        first, second, third = (*(token.text for token in tokens), "", "")[:3]
        renamed = self._renamed
        if second == "::":
            return _LIBRARIES.get(f"{renamed.get(first, first)}::{third}")
        return _LIBRARIES.get(f"{renamed.get('')}::{first}") if second == "<" else None

    @cached_property
    def _waiting(self) -> frozenset[str]:
        """Barriers, and names of functions and macros that wait at one."""
        units = self.identity.index.leading_to((), BARRIERS)
        return BARRIERS | {n for u in units if u.kind in COPIED for n in u.names}

    def _implied(self, unit: SourceUnit) -> Iterator[Reason]:
        """Functions that a range-based loop or a structured binding calls without naming them."""
        for node_type, word, names in _IMPLICIT:
            found = sorted(names & (self.identity.names | self._waiting))
            if not found:
                continue
            body = unit.function.body if unit.function is not None else unit.node
            node = next((n for n in inside(body) if n.type == node_type), None) if body else None
            if node is not None or (unit.kind == "macro" and word in unit.words):
                at = node.start_byte if node is not None else unit.start
                yield Reason(
                    unit.source.line(at),
                    f"{found[0]}, which is called here, reads the block's number or waits",
                )

    def _kept(self, unit: SourceUnit, kernel: SourceUnit) -> Iterator[Reason]:
        """Variables of which each copy would have its own, and values that differ in a copy."""
        if unit is not kernel and unit.kind != "macro" and unit not in self.identity.units:
            return
        start = unit.function.body.start_byte if unit.function is not None else unit.start
        tokens = [token for token in unit.tokens if token.start >= start]
        for at, token in enumerate(tokens):
            if token.text == "static" and not _FIXED & _statement(tokens, at):
                yield Reason(
                    unit.source.line(token.start),
                    "a static variable would exist once per copy of the text",
                )
        if registers(unit.tokens):
            for name in _PARTS:
                for macro in self.identity.index.named.get(name, ()):
                    if macro.kind == "macro":
                        yield Reason(
                            macro.source.line(macro.start),
                            f"the macro {name} redefines a word that the elastic forms use",
                        )

    def _of_others(self, unit: SourceUnit) -> Iterator[Reason]:
        """Members of a library's objects that have the name of a rewritten function."""
        wanted = self.identity.names
        if not (unit.function and unit.words & wanted and self._has_library):
            return
        of, function = unit.source.of, unit.function
        types = self._classes | {
            of(n) for t in function.templates for n in inside(t) if n.type in NAMES
        }
        typed: dict[str, set[str]] = {}
        for node in (*inside(function.parameters), *inside(function.body)):
            for declarator in node.children_by_field_name("declarator"):
                own = name_of(declarator) if node.type.endswith("declaration") else None
                if own is not None:
                    typed.setdefault(of(own), set()).update(re.findall(r"\w+", of(node)))
        for call in inside(function.body):
            callee = call.child_by_field_name("function")
            name = name_of(callee)
            if callee is None or callee.type != "field_expression" or name is None:
                continue
            receiver = callee.child_by_field_name("argument")
            words = set(re.findall(r"\w+", of(receiver))) if receiver is not None else set()
            words = words.union(*(typed.get(word, ()) for word in words))
            if of(name) in wanted and not words & (types | {"this"}):
                yield Reason(
                    unit.source.place(call),
                    f"{of(name)} reads the block's number; here it may be a library's function",
                )

    @cached_property
    def _classes(self) -> frozenset[str]:
        """Names of the classes that the sources define."""
        units = self.identity.index.units
        return frozenset(name for u in units if u.kind == "class" for name in u.names)

    @cached_property
    def _has_library(self) -> bool:
        """True if a header that is not read defines classes for a GPU."""
        return any(_CLASSES_OF.match(included(d.tokens)) for _, d in self.headers.missing)


def _macro_shape(unit: SourceUnit) -> Iterator[Reason]:
    """Macros whose text is not whole, or that leave the function."""
    place = unit.source.line(unit.start)
    if unit.source.included and "return" in unit.words:
        yield Reason(place, f"the macro {unit.names[0]} of a header returns")
    if shape_of(unit).odd:
        yield Reason(place, f"unbalanced brackets in the macro {unit.names[0]}")


def _macro_assembly(unit: SourceUnit) -> Iterator[Reason]:
    """Assembly in a macro that cannot be read, or that no tile may contain."""
    place = unit.source.line(unit.start)
    tokens = unit.tokens
    for at, token in enumerate(tokens):
        if token.text in _ASM:
            begin = next((n for n in range(at, len(tokens)) if tokens[n].text == "("), at)
            inner = tokens[begin + 1 : closing(tokens, begin)]
            code = [*takewhile(lambda part: part.text not in (":", "::"), inner)]
            if not code or any(part.kind != "string" for part in code):
                yield Reason(place, "a macro composes the text of assembly")
            for why in ptx.refused("".join(part.text[1:-1] for part in code)):
                yield Reason(place, why)


def _statement(tokens: Sequence[Token], at: int) -> set[str]:
    """Words and signs around a token, from the start of its statement to its first value."""
    begin = at
    while begin and tokens[begin - 1].text not in STRUCTURE:
        begin -= 1
    end = at
    while end < len(tokens) and tokens[end].text not in (";", "=", "{"):
        end += 1
    return {token.text for token in tokens[begin:end]}

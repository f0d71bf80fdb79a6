"""Why a kernel of a CUDA source is refused, beyond its own text.

Input: sources with a `WordIndex`.  Output: reasons, by kernel: of the file, of the kernel's head
and names, of each unit that it leads to (unit_refusals.py), and of code that was not read
(unknown_code.py).  eligibility.py judges the kernel's text, proof.py its reads of the block's
number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.base.errors import required
from tilewright.elastic.transform.copies import WORDS as COPY_WORDS
from tilewright.elastic.transform.cuda_source import Headers, Source, inside, name_of
from tilewright.elastic.transform.definitions import BARRIERS
from tilewright.elastic.transform.eligibility import FORMS, REFUSED, Reason, Rulebook, copy_of
from tilewright.elastic.transform.forms import WORDS as FORM_WORDS
from tilewright.elastic.transform.identity import Identity
from tilewright.elastic.transform.pasting import is_made, pastes, pieces, units_from
from tilewright.elastic.transform.proof import RewriteCheck
from tilewright.elastic.transform.unit_refusals import UnitRefusals
from tilewright.elastic.transform.unknown_code import UnknownCode
from tilewright.elastic.transform.word_index import SourceUnit

WITHIN_WHY = "the kernel is within something else"
#: Words for which the parser and the rules assume the language's own meaning.
RELIED = FORM_WORDS | COPY_WORDS | REFUSED.keys() | BARRIERS | frozenset({
    "if", "else", "for", "while", "do", "switch", "case", "default", "return", "goto", "break",
    "continue", "struct", "class", "union", "enum", "namespace", "template", "typename", "using",
    "typedef", "operator", "virtual", "friend", "this", "auto", "asm", "__asm__", "__asm",
    "volatile", "extern", "constexpr", "blockIdx", "gridDim", "threadIdx", "blockDim", "warpSize",
    "group_index", "__nanosleep", "atomicAdd", "atomicCAS", "atomicExch", "sizeof", "decltype",
    "__launch_bounds__", "static", "inline", "__noinline__", "__host__",
})  # fmt: skip
_DETAILS_WHY = "details of cooperative groups may read the block's number"
_NUMBERED = re.compile(r"tw_(?:ends|unused)\d+$")


@dataclass(frozen=True, eq=False)
class Refusals:
    """sources: the file and the headers found for it;  rulebooks: of the sources that are read"""

    sources: tuple[Source, ...]
    rulebooks: Mapping[Source, Rulebook]
    headers: Headers
    identity: Identity
    proof: RewriteCheck

    def reasons(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Why a kernel of the file is refused.  reached: the units that it leads to"""
        yield from self.of_file
        yield from self._taken(kernel, reached)
        yield from self._head(kernel)
        words = {word for unit in reached for word in unit.words}
        hosts = [unit for unit in self._hosts if words & {*unit.names}]
        for unit in (*reached, *hosts):
            if unit in self.identity.units or unit is kernel:
                fault = self.proof.fault(unit)
                if fault is not None:
                    yield Reason(unit.source.line(fault.at), fault.why)
            yield from self._units.reasons(unit, kernel)
            if unit.source.included:
                yield from self.rulebooks[unit.source].of_header(unit.names, unit.function)
        yield from self._pasted(reached)
        yield from self._unknown.reasons(kernel, reached)

    @cached_property
    def _units(self) -> UnitRefusals:
        return UnitRefusals(self.sources, self.headers, self.identity)

    @cached_property
    def _unknown(self) -> UnknownCode:
        around = next(iter(self.rulebooks.values())).module.around
        return UnknownCode(self.sources, self.headers, self.identity, self.proof, around.meant)

    @cached_property
    def of_file(self) -> tuple[Reason, ...]:
        """Why no kernel of the file is accepted."""
        return tuple(self._of_file())

    def _of_file(self) -> Iterator[Reason]:
        for source in self.sources:
            if source.problem is not None:
                yield Reason(source.line(source.problem.at), source.problem.why)
            yield from _directives(source)
            yield from self._details(source)
        yield from self._redefined()
        yield from self._unclear()

    def _redefined(self) -> Iterator[Reason]:
        """Units that are named like the block's number, and operators that read it."""
        for unit in self.identity.index.units:
            for name in unit.names:
                if name in self.identity.words:
                    yield Reason(unit.source.line(unit.start), f"{name} is redefined")
            if unit.kind == "operator" and not unit.names and unit in self.identity.units:
                fault = required(self.proof.fault(unit), "an operator that may be copied")
                yield Reason(unit.source.line(fault.at), fault.why)

    def _unclear(self) -> Iterator[Reason]:
        """Operators, and units that a macro makes or that were not understood, with reads of the
        block's number."""
        free = [u for u in self.identity.index.units if u.kind == "operator" and not u.names]
        for unit in (*self._unknown.unclear, *free):
            reached = units_from(self.identity.index, unit)
            if any(u in self.identity.units for u in reached) or any(self._pasted(reached)):
                yield Reason(
                    unit.source.line(unit.start),
                    "a macro or operator that reads the block's number is defined here",
                )

    def _details(self, source: Source) -> Iterator[Reason]:
        """Uses of a library's internal namespaces, which are recognised by their own names."""
        if not any("cooperative_groups" in word for word in self._words):
            return
        tokens = source.lexed.tokens
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if token.text == "details" and "::" in (before.text, after.text):
                yield Reason(source.line(token.start), _DETAILS_WHY)

    @cached_property
    def _words(self) -> frozenset[str]:
        """All words of the sources."""
        return frozenset(
            token.text
            for source in self.sources
            for tokens in (source.lexed.tokens, *(d.tokens for d in source.lexed.directives))
            for token in tokens
            if token.kind == "word"
        )

    @cached_property
    def _hosts(self) -> tuple[SourceUnit, ...]:
        """Functions without a device mark that read the block's number directly."""
        return tuple(u for u in self.identity.index.units
                     if u.kind == "host" and u.words & self.identity.words)  # fmt: skip

    def _pasted(self, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Words of the language, and rewritten names, that are made by pasting tokens."""
        pasting = [unit for unit in reached if unit.kind == "macro" and pastes(unit)]
        if not pasting:
            return
        parts = pieces(reached)
        wanted = RELIED | self.identity.words | self.identity.names
        for name in sorted(wanted):
            if is_made(name, parts):
                unit = pasting[0]
                yield Reason(unit.source.line(unit.start), f"token pasting may produce {name}")
                return

    @cached_property
    def _reserved(self) -> frozenset[str]:
        """Words of the sources that the elastic forms reserve."""
        own = {word for word in RELIED if word.startswith(("tw_", "tilewright"))}
        return frozenset(w for w in self._words if w in own or _NUMBERED.match(w))

    def _taken(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Names of the elastic forms that the source uses itself."""
        needed = {kernel.names[0] + form for form in FORMS}
        needed |= {copy_of(n) for u in reached if u in self.identity.units for n in u.names}
        for name in sorted((needed & self._words) | self._reserved):
            yield Reason(
                kernel.source.line(kernel.start),
                f"the source uses the name {name}, which the elastic forms need",
            )

    def _head(self, kernel: SourceUnit) -> Iterator[Reason]:
        """Heads of kernels that the forms cannot repeat."""
        yield from self._head_macros(kernel)
        yield from self._nameless(kernel)
        if kernel.node is not None and not _at_namespace(kernel):
            yield Reason(kernel.source.line(kernel.start), WITHIN_WHY)

    def _head_macros(self, kernel: SourceUnit) -> Iterator[Reason]:
        """Macros in the head of a kernel, parts of which the forms repeat."""
        function = kernel.definition
        for token in kernel.tokens:
            if token.start >= function.body.start_byte:
                break
            for macro in self.identity.index.named.get(token.text, ()):
                signs = {t.text for t in macro.tokens if t.kind == "sign"}
                words = {t.text for t in macro.tokens if t.kind == "word"}
                label = token.start == function.labels.start_byte
                within = function.parameters.start_byte <= token.start
                if macro.kind == "macro" and (
                    label
                    or signs & {",", ";", "{", "}", "="}
                    or words & {"template", "requires", "__global__"}
                    or (within and "(" in signs)
                ):
                    yield Reason(
                        kernel.source.line(token.start),
                        f"the macro {token.text} is part of the kernel's head",
                    )

    def _nameless(self, kernel: SourceUnit) -> Iterator[Reason]:
        """Parameters without a name, or whose name a macro may make."""
        for node in kernel.definition.parameters.named_children:
            unnamed = name_of(node.child_by_field_name("declarator")) is None
            tokens = kernel.source.lexed.between(node.start_byte, node.end_byte)
            if node.type.endswith("declaration") and unnamed and (
                any(self.identity.index.named.get(token.text) for token in tokens)
                or any(n.type.startswith(("abstract_function", "abstract_array"))
                       for n in inside(node))
            ):  # fmt: skip
                yield Reason(kernel.source.place(node), "a parameter has no name")


def _directives(source: Source) -> Iterator[Reason]:
    """Directives that change words on which the elastic forms rely."""
    for directive in source.lexed.directives:
        first = directive.tokens[0].text if directive.tokens else ""
        if directive.name in ("define", "undef") and first in RELIED:
            why = f"the macro {first} redefines a word that the elastic forms use"
        elif directive.name == "pragma" and first in ("push_macro", "pop_macro"):
            why = "push_macro and pop_macro are not supported"
        else:
            continue
        yield Reason(source.line(directive.start), why)


def _at_namespace(unit: SourceUnit) -> bool:
    """True if a unit is not the member of a class."""
    node = unit.node.parent if unit.node is not None else None
    while node is not None:
        if node.type == "field_declaration_list":
            return False
        node = node.parent
    return True

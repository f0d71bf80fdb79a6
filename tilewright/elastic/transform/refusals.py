"""Reasons to refuse a kernel that lie in the code around it and the code that it reaches.

Input: sources with a `WordIndex`.  Output: reasons, by kernel.  eligibility.py judges the kernel's
text, proof.py the reads of the block's number; this module judges words, macros and headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from tilewright.base.errors import required
from tilewright.elastic.transform import ptx
from tilewright.elastic.transform.copies import WORDS as COPY_WORDS
from tilewright.elastic.transform.cuda_source import (
    Headers,
    Source,
    SourceLine,
    declared,
    included,
    inside,
    name_of,
)
from tilewright.elastic.transform.definitions import BARRIERS, LANES, NAMES, function_in
from tilewright.elastic.transform.eligibility import (
    ALONE,
    FORMS,
    LAUNCHES,
    OBJECTS_WHY,
    REFUSED,
    Reason,
    Rulebook,
    copy_of,
)
from tilewright.elastic.transform.forms import WORDS as FORM_WORDS
from tilewright.elastic.transform.identity import Identity, pastes, registers
from tilewright.elastic.transform.proof import WHYS, RewriteCheck, shape_of
from tilewright.elastic.transform.spin_loops import OTHERS
from tilewright.elastic.transform.tokens import Token, closing
from tilewright.elastic.transform.word_index import COPIED, SourceUnit

if TYPE_CHECKING:
    from tree_sitter import Node

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
_DETAILS_WHY = "details of cooperative groups may read the block's number"
#: Functions that the language calls without naming them: by syntax node, and by word of a macro.
_IMPLICIT = (
    ("for_range_loop", "for", frozenset({"begin", "end"})),
    ("structured_binding_declarator", "auto", frozenset({"get"})),
)
#: Words of the language and of CUDA's own headers.
_OF_CUDA = re.compile(
    ALONE.pattern + r"|(?:u|unsigned|signed)?(?:char|short|int|long|longlong|float|double)[1-4]?"
    r"|u(?:ll)?(?:min|max)|__\w+|cuda\w+|cg|cooperative_groups|std|(?:u|s)?(?:int|char|short|long)|\w+_t|dim3|u?int3"
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
    r"(?:[a-z_0-9]+|(?:std|float|limits|strings|wchar|pthread|fcntl|locale|setjmp|memory|values|math|stdint|stdio|stdlib|string|assert|time|ctype|errno"
    r"|complex|signal|stddef|stdarg|stdbool|inttypes|unistd|fenv|getopt|malloc|omp)\.h"
    r"|(?:sys|cuda|cub|thrust|cooperative_groups|nv|crt|bits)/.*"
    r"|(?:cu|nv|mma|cooperative_groups|device_|driver_|vector_|texture_|surface_|channel_|builtin_"
    r"|host_|math_|sm_|common_functions)\w*\.(?:h|hpp|cuh))"
)
_STRUCTURE = frozenset({"{", "}", ";"})
_NUMBERED = re.compile(r"tw_(?:ends|unused)\d+$")
_ASM = frozenset({"asm", "__asm__", "__asm"})
_DECLARES = frozenset({"type_parameter_declaration", "variadic_type_parameter_declaration",
                       "optional_type_parameter_declaration", "labeled_statement",
                       "lambda_capture_specifier", "structured_binding_declarator"})  # fmt: skip
_PLAIN_TYPES = ("primitive_type", "sized_type_specifier")
#: Libraries with classes for a GPU.
_CLASSES_OF = re.compile(r"cooperative_groups|cuda/|cub/|thrust/|mma")
_LOOPS = frozenset({"while", "for", "goto"})
#: Static variables that are the same in each copy, or belong to the block.
_FIXED = frozenset({"const", "constexpr", "__shared__", "static_assert"})
#: Components of the block's number, as copies of assembly read them.
_PARTS = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class Refusals:
    """sources: the file and the headers found for it;  rulebooks: of the sources that are read"""

    sources: tuple[Source, ...]
    rulebooks: Mapping[Source, Rulebook]
    headers: Headers
    identity: Identity
    proof: RewriteCheck

    def reasons(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Why a kernel of the file is refused.  reached: by the kernel (`self.reached`)"""
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
            if unit.kind != "host":
                yield from self._in_unit(unit)
            yield from self._implied(unit)
            yield from self._kept(unit, kernel)
            yield from self._of_others(unit)
            if unit.source.included:
                yield from self.rulebooks[unit.source].of_header(unit.names, unit.function)
        yield from self._made(reached)
        yield from self._doubted(reached)
        yield from self._open(kernel, reached)
        yield from self._elsewhere(reached)

    # ---- the file --------------------------------------------------------------------------------

    @cached_property
    def of_file(self) -> tuple[Reason, ...]:
        """Why no kernel of the file is accepted."""
        return tuple(self._of_file())

    def _of_file(self) -> Iterator[Reason]:
        for source in self.sources:
            if source.problem is not None:
                yield Reason(source.line(source.problem.at), source.problem.why)
            for directive in source.lexed.directives:
                words = [token.text for token in directive.tokens]
                if directive.name in ("define", "undef") and words and words[0] in RELIED:
                    yield Reason(
                        source.line(directive.start),
                        f"the macro {words[0]} redefines a word that the elastic forms use",
                    )
                elif directive.name == "pragma" and words[:1] and (
                    words[0] in ("push_macro", "pop_macro")
                ):  # fmt: skip
                    yield Reason(
                        source.line(directive.start), "push_macro and pop_macro are not supported"
                    )
            yield from self._details(source)
        for unit in self.identity.index.units:
            for name in unit.names:
                if name in self.identity.words:
                    yield Reason(unit.source.line(unit.start), f"{name} is redefined")
            if unit.kind == "operator" and not unit.names and unit in self.identity.units:
                fault = required(self.proof.fault(unit), "an operator that may be copied")
                yield Reason(unit.source.line(fault.at), fault.why)

        free = [u for u in self.identity.index.units if u.kind == "operator" and not u.names]
        for unit in (*self._unclear, *free):
            reached = self.reached(unit)
            if any(u in self.identity.units for u in reached) or any(self._made(reached)):
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

    @cached_property
    def _structural(self) -> frozenset[str]:
        """Macros that expand to more than an expression."""
        units = [u for u in self.identity.index.units
                 if u.kind == "macro" and any(t.text in _STRUCTURE for t in u.tokens)]  # fmt: skip
        found = self.identity.index.leading_to(units, ())
        return frozenset(name for u in found if u.kind == "macro" for name in u.names)

    @cached_property
    def _unclear(self) -> tuple[SourceUnit, ...]:
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
        return frozenset(word for u in (*units, *self._unclear) for word in u.words)

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

    # ---- what a kernel leads to ------------------------------------------------------------------

    def reached(self, kernel: SourceUnit) -> list[SourceUnit]:
        """The kernel and all units that its words, also pasted ones, lead to."""
        index = self.identity.index
        found = index.reached(kernel)
        more: set[str] = set()
        while any(unit.kind == "macro" and pastes(unit) for unit in found):
            pieces = _pieces(found)
            made = {name for name in index.named if _is_made(name, pieces)} - more
            if not made:
                break
            more |= made
            found = index.reached(kernel, more)
        return found

    def _made(self, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """Words of the language, and rewritten names, that are made by pasting tokens."""
        pasting = [unit for unit in reached if unit.kind == "macro" and pastes(unit)]
        if not pasting:
            return
        pieces = _pieces(reached)
        wanted = RELIED | self.identity.words | self.identity.names
        for name in sorted(wanted):
            if _is_made(name, pieces):
                unit = pasting[0]
                yield Reason(unit.source.line(unit.start), f"token pasting may produce {name}")
                return

    @cached_property
    def _reserved(self) -> frozenset[str]:
        """Words of the sources that the elastic forms reserve."""
        own = {word for word in RELIED if word.startswith(("tw_", "tilewright"))}
        return frozenset(w for w in self._words if w in own or _NUMBERED.match(w))

    def _taken(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        needed = {kernel.names[0] + form for form in FORMS}
        needed |= {copy_of(n) for u in reached if u in self.identity.units for n in u.names}
        for name in sorted((needed & self._words) | self._reserved):
            yield Reason(
                kernel.source.line(kernel.start),
                f"the source uses the name {name}, which the elastic forms need",
            )

    def _head(self, kernel: SourceUnit) -> Iterator[Reason]:
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
        for node in function.parameters.named_children:
            unnamed = name_of(node.child_by_field_name("declarator")) is None
            tokens = kernel.source.lexed.between(node.start_byte, node.end_byte)
            if node.type.endswith("declaration") and unnamed and (
                any(self.identity.index.named.get(token.text) for token in tokens)
                or any(n.type.startswith(("abstract_function", "abstract_array"))
                       for n in inside(node))
            ):  # fmt: skip
                yield Reason(kernel.source.place(node), "a parameter has no name")
        if kernel.node is not None and not _at_namespace(kernel):
            yield Reason(kernel.source.line(kernel.start), WITHIN_WHY)

    def _in_unit(self, unit: SourceUnit) -> Iterator[Reason]:
        """Words, signs and assembly that no tile may contain."""
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
        if unit.kind in ("class", "operator", "other"):
            waiting = self.waiting
            looping = bool(unit.words & _LOOPS)
            for token in tokens:
                if token.text in waiting or LANES.match(token.text) or (
                    looping and OTHERS.match(token.text)
                ):  # fmt: skip
                    yield Reason(place(token.start), WHYS["operator"])
                    break
        if unit.kind == "macro":
            yield from self._macro(unit)
        elif unit.kind in ("class", "operator", "other") and unit.words & _ASM:
            yield Reason(place(unit.start), "assembly is not supported here")

    def _library(self, tokens: Sequence[Token]) -> str | None:
        """Why a part of a library that begins here cannot be used."""
        first, second, third = (*(token.text for token in tokens), "", "")[:3]
        renamed = self._renamed
        if second == "::":
            return _LIBRARIES.get(f"{renamed.get(first, first)}::{third}")
        return _LIBRARIES.get(f"{renamed.get('')}::{first}") if second == "<" else None

    def _implied(self, unit: SourceUnit) -> Iterator[Reason]:
        """Functions that a range-based loop or a structured binding calls without naming them."""
        for node_type, word, names in _IMPLICIT:
            found = sorted(names & (self.identity.names | self.waiting))
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

    @cached_property
    def _hosts(self) -> tuple[SourceUnit, ...]:
        """Functions without a device mark that read the block's number directly."""
        return tuple(u for u in self.identity.index.units
                     if u.kind == "host" and u.words & self.identity.words)  # fmt: skip

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Barriers, and names of functions and macros that wait at one."""
        units = self.identity.index.leading_to((), BARRIERS)
        return BARRIERS | {n for u in units if u.kind in COPIED for n in u.names}

    def _macro(self, unit: SourceUnit) -> Iterator[Reason]:
        place = unit.source.line
        if unit.source.included and "return" in unit.words:
            yield Reason(place(unit.start), f"the macro {unit.names[0]} of a header returns")
        if shape_of(unit).odd:
            yield Reason(place(unit.start), f"unbalanced brackets in the macro {unit.names[0]}")
        tokens = unit.tokens
        for at, token in enumerate(tokens):
            if token.text in _ASM:
                begin = next((n for n in range(at, len(tokens)) if tokens[n].text == "("), at)
                inner = tokens[begin + 1 : closing(tokens, begin)]
                code = []
                for part in inner:
                    if part.text in (":", "::"):
                        break
                    code.append(part)
                if not code or any(part.kind != "string" for part in code):
                    yield Reason(place(unit.start), "a macro composes the text of assembly")
                text = "".join(part.text[1:-1] for part in code)
                for why in ptx.refused(text):
                    yield Reason(place(unit.start), why)

    def _open(self, kernel: SourceUnit, reached: Sequence[SourceUnit]) -> Iterator[Reason]:
        """A kernel that may be passed code, while some code reads the block's number."""
        loose = self.loose
        if loose and _is_open(kernel, reached):
            yield Reason(loose[0], "the block's number is read here, and a template or a pointer "
                                   "to a function may lead here")  # fmt: skip

    @cached_property
    def loose(self) -> tuple[SourceLine, ...]:
        """Lines where something other than a call by name may lead to the block's number."""
        return tuple(self._loose())

    def _loose(self) -> Iterator[SourceLine]:
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
        """Names that are defined in code that was not read."""
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
                "__device__" in self._meant(unit.words) or name in called
            ) else []  # fmt: skip
            places += (
                (n.start_byte, word)
                for n, word in _declared_inside(unit, self._meant)
                if word in called
                and not any(u.kind in ("function", "method") for u in named.get(word, ()))
            )
            for at, word in places:
                yield Reason(
                    unit.source.line(at),
                    f"{word} is defined elsewhere, and may read the block's number",
                )
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

    def _meant(self, words: Iterable[str]) -> frozenset[str]:
        """These words, and the words that macros among them expand to."""
        return next(iter(self.rulebooks.values())).module.around.meant(words)

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


def _statement(tokens: Sequence[Token], at: int) -> set[str]:
    """Words and signs around a token, from the start of its statement to its first value."""
    begin = at
    while begin and tokens[begin - 1].text not in _STRUCTURE:
        begin -= 1
    end = at
    while end < len(tokens) and tokens[end].text not in (";", "=", "{"):
        end += 1
    return {token.text for token in tokens[begin:end]}


def _pieces(units: Iterable[SourceUnit]) -> set[str]:
    """Parts from which names may be pasted."""
    return {t.text for u in units for t in u.tokens if t.kind in ("word", "number")}


def _is_made(name: str, pieces: set[str]) -> bool:
    """True if a name can be composed of two or more pieces."""
    reachable = {0}
    for start in range(len(name)):
        if start in reachable:
            ends = range(start + 1, len(name) + (start > 0))
            reachable |= {end for end in ends if name[start:end] in pieces}
    return len(name) in reachable


def _at_namespace(unit: SourceUnit) -> bool:
    node = unit.node.parent if unit.node is not None else None
    while node is not None:
        if node.type == "field_declaration_list":
            return False
        node = node.parent
    return True


def _is_open(kernel: SourceUnit, reached: Iterable[SourceUnit]) -> bool:
    """True if it may call a function that its caller chooses."""
    for parameters in kernel.definition.templates:
        for node in parameters.named_children:
            kind = node.child_by_field_name("type")
            if node.type != "comment" and (kind is None or kind.type not in _PLAIN_TYPES):
                return True
    return any(_calls_values(unit) for unit in reached)


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


def _calls_values(unit: SourceUnit) -> bool:
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

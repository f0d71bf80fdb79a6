"""Copies functions and macros such that the tile's position replaces the block's.

Input: a function or macro and the units of its file that it reaches.  Output: text.  `tw_tile` is
the tile; copies of device functions get it as their first parameter, copies of macros find it where
they are used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.base.errors import CompilerBug, ensure, required
from tilewright.elastic.transform import ptx
from tilewright.elastic.transform.cuda_source import Edit, declared, inside, is_local, name_of
from tilewright.elastic.transform.definitions import LANES, Definition, function_in
from tilewright.elastic.transform.eligibility import GROUP_INDEX, Verdict, copy_of, outer_if
from tilewright.elastic.transform.identity import Identity
from tilewright.elastic.transform.modules import SourceModule
from tilewright.elastic.transform.tokens import Token, closing
from tilewright.elastic.transform.word_index import SourceUnit

if TYPE_CHECKING:
    from tree_sitter import Node

#: The type of a tile, and the name of the present one.
TILE, TW = "tilewright::Tile", "tw_tile"
#: What a copy reads instead of these; both spellings of a register.
BLOCK_VALUES = {"blockIdx": f"{TW}.tw_block", "gridDim": f"{TW}.tw_grid"}
THREAD_VALUES = {"threadIdx": f"{TW}.tw_thread", "blockDim": f"{TW}.tw_threads"}
BLOCK_REGISTERS = {"ctaid": f"{TW}.tw_block", "nctaid": f"{TW}.tw_grid"}
THREAD_REGISTERS = {"tid": f"{TW}.tw_thread", "ntid": f"{TW}.tw_threads"}
#: Words that copies contain besides those of the source.
WORDS = frozenset({
    "const", "__ballot_sync", "bool", "tw_block", "tw_grid", "tw_thread", "tw_threads", "tw_live",
})  # fmt: skip
#: Syntax nodes by which a function is called by its name.
_CALLEES = frozenset({
    "identifier", "qualified_identifier", "template_function", "field_expression",
})  # fmt: skip
_LIBRARIES = ("std::", "::std::", "cuda::", "cub::", "thrust::", "cg::", "cooperative_groups::",
              "nvcuda::")  # fmt: skip
#: Syntax nodes in which an expression may stand.
_VALUES = frozenset({
    "field_expression", "argument_list", "init_declarator", "binary_expression",
    "assignment_expression", "parenthesized_expression", "return_statement", "initializer_list",
    "subscript_argument_list", "conditional_expression", "comma_expression",
    "gnu_asm_input_operand", "cast_expression", "unary_expression", "condition_clause",
    "expression_statement", "sizeof_expression", "pointer_expression", "for_range_loop",
})  # fmt: skip


class Copier:
    """Rewrites the kernels that become elastic, and the code that they reach."""

    def __init__(self, module: SourceModule, identity: Identity, fold: bool) -> None:
        self.module, self.identity, self.source = module, identity, module.source
        self.of = self.source.of
        self.values = BLOCK_VALUES | (THREAD_VALUES if fold else {})
        self.registers = BLOCK_REGISTERS | (THREAD_REGISTERS if fold else {})
        named = identity.index.named
        kinds = {name: {unit.kind for unit in named[name]} for name in identity.names}
        self._functions = {n for n, k in kinds.items() if k & {"function", "method", "declared"}}
        self._methods = {n for n, k in kinds.items() if k & {"method", "declared"}}
        self._macros = {n for n, k in kinds.items() if "macro" in k}

    # ---- bodies ----------------------------------------------------------------------------------

    def edits(self, function: Definition, live: bool) -> list[Edit]:
        """Edits of a body; each is valid wherever the tile is in scope."""
        found: list[Edit] = []
        body = function.body
        for node in inside(body):
            if node.type == "gnu_asm_expression":
                found += ptx.edits(self.source, node, self.registers)
            elif node.type == "call_expression":
                found += self._call(node, live, function)
            elif node.type == "identifier" and self.of(node) in self.values and _is_value(node):
                found.append(Edit(node.start_byte, node.end_byte, self.values[self.of(node)]))
        for token in self.source.lexed.between(body.start_byte, body.end_byte):
            if token.kind == "word" and token.text in self._macros:
                found.append(Edit(token.start, token.end, copy_of(token.text)))
        return found

    def _call(self, call: Node, live: bool, function: Definition) -> Iterator[Edit]:
        callee, arguments = (call.child_by_field_name(f) for f in ("function", "arguments"))
        name = name_of(callee)
        if callee is None or name is None or arguments is None or callee.type not in _CALLEES:
            return
        word = self.of(name)
        given = [node for node in arguments.named_children if node.type != "comment"]
        if any(node.type.startswith("preproc") for node in given):
            return
        if word == GROUP_INDEX:
            yield Edit(call.start_byte, call.end_byte, f"{TW}.tw_block")
        elif self.of(callee).startswith(_LIBRARIES):
            return
        elif live and LANES.match(word):
            if given:
                yield Edit(name.start_byte, name.end_byte, word)
                yield Edit(given[0].start_byte, given[0].start_byte, "(")
                yield Edit(given[0].end_byte, given[0].end_byte, f") & {TW}.tw_live")
            else:
                yield Edit(name.start_byte, name.end_byte, word)
                yield Edit(arguments.start_byte + 1, arguments.start_byte + 1, f"{TW}.tw_live")
        elif word in self._functions and (
            word in self._methods
            if callee.type == "field_expression"
            else not self._is_own(name, word, function)
        ):
            yield Edit(name.start_byte, name.end_byte, copy_of(word))
            more = f"{TW}, " if given else TW
            yield Edit(arguments.start_byte + 1, arguments.start_byte + 1, more)

    def _is_own(self, name: Node, word: str, function: Definition) -> bool:
        """True if a name means one of the function's own variables."""
        return word in declared(self.source, function.parameters) or is_local(
            self.source, name, function.body
        )

    def body(self, verdict: Verdict, more: list[Edit]) -> str:
        """A kernel's body as the body of a tile."""
        function = verdict.function
        edits = more + self.edits(function, verdict.live)
        if verdict.live:
            edits += [*self._counted(verdict, edits)]
        return self.source.edited(function.body.start_byte, function.body.end_byte, edits)

    def _counted(self, verdict: Verdict, edits: list[Edit]) -> Iterator[Edit]:
        """Edits that remove returning lanes from the mask, in all lanes that come to the place."""
        written = sorted(edits, key=lambda edit: edit.start)
        starts = [edit.start for edit in written]
        for number, node in enumerate(verdict.returns):
            name = verdict.function.name
            outer = required(outer_if(verdict.function, node), "a return in no `if`", kernel=name)
            found = outer.child_by_field_name("condition")
            condition = required(found, "an `if` without a condition", kernel=name)
            begin, end = condition.start_byte, condition.end_byte
            own = written[bisect_left(starts, begin) : bisect_left(starts, end)]
            text = self.source.edited(begin, end, own)
            ends = f"tw_ends{number}"
            yield Edit(
                outer.start_byte,
                outer.start_byte,
                f"const bool {ends} = {text};\n"
                f"  {TW}.tw_live = __ballot_sync({TW}.tw_live, !{ends});\n  ",
            )
            yield Edit(condition.start_byte, condition.end_byte, f"({ends})")

    # ---- copies ----------------------------------------------------------------------------------

    def copies(self, units: Iterable[SourceUnit]) -> Iterator[tuple[int, str]]:
        """Copies of functions, declarations and macros, each with the place where it is
        inserted."""
        for unit in units:
            if unit.kind == "macro":
                yield unit.end, self._macro(unit)
                continue
            if unit.function is not None:
                function = unit.function
                edits = [*self._head(function.declarator, function.labels),
                         *self.edits(function, bool(self.identity.live))]  # fmt: skip
            elif unit.node is not None:
                edits = self._declared(unit.node)
            yield unit.end, "\n" + self.source.edited(unit.start, unit.end, edits)

    def _declared(self, node: Node) -> list[Edit]:
        for inner in inside(node):
            if inner.type in ("declaration", "field_declaration"):
                declarator = function_in(inner.children_by_field_name("declarator")[0])
                name = name_of(declarator.child_by_field_name("declarator")) if declarator else None
                if declarator is not None and name is not None:
                    return self._head(declarator, name)
        return []

    def _head(self, declarator: Node, name: Node) -> list[Edit]:
        found = declarator.child_by_field_name("parameters")
        parameters = required(found, "a function has no parameters", function=self.of(name))
        given = [n for n in parameters.named_children if n.type != "comment"]
        first = f"const {TILE} &{TW}"
        if not given or self.of(parameters).strip("() \n") == "void":
            head = Edit(parameters.start_byte, parameters.end_byte, f"({first})")
        else:
            head = Edit(parameters.start_byte + 1, parameters.start_byte + 1, f"{first}, ")
        return [Edit(name.start_byte, name.end_byte, copy_of(self.of(name))), head]

    # ---- macros ----------------------------------------------------------------------------------

    def edits_in_macro(self, unit: SourceUnit, token: Token) -> list[Edit] | str:
        """The edits of a word in the copy of a macro, or why the word cannot be rewritten."""
        tokens = unit.tokens
        at = tokens.index(token)
        before = tokens[at - 1].text if at else ""
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.text in self.values and before not in (".", "->", "::"):
            return [Edit(token.start, token.end, self.values[token.text])]
        if token.text in self._macros:
            if after == "(" or all(
                u.parameters is None for u in self.identity.index.named[token.text]
            ):
                return [Edit(token.start, token.end, copy_of(token.text))]
        elif token.text in self._functions and after == "(":
            inner = tokens[at + 2 : closing(tokens, at + 1)]
            some = _some(inner, {*(unit.parameters or ()), "__VA_ARGS__"}, self.identity)
            if some is not None:
                end = tokens[at + 1].end
                return [Edit(token.start, token.end, copy_of(token.text)),
                        Edit(end, end, f"{TW}, " if some else TW)]  # fmt: skip
        return f"the macro {unit.names[0]} uses {token.text} in a way that is not understood"

    def _macro(self, unit: SourceUnit) -> str:
        edits: list[Edit] = []
        for token in self.identity.tokens(unit):
            found = self.edits_in_macro(unit, token)
            if isinstance(found, str):
                raise CompilerBug(found)
            edits += found
        name, copy = unit.names[0], copy_of(unit.names[0])
        head = copy + ("" if unit.parameters is None else f"({', '.join(unit.parameters)})")
        start = unit.tokens[0].start if unit.tokens else unit.end
        value = self.source.edited(start, unit.end, edits)
        ensure(name in self._macros, "a macro that needs no copy", macro=name)
        return f"\n#undef {copy}\n#define {head} {value}"


def _some(tokens: Sequence[Token], maybe: set[str], identity: Identity) -> bool | None:
    """True if a call in a macro has arguments; None if that depends on the macro's arguments."""
    if not tokens:
        return False
    first = tokens[0].text
    maybe = {name.removesuffix("...") for name in maybe}
    named = identity.index.named.get(first, ())
    if first in maybe or any(unit.kind == "macro" for unit in named):
        return True if len(tokens) > 1 and tokens[1].text not in (",", "(") else None
    return True


def _is_value(node: Node) -> bool:
    """True if a name is read as a value at its place, as far as the grammar shows."""
    parent = node.parent
    if parent is None or parent.type not in _VALUES:
        return False
    return all(
        child.id != node.id
        for kind in ("declarator", "left", "field", "name")
        for child in parent.children_by_field_name(kind)
    )

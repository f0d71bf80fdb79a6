"""Second copies of functions and macros, in which a block's place is the tile's.

Input: a function or macro and what its file reaches.  Output: text.  `tw_tile` is the tile in it;
copies of device functions get it as their first parameter, copies of macros find it where they are
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform import ptx
from tilewright.elastic.transform.module import (
    LANES,
    WORD,
    Definition,
    Macro,
    function_in,
    whole,
)
from tilewright.elastic.transform.rules import GROUP_INDEX, Rulebook, Verdict, copy_of, outer_if
from tilewright.elastic.transform.source import Edit, inside, name_of

if TYPE_CHECKING:
    from tree_sitter import Node

#: The type of a tile, and the name of the one at hand.
TILE, TW = "tilewright::Tile", "tw_tile"
#: What a copy reads instead; both spellings of a register.
BLOCK_VALUES = {"blockIdx": f"{TW}.block", "gridDim": f"{TW}.grid"}
THREAD_VALUES = {"threadIdx": f"{TW}.thread", "blockDim": f"{TW}.threads"}
BLOCK_REGISTERS = {"ctaid": f"{TW}.block", "nctaid": f"{TW}.grid"}
THREAD_REGISTERS = {"tid": f"{TW}.thread", "ntid": f"{TW}.threads"}


class Copier:
    """verdicts: of the kernels that become elastic"""

    def __init__(self, rules: Rulebook, verdicts: list[Verdict]) -> None:
        self.rules, self.module, self.source = rules, rules.module, rules.module.source
        self.of = self.source.of
        self.values = BLOCK_VALUES | (THREAD_VALUES if rules.fold else {})
        self.registers = BLOCK_REGISTERS | (THREAD_REGISTERS if rules.fold else {})
        self.live = any(p.live for p in verdicts)

    @cached_property
    def copied(self) -> frozenset[str]:
        """Names of the file of which there is a copy."""
        found = self.module.reaching(self.rules.identities)
        if self.live:
            found |= self.rules.lanes
        return found & (self.module.named.keys() | self.module.macros.keys())

    # ---- bodies ----------------------------------------------------------------------------------

    def edits(self, function: Definition, live: bool) -> list[Edit]:
        """Of the body, and of default values of parameters."""
        found: list[Edit] = []
        own = self.module.locals_of(function)
        for node in inside(function.whole):
            if node.type == "gnu_asm_expression":
                found += ptx.edits(self.source, node, self.registers)
            elif node.type == "call_expression":
                found += self._call(node, live, own)
            elif node.type == "identifier":
                found += self._word(node)
        return found

    def _word(self, node: Node) -> Iterator[Edit]:
        word = self.of(node)
        if word in self.values:
            yield Edit(node.start_byte, node.end_byte, self.values[word])
        elif word in self.module.macros and word in self.copied:
            yield Edit(node.start_byte, node.end_byte, copy_of(word))

    def _call(self, call: Node, live: bool, own: frozenset[str]) -> Iterator[Edit]:
        name = name_of(call.child_by_field_name("function"))
        arguments = call.child_by_field_name("arguments")
        if name is None or arguments is None:
            return
        word, given = self.of(name), arguments.named_children
        if word == GROUP_INDEX:
            yield Edit(call.start_byte, call.end_byte, f"{TW}.block")
        elif live and LANES.match(word):
            if given:
                yield Edit(given[0].start_byte, given[0].start_byte, "(")
                yield Edit(given[0].end_byte, given[0].end_byte, f") & {TW}.live")
            else:
                yield Edit(arguments.start_byte + 1, arguments.start_byte + 1, f"{TW}.live")
        elif word in self.copied & self.module.named.keys() - own:
            yield Edit(name.start_byte, name.end_byte, copy_of(word))
            more = f"{TW}, " if given else TW
            yield Edit(arguments.start_byte + 1, arguments.start_byte + 1, more)

    def body(self, verdict: Verdict, more: list[Edit]) -> str:
        """A kernel's body as that of a tile."""
        function = verdict.function
        edits = more + self.edits(function, verdict.live)
        if verdict.live:
            edits += self._counted(verdict, edits)
        return self.source.edited(function.body.start_byte, function.body.end_byte, edits)

    def _counted(self, verdict: Verdict, edits: list[Edit]) -> Iterator[Edit]:
        """Lanes that return are taken out of the mask, by all that come to the place."""
        for number, node in enumerate(verdict.returns):
            outer = outer_if(verdict.function, node)
            condition = outer.child_by_field_name("condition") if outer is not None else None
            assert outer is not None
            assert condition is not None
            text = self.source.edited(condition.start_byte, condition.end_byte, edits)
            ends = f"tw_ends{number}"
            yield Edit(
                outer.start_byte,
                outer.start_byte,
                f"const bool {ends} = {text};\n"
                f"  {TW}.live = __ballot_sync({TW}.live, !{ends});\n  ",
            )
            yield Edit(condition.start_byte, condition.end_byte, f"({ends})")

    # ---- copies ----------------------------------------------------------------------------------

    def copies(self) -> Iterator[tuple[int, str]]:
        """Copies of functions, declarations and macros, and where each is put."""
        of = self.of
        for function in self.module.functions:
            if not function.kernel and function.name in self.copied:
                edits = [*self._head(function.declarator, function.labels),
                         *self.edits(function, self.live)]  # fmt: skip
                at = function.whole
                yield at.end_byte, "\n" + self.source.edited(at.start_byte, at.end_byte, edits)
        for node in self.module.declarations:
            declarator = function_in(node.children_by_field_name("declarator")[0])
            name = name_of(declarator.child_by_field_name("declarator")) if declarator else None
            if declarator is not None and name is not None and of(name) in self.copied:
                edits = self._head(declarator, name)
                at = whole(node)
                yield at.end_byte, "\n" + self.source.edited(at.start_byte, at.end_byte, edits)
        for name_, macros in self.module.macros.items():
            if name_ in self.copied:
                yield from ((m.node.end_byte, self._macro(m)) for m in macros)

    def _head(self, declarator: Node, name: Node) -> list[Edit]:
        parameters = declarator.child_by_field_name("parameters")
        assert parameters is not None
        given = [n for n in parameters.named_children if n.type != "comment"]
        first = f"const {TILE} &{TW}"
        if not given or self.of(parameters).strip("() \n") == "void":
            head = Edit(parameters.start_byte, parameters.end_byte, f"({first})")
        else:
            head = Edit(parameters.start_byte + 1, parameters.start_byte + 1, f"{first}, ")
        return [Edit(name.start_byte, name.end_byte, copy_of(self.of(name))), head]

    def _macro(self, macro: Macro) -> str:
        parameters = macro.node.child_by_field_name("parameters")
        head = copy_of(macro.name) + (self.of(parameters) if parameters is not None else "")
        calls = "|".join(map(re.escape, sorted(self.copied & self.module.named.keys()))) or "(?!)"
        value = re.sub(rf"\b({calls})\s*(<[^<>()]*>)?\s*\((\s*\))?", _call_in_macro, macro.value)
        value = WORD.sub(lambda found: self._in_macro(found[0]), value)
        return f"#undef {copy_of(macro.name)}\n#define {head} {value}\n"

    def _in_macro(self, word: str) -> str:
        if word in self.module.macros and word in self.copied:
            return copy_of(word)
        return self.values.get(word, word)


def _call_in_macro(found: re.Match[str]) -> str:
    more = f"{TW})" if found[3] else f"{TW}, "
    return f"{copy_of(found[1])}{found[2] or ''}({more}"

"""The arrays that a kernel's buffers lie in: the model's own, one of weights, others of values.

Input: loops, and for buffers outside of the model's own array the name of theirs.  Output: the text
of elements and declarations.  Each array consists of words, or of vectors of four.  Where values
lie is decided in memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.kernel.loops import TileFn
from tilewright.targets.gpu.vectors import stored_singly, vectors

#: The model's own array; the one of a bank, which is only read.
MEMORY, WEIGHTS = "memory", "weights"
#: Bindings: the step's numbers are 1, and annexes come after the bank.
BINDING, FIRST = {MEMORY: 0, WEIGHTS: 2}, 3
#: Annexes of one dispatch: every device binds eight buffers to a kernel, with the other two.
MOST = 6


def annex(number: int) -> str:
    """The name of the array with the annex that a dispatch binds as its `number`-th, from 0 on."""
    return f"annex{number}"


class Arrays:
    """wide: names of those that consist of vectors of four: some element is read or written in
    vectors, and none is stored singly, since who writes to one may touch the whole vector."""

    def __init__(self, fn: TileFn, apart: Mapping[int, str]) -> None:
        """apart: by the numbers of buffers, the names of their arrays; `memory` for others"""
        self._of = [apart.get(n, MEMORY) for n in range(len(fn.buffers))]
        read = {self._of[n] for n in vectors(fn.body) if n < len(fn.buffers)}
        self.wide = frozenset(read - {self._of[n] for n in stored_singly(fn)})
        self._names = sorted({MEMORY, *self._of}, key=_binding)

    def word(self, buffer: int, word: str, lanes: int) -> str:
        """A word of the array that a buffer lies in, or the vector of words that has it."""
        name = self._of[buffer]
        if lanes > 1 and name not in self.wide:
            return f"{_four(name)}({word})"
        return entry(name, word, name in self.wide, lanes)

    def declared(self) -> list[str]:
        return [self._declared(name) for name in self._names]

    def functions(self, text: str) -> list[str]:
        """Those that the text calls, of arrays that consist of words."""
        return [FOUR.format(_four(name), name) for name in self._names if f"{_four(name)}(" in text]

    def _declared(self, name: str) -> str:
        kind = "vec4<u32>" if name in self.wide else "u32"
        access = "read" if name == WEIGHTS else "read_write"
        return f"@group(0) @binding({_binding(name)}) var<storage, {access}> {name}: array<{kind}>;"


def entry(array: str, at: str, wide: bool, lanes: int) -> str:
    """An element of an array of elements or, if it is wide, of vectors of 4; or a whole vector."""
    if not wide:
        return f"{array}[{at}]"
    return f"{array}[({at}) >> 2u]" + ("" if lanes > 1 else f"[({at}) & 3u]")


#: The whole vector with a word, of an array that consists of words.
FOUR = """\
fn {0}(word: u32) -> vec4<u32> {{
  let n = word & 0xfffffffcu;
  return vec4<u32>({1}[n], {1}[n + 1u], {1}[n + 2u], {1}[n + 3u]);
}}"""


def _four(name: str) -> str:
    return "four" if name == MEMORY else f"four_{name}"


def _binding(name: str) -> int:
    return BINDING[name] if name in BINDING else FIRST + int(name.removeprefix("annex"))

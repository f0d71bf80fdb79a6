"""The storage arrays that a WGSL kernel declares, and the text that reads and writes them.

Input: loops, and the array names of buffers outside the model's own array.  Output: declarations
and elements as text.  Arrays of words and of vectors of four words look like this:

    @group(0) @binding(0) var<storage, read_write> memory: array<u32>;
    @group(0) @binding(2) var<storage, read> weights: array<vec4<u32>>;
    @group(0) @binding(3) var<storage, read_write> annex0: array<u32>;

targets/gpu/memory/memory_layout.py decides which value is stored in which array.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.kernel.loops import TileFn
from tilewright.targets.gpu.vector_buffers import stored_singly, vectors

#: The model's own array; the array of a bank, which is read-only.
MEMORY, WEIGHTS = "memory", "weights"
#: Bindings.  Binding 1 has the step's numbers; annexes come after the bank, from `FIRST` on.
BINDING, FIRST = {MEMORY: 0, WEIGHTS: 2}, 3
#: The most annexes of one dispatch: every device can bind eight buffers, and two are taken.
MOST = 6


def annex(number: int) -> str:
    """The array name of the annex that a dispatch binds as number `number`, counted from 0."""
    return f"annex{number}"


class Arrays:
    """The arrays of one kernel.

    wide: names of arrays of vectors of four: some element is accessed as a vector, and no element
          is stored alone, since a store to one element may touch the whole vector
    """

    def __init__(self, fn: TileFn, apart: Mapping[int, str]) -> None:
        """apart: array names of buffers, by buffer number; all others are in `memory`"""
        self._of = [apart.get(n, MEMORY) for n in range(len(fn.buffers))]
        read = {self._of[n] for n in vectors(fn.body) if n < len(fn.buffers)}
        self.wide = frozenset(read - {self._of[n] for n in stored_singly(fn)})
        self._names = sorted({MEMORY, *self._of}, key=_binding)

    def word(self, buffer: int, word: str, lanes: int) -> str:
        """A word of a buffer's array, or the vector of words that begins there."""
        name = self._of[buffer]
        if lanes > 1 and name not in self.wide:
            return f"{_four(name)}({word})"
        return entry(name, word, name in self.wide, lanes)

    def declared(self) -> list[str]:
        """The declarations of all arrays, that of `memory` first."""
        return [self._declared(name) for name in self._names]

    def functions(self, text: str) -> list[str]:
        """The accessor functions that the text calls, for arrays of words."""
        return [FOUR.format(_four(name), name) for name in self._names if f"{_four(name)}(" in text]

    def _declared(self, name: str) -> str:
        kind = "vec4<u32>" if name in self.wide else "u32"
        access = "read" if name == WEIGHTS else "read_write"
        return f"@group(0) @binding({_binding(name)}) var<storage, {access}> {name}: array<{kind}>;"


def entry(array: str, at: str, wide: bool, lanes: int) -> str:
    """The text of one element, or of the whole vector if `lanes` > 1.

    wide: the array has vectors of four elements, not single ones
    """
    if not wide:
        return f"{array}[{at}]"
    return f"{array}[({at}) >> 2u]" + ("" if lanes > 1 else f"[({at}) & 3u]")


#: A function that reads from an array of words the aligned four words that contain `word`.
FOUR = """\
fn {0}(word: u32) -> vec4<u32> {{
  let n = word & 0xfffffffcu;
  return vec4<u32>({1}[n], {1}[n + 1u], {1}[n + 2u], {1}[n + 3u]);
}}"""


def _four(name: str) -> str:
    return "four" if name == MEMORY else f"four_{name}"


def _binding(name: str) -> int:
    return BINDING[name] if name in BINDING else FIRST + int(name.removeprefix("annex"))

"""Dependencies of steps, from the ranges of values that they read and write.

Input: the accesses of each step in order, as ranges of elements.  Output: for each step the earlier
ones that it conflicts with directly.  Nearly linear in the number of accesses.  It does not see
addresses: code that lets values share memory must add those dependencies.

    0: writes t    1: reads t, writes u    2: writes t    ->    (), (0,), (1,)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: A value, and the elements [begin, end) of it.
Range = tuple[int, int, int]


@dataclass
class _Part:
    """The elements [begin, end) of a value: the step that wrote them last, and reads since."""

    end: int
    writer: int | None
    readers: list[int] = field(default_factory=list)


class _Value:
    """The parts of a value, by their first element; they do not overlap."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.parts: dict[int, _Part] = {}

    def cut(self, at: int) -> None:
        """Splits the part around `at`, if there is one, so that a part begins there."""
        place = bisect_right(self.begins, at) - 1
        if place < 0:
            return
        begin = self.begins[place]
        part = self.parts[begin]
        if begin < at < part.end:
            self.parts[at] = _Part(part.end, part.writer, list(part.readers))
            part.end = at
            insort(self.begins, at)

    def within(self, begin: int, end: int) -> list[int]:
        """The first elements of all parts in [begin, end), after splitting parts at its ends."""
        self.cut(begin)
        self.cut(end)
        return self.begins[bisect_left(self.begins, begin) : bisect_left(self.begins, end)]

    def read(self, step: int, begin: int, end: int) -> Iterable[int]:
        at = begin
        for start in self.within(begin, end):
            self._gap(step, at, start)
            part = self.parts[start]
            if part.writer is not None:
                yield part.writer
            part.readers.append(step)
            at = part.end
        self._gap(step, at, end)

    def _gap(self, step: int, begin: int, end: int) -> None:
        """A range without a writer: its contents are from before the run."""
        if begin < end:
            insort(self.begins, begin)
            self.parts[begin] = _Part(end, None, [step])

    def write(self, step: int, begin: int, end: int) -> Iterable[int]:
        for start in self.within(begin, end):
            part = self.parts.pop(start)
            yield from part.readers or ([] if part.writer is None else [part.writer])
        first = bisect_left(self.begins, begin)
        self.begins[first : bisect_left(self.begins, end)] = [begin]
        self.parts[begin] = _Part(end, step)


def dependencies(
    steps: Sequence[tuple[Range, Sequence[Range]]],
) -> tuple[tuple[int, ...], ...]:
    """For each step (write, reads): the earlier steps that it must wait for, ascending."""
    values: defaultdict[int, _Value] = defaultdict(_Value)
    found: list[tuple[int, ...]] = []
    for number, (write, reads) in enumerate(steps):
        after: set[int] = set()
        for value, begin, end in reads:
            after.update(values[value].read(number, begin, end))
        value, begin, end = write
        after.update(values[value].write(number, begin, end))
        after.discard(number)
        found.append(tuple(sorted(after)))
    return tuple(found)

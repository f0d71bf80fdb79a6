"""The protocol by which workers of a kernel take, leave and resume tiles, in all interleavings.

Input: numbers of workers, tiles, chunks and launches.  Output: what can go wrong, or how many
states there are.  It is a model of `TURNS` in targets/turns.py (docs/elastic-form.md): each
step is one access to shared memory, and between two steps any other worker, or the one who changes
the budget, may do any number of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

FREE, SAVED, TAKEN = range(3)
NONE = 99
#: Mistakes that can be put into the model, to see that they are found.
Mistake = Literal[
    "",
    "frees the slot before it has read the registers",
    "does not wait for its own slot",
    "forgets the ticket that was drawn ahead",
    "takes a slot without comparing",
]


@dataclass(frozen=True)
class Slot:
    state: int = FREE
    tile: int = 0
    chunk: int = 0
    following: int = NONE
    registers: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Worker:
    """at: the next step;  then: where to go on after a look for tiles that were left
    done: tiles that it has stored and not yet counted"""

    at: str = "begin"
    done: int = 0
    tile: int = -1
    chunk: int = 0
    slot: int = 0
    following: int = NONE
    scanned: int = 0
    then: str = ""
    must_go: bool = False
    registers: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Kernel:
    """computed: by tile, chunks that were;  writes: how often the budget may still change"""

    workers: tuple[Worker, ...]
    slots: tuple[Slot, ...]
    budget: int
    computed: tuple[int, ...]
    launch: int = 1
    writes: int = 0
    ticket: int = 0
    done: int = 0
    left: int = 0


class Wrong(Exception):
    """The protocol fails, with the steps that led there."""


@dataclass(frozen=True)
class Model:
    """launches: of which all but the last may be disturbed, each by one write of each `lower`"""

    workers: int
    tiles: int
    chunks: int
    launches: int = 2
    lower: tuple[int, ...] = (0,)
    mistake: Mistake = ""

    def explore(self) -> int:
        """All states that can be reached.  Raises Wrong."""
        first = self._launched(
            Kernel((), (Slot(),) * self.workers, self.workers, (0,) * self.tiles)
        )
        came: dict[Kernel, tuple[Kernel | None, str]] = {first: (None, "begin")}
        open_states = [first]
        while open_states:
            state = open_states.pop()
            try:
                following = list(self._steps(state))
            except AssertionError as error:
                raise Wrong(f"{error}: {' · '.join(_path(came, state))}") from None
            for name, after in following:
                if after not in came:
                    came[after] = state, name
                    open_states.append(after)
            if not following:
                try:
                    self._check_end(state)
                except AssertionError as error:
                    raise Wrong(f"{error}: {' · '.join(_path(came, state))}") from None
        return len(came)

    def _launched(self, state: Kernel) -> Kernel:
        last = state.launch == self.launches
        return replace(
            state,
            workers=tuple(Worker() for _ in range(self.workers)),
            budget=self.workers,
            writes=0 if last else 1,
        )

    def _check_end(self, state: Kernel) -> None:
        assert all(w.at == "end" for w in state.workers), "workers wait for ever"
        assert state.done == self.tiles, f"{state.done} tiles of {self.tiles} are done"
        assert state.computed == (self.chunks,) * self.tiles, "a chunk is missing"
        assert all(slot.state == FREE for slot in state.slots), "a slot stays taken"

    def _steps(self, state: Kernel) -> Iterator[tuple[str, Kernel]]:
        if all(w.at == "end" for w in state.workers):
            if state.launch < self.launches:
                yield "launch", self._launched(replace(state, launch=state.launch + 1))
            return
        for number, worker in enumerate(state.workers):
            if worker.at == "end":
                continue
            if worker.at == "wait" and state.slots[number].state != FREE:
                continue
            after = getattr(self, f"_{worker.at}")(state, number, worker)
            yield f"{number} {worker.at}", after
        if state.writes:
            for budget in self.lower:
                yield f"budget {budget}", replace(state, budget=budget, writes=0)

    def _begin(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(state, n, w, at="end" if n >= state.budget else "see_left", then="first_ticket")

    def _see_left(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(state, n, w, at="scan" if state.left > 0 else w.then, scanned=0)

    def _scan(self, state: Kernel, n: int, w: Worker) -> Kernel:
        if w.scanned == self.workers:
            return _to(state, n, w, at=w.then)
        slot = (n + w.scanned) % self.workers
        saved = state.slots[slot].state == SAVED
        return _to(state, n, w, at="take" if saved else "scan", slot=slot,
                   scanned=w.scanned + (not saved))  # fmt: skip

    def _take(self, state: Kernel, n: int, w: Worker) -> Kernel:
        if state.slots[w.slot].state != SAVED and not self._has("takes a slot without comparing"):
            return _to(state, n, w, at="scan", scanned=w.scanned + 1)
        return _to(_slot(state, w.slot, state_=TAKEN), n, w, at="count_taken")

    def _count_taken(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(replace(state, left=state.left - 1), n, w, at="read_slot")

    def _read_slot(self, state: Kernel, n: int, w: Worker) -> Kernel:
        slot = state.slots[w.slot]
        return _to(state, n, w, tile=slot.tile, chunk=slot.chunk, following=slot.following,
                   registers=(slot.tile, 0),
                   at="draw_ahead" if slot.chunk else "free_whole")  # fmt: skip

    def _free_whole(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(_slot(state, w.slot, state_=FREE), n, w, at="draw_ahead")

    def _first_ticket(self, state: Kernel, n: int, w: Worker) -> Kernel:
        found = state.ticket < self.tiles
        return _to(replace(state, ticket=state.ticket + 1), n, w, tile=state.ticket, chunk=0,
                   registers=(state.ticket, 0), at="draw_ahead" if found else "end")  # fmt: skip

    def _draw_ahead(self, state: Kernel, n: int, w: Worker) -> Kernel:
        early = self._has("frees the slot before it has read the registers")
        at = ("free" if early else "restore") if w.chunk else "look"
        if w.following != NONE:
            return _to(state, n, w, at=at)
        return _to(replace(state, ticket=state.ticket + 1), n, w, following=state.ticket, at=at)

    def _restore(self, state: Kernel, n: int, w: Worker) -> Kernel:
        early = self._has("frees the slot before it has read the registers")
        return _to(state, n, w, registers=state.slots[w.slot].registers,
                   at="look" if early else "free")  # fmt: skip

    def _free(self, state: Kernel, n: int, w: Worker) -> Kernel:
        early = self._has("frees the slot before it has read the registers")
        return _to(_slot(state, w.slot, state_=FREE), n, w, at="restore" if early else "look")

    def _look(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(state, n, w, must_go=n >= state.budget, at="compute")

    def _compute(self, state: Kernel, n: int, w: Worker) -> Kernel:
        assert w.registers == (w.tile, w.chunk), f"{w.registers} at chunk {w.chunk} of {w.tile}"
        assert state.computed[w.tile] == w.chunk, f"chunk {w.chunk} of tile {w.tile} twice"
        computed = list(state.computed)
        computed[w.tile] += 1
        last = w.chunk + 1 == self.chunks
        goes = w.must_go and not last
        waits = "save" if self._has("does not wait for its own slot") else "wait"
        at = waits if goes else "next_task" if last else "look"
        return _to(replace(state, computed=tuple(computed)), n, w, at=at, chunk=w.chunk + 1,
                   registers=(w.tile, w.chunk + 1))  # fmt: skip

    def _wait(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(state, n, w, at="save")

    def _save(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(_slot(state, n, registers=w.registers), n, w, at="describe")

    def _describe(self, state: Kernel, n: int, w: Worker) -> Kernel:
        forgets = self._has("forgets the ticket that was drawn ahead")
        following = NONE if forgets else w.following
        described = _slot(state, n, tile=w.tile, chunk=w.chunk, following=following)
        return _to(described, n, w, at="count_left")

    def _count_left(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(replace(state, left=state.left + 1), n, w, at="publish")

    def _publish(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(_slot(state, n, state_=SAVED), n, w, at="count_done" if w.done else "end")

    def _next_task(self, state: Kernel, n: int, w: Worker) -> Kernel:
        if w.following < self.tiles:
            return _to(state, n, w, tile=w.following, chunk=0, following=NONE, done=w.done + 1,
                       registers=(w.following, 0), at="draw_ahead")  # fmt: skip
        return _to(state, n, w, following=NONE, done=w.done + 1, at="see_left", then="count_done")

    def _count_done(self, state: Kernel, n: int, w: Worker) -> Kernel:
        return _to(replace(state, done=state.done + w.done), n, w, done=0, at="end")

    def _has(self, mistake: Mistake) -> bool:
        return self.mistake == mistake


def _to(state: Kernel, number: int, worker: Worker, **changes: object) -> Kernel:
    workers = list(state.workers)
    workers[number] = replace(worker, **changes)  # type: ignore[arg-type]
    return replace(state, workers=tuple(workers))


def _slot(state: Kernel, number: int, **changes: object) -> Kernel:
    if "state_" in changes:
        changes["state"] = changes.pop("state_")
    slots = list(state.slots)
    slots[number] = replace(slots[number], **changes)  # type: ignore[arg-type]
    return replace(state, slots=tuple(slots))


def _path(came: dict[Kernel, tuple[Kernel | None, str]], state: Kernel) -> list[str]:
    names = []
    at: Kernel | None = state
    while at is not None:
        at, name = came[at]
        names.append(name)
    return names[::-1]

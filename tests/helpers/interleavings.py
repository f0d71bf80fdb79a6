"""The protocol by which workers of a kernel take, leave and resume tiles, in all interleavings.

Input: numbers of workers, tiles, chunks and launches.  Output: what can go wrong, or how many
states there are.  It is a model of `TURNS` in targets/ticket_protocol.py (docs/elastic-form.md):
each step is one access to shared memory, and between two steps any other worker, or the one who
changes the budget, may do any number of theirs.  The budget is read together with another word that
its writer does not touch: whatever comes between the two could as well come before or after both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

FREE, SAVED, TAKEN = range(3)
NONE = 99
#: Mistakes that can be put into the model, to see that they are found.
Mistake = Literal[
    "",
    "frees the area before it has read the registers",
    "does not wait for its own area",
    "forgets the ticket that was drawn ahead",
    "takes an area without comparing",
    "claims without comparing",
    "keeps the claim that it does not need",
    "gives back nothing instead of the older claim",
    "does not look for first tiles",
    "asks nobody though workers are missing",
    "asks nobody after a tile that was left",
    "one tile too few draws a ticket",
]


class SaveArea(NamedTuple):
    state: int = FREE
    tile: int = 0
    chunk: int = 0
    following: int = NONE
    registers: tuple[int, int] = (0, 0)


class Worker(NamedTuple):
    """at: the next step;  then: where to go on after a look for tiles that were left
    done: tiles that it has stored and not yet counted
    older: what its claim was before its own, which it has not used yet; NONE: no such claim
    budget: the least since the tile began; 0: somebody was sent away while it worked, or a tile
            was left, so it asks before it goes
    asked, flying: the budget as its last answer said; the answer that is on its way, or -1"""

    at: str = "begin"
    done: int = 0
    tile: int = -1
    chunk: int = 0
    area: int = 0
    following: int = NONE
    scanned: int = 0
    then: str = ""
    must_go: bool = False
    registers: tuple[int, int] = (0, 0)
    older: int = NONE
    budget: int = 1
    asked: int = NONE
    flying: int = -1


class Words(NamedTuple):
    """Of a kernel.  computed: by tile, chunks that were"""

    computed: tuple[int, ...]
    ticket: int = 0
    done: int = 0
    left: int = 0
    claimed: int = 0


class State(NamedTuple):
    """kernel: the one that runs;  launch: round of launches of all kernels
    writes: how often the budget may still change"""

    workers: tuple[Worker, ...]
    areas: tuple[SaveArea, ...]
    claims: tuple[int, ...]
    words: tuple[Words, ...]
    budget: int
    kernel: int = 0
    launch: int = 1
    writes: int = 0

    @property
    def own(self) -> Words:
        return self.words[self.kernel]


class Wrong(Exception):
    """The protocol fails, with the steps that led there."""


@dataclass(frozen=True)
class Model:
    """launches: of which all but the last may be disturbed, each by writes of each `lower`
    writes:   how many; between them everybody may stay again
    blocks:   by launch, how many workers come; all where it says nothing
    kernels:  each launch is one of each, one after the other
    patient:  a worker that nobody disturbed goes by the budget as it was when its tile began
    A kernel of one chunk is left between tiles alone."""

    workers: int
    tiles: int
    chunks: int
    launches: int = 2
    lower: tuple[int, ...] = (0,)
    blocks: tuple[int, ...] = ()
    kernels: int = 1
    writes: int = 1
    patient: bool = False
    mistake: Mistake = ""

    def explore(self) -> int:
        """All states that can be reached.  Raises Wrong."""
        words = (Words((0,) * self.tiles),) * self.kernels
        areas, claims = (SaveArea(),) * self.workers, (0,) * self.workers
        first = self._launched(State((), areas, claims, words, 0))
        came: dict[State, tuple[State | None, str]] = {first: (None, "begin")}
        open_states = [first]
        while open_states:
            state = open_states.pop()
            try:
                following = list(self._steps(state))
                if not following:
                    self._check_end(state)
            except AssertionError as error:
                raise Wrong(f"{error}: {' · '.join(_path(came, state))}") from None
            for name, after in following:
                if after not in came:
                    came[after] = state, name
                    open_states.append(after)
        return len(came)

    @property
    def _firsts(self) -> int:
        return min(self.tiles, self.workers)

    def _came(self, state: State) -> int:
        return dict(enumerate(self.blocks, 1)).get(state.launch, self.workers)

    def _launched(self, state: State) -> State:
        last = state.launch == self.launches
        if state.kernel == 0:
            state = state._replace(budget=self.workers, writes=0 if last else self.writes)
        return state._replace(workers=(Worker(),) * self._came(state))

    def _check_end(self, state: State) -> None:
        assert all(w.at == "end" for w in state.workers), "workers wait for ever"
        for words in state.words:
            assert words.done == self.tiles, f"{words.done} tiles of {self.tiles} are done"
            assert words.computed == (self.chunks,) * self.tiles, "a chunk is missing"
        assert all(area.state == FREE for area in state.areas), "an area stays taken"

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        if all(w.at == "end" for w in state.workers):
            if state.kernel + 1 < self.kernels:
                yield "kernel", self._launched(state._replace(kernel=state.kernel + 1))
            elif state.launch < self.launches:
                again = state._replace(kernel=0, launch=state.launch + 1)
                yield "launch", self._launched(again)
            return
        for number, worker in enumerate(state.workers):
            if worker.at == "end":
                continue
            if worker.at == "wait" and state.areas[number].state != FREE:
                continue
            if worker.flying >= 0:
                arrived = worker._replace(asked=worker.flying, flying=-1)
                yield f"{number} arrives", _to(state, number, arrived)
            after = getattr(self, f"_{worker.at}")(state, number, worker)
            yield f"{number} {worker.at}", after
        if state.writes:
            for budget in {*self.lower, *([self.workers] if self.writes > 1 else [])}:
                after = state._replace(budget=budget, writes=state.writes - 1)
                yield f"budget {budget}", after

    # ---- the first task

    def _begin(self, state: State, n: int, w: Worker) -> State:
        before = state.words[state.kernel - 1].done if state.kernel else self.tiles
        must_go = before < self.tiles or n >= state.budget
        if n >= self._firsts or state.claims[n] > state.kernel:
            return _to(state, n, w, at="end" if must_go else "see_left", then="first_ticket")
        at, older = "give_back" if must_go else "see_left", state.claims[n]
        return _to(_claimed(state, n, state.kernel + 1), n, w, at=at, older=older,
                   must_go=must_go, then="count_claim")  # fmt: skip

    def _give_back(self, state: State, n: int, w: Worker) -> State:
        """It goes, or goes on with a tile that was left."""
        older = 0 if self._has("gives back nothing instead of the older claim") else w.older
        if not self._has("keeps the claim that it does not need"):
            state = _claimed(state, n, older)
        return _to(state, n, w, older=NONE, at="end" if w.must_go else "draw_ahead")

    def _count_claim(self, state: State, n: int, w: Worker) -> State:
        """The first tile is its own, or that of a worker that has not come."""
        tile = n if w.older != NONE else w.tile
        return _to(_words(state, claimed=state.own.claimed + 1), n, w, at="draw_ahead",
                   tile=tile, chunk=0, registers=(tile, 0), older=NONE, scanned=0)  # fmt: skip

    def _first_ticket(self, state: State, n: int, w: Worker) -> State:
        if self._firsts == self.tiles:
            return self._see_claims(state, n, w)
        ticket, tile = state.own.ticket, self._firsts + state.own.ticket
        drawn = _words(state, ticket=ticket + 1)
        if tile >= self.tiles:
            return _to(drawn, n, w, following=ticket, at="see_claims")
        return _to(drawn, n, w, tile=tile, chunk=0, registers=(tile, 0), at="draw_ahead")

    def _see_claims(self, state: State, n: int, w: Worker) -> State:
        """Also between two claims."""
        over = state.own.claimed >= self._firsts or w.scanned == self._firsts
        if over or n >= state.budget or self._has("does not look for first tiles"):
            return _to(state, n, w, at="count_done" if w.done else "end")
        return _to(state, n, w, at="claim")

    def _claim(self, state: State, n: int, w: Worker) -> State:
        tile = (n + w.scanned) % self._firsts
        if state.claims[tile] > state.kernel and not self._has("claims without comparing"):
            return _to(state, n, w, at="see_claims", scanned=w.scanned + 1)
        claimed = _claimed(state, tile, max(state.claims[tile], state.kernel + 1))
        return _to(claimed, n, w, tile=tile, at="count_claim")

    # ---- tiles that were left

    def _see_left(self, state: State, n: int, w: Worker) -> State:
        return _to(state, n, w, at="scan" if state.own.left > 0 else w.then, scanned=0)

    def _scan(self, state: State, n: int, w: Worker) -> State:
        area = (n + w.scanned) % self.workers
        saved = state.areas[area].state == SAVED
        return _to(state, n, w, at="take" if saved else "look_on", area=area,
                   scanned=w.scanned + 1)  # fmt: skip

    def _look_on(self, state: State, n: int, w: Worker) -> State:
        """The count and the budget are read before it is known whether the area could be taken;
        that one is taken between them changes nothing."""
        over = state.own.left <= 0 or w.scanned == self.workers
        if n < state.budget and not over:
            return _to(state, n, w, at="scan")
        return _to(state, n, w, at="found_nothing", scanned=0)

    def _found_nothing(self, state: State, n: int, w: Worker) -> State:
        """In its first task it asks for the budget again; later `see_claims` does."""
        must_go = n >= state.budget and not w.done
        if must_go:
            return _to(state, n, w, at="end" if w.older == NONE else "give_back", must_go=True)
        return _to(state, n, w, at=w.then)

    def _take(self, state: State, n: int, w: Worker) -> State:
        if state.areas[w.area].state != SAVED and not self._has("takes an area without comparing"):
            return _to(state, n, w, at="look_on")
        return _to(_area(state, w.area, state=TAKEN), n, w, at="count_taken", scanned=0)

    def _count_taken(self, state: State, n: int, w: Worker) -> State:
        return _to(_words(state, left=state.own.left - 1), n, w, at="read_slot")

    def _read_slot(self, state: State, n: int, w: Worker) -> State:
        area = state.areas[w.area]
        asks = not self._has("asks nobody after a tile that was left")
        after = "draw_ahead" if w.older == NONE else "give_back"
        return _to(state, n, w, tile=area.tile, chunk=area.chunk, following=area.following,
                   registers=(area.tile, 0), budget=0 if asks else 1, then=after,
                   at=after if area.chunk else "free_whole")  # fmt: skip

    def _free_whole(self, state: State, n: int, w: Worker) -> State:
        return _to(_area(state, w.area, state=FREE), n, w, at=w.then)

    # ---- a tile

    def _draw_ahead(self, state: State, n: int, w: Worker) -> State:
        early = self._has("frees the area before it has read the registers")
        whole = "look" if self.chunks > 1 else "compute"
        at = ("free" if early else "restore") if w.chunk else whole
        budget = state.budget if w.budget else 0
        beyond = self._firsts + self._has("one tile too few draws a ticket")
        if w.following == NONE and w.tile + beyond < self.tiles:
            drawn = _words(state, ticket=state.own.ticket + 1)
            return _to(drawn, n, w, following=state.own.ticket, at=at, budget=budget)
        return _to(state, n, w, at=at, budget=budget)

    def _restore(self, state: State, n: int, w: Worker) -> State:
        early = self._has("frees the area before it has read the registers")
        return _to(state, n, w, registers=state.areas[w.area].registers,
                   at="look" if early else "free")  # fmt: skip

    def _free(self, state: State, n: int, w: Worker) -> State:
        early = self._has("frees the area before it has read the registers")
        return _to(_area(state, w.area, state=FREE), n, w, at="restore" if early else "look")

    def _look(self, state: State, n: int, w: Worker) -> State:
        """It asks; the answer may come after the chunk's end, or in a later tile."""
        flying = state.budget if w.flying < 0 else w.flying
        return _to(state, n, w, flying=flying, at="compute")

    def _compute(self, state: State, n: int, w: Worker) -> State:
        computed = list(state.own.computed)
        assert w.registers == (w.tile, w.chunk), f"{w.registers} at chunk {w.chunk} of {w.tile}"
        assert computed[w.tile] == w.chunk, f"chunk {w.chunk} of tile {w.tile} twice"
        computed[w.tile] += 1
        last = w.chunk + 1 == self.chunks
        w = w._replace(budget=min(w.budget, w.asked))
        goes = n >= w.asked and not last
        waits = "save" if self._has("does not wait for its own area") else "wait"
        at = waits if goes else "next_task" if last else "look"
        return _to(_words(state, computed=tuple(computed)), n, w, at=at, chunk=w.chunk + 1,
                   registers=(w.tile, w.chunk + 1))  # fmt: skip

    # ---- it leaves the tile, or the next one

    def _wait(self, state: State, n: int, w: Worker) -> State:
        return _to(state, n, w, at="save")

    def _save(self, state: State, n: int, w: Worker) -> State:
        return _to(_area(state, n, registers=w.registers), n, w, at="describe")

    def _describe(self, state: State, n: int, w: Worker) -> State:
        forgets = self._has("forgets the ticket that was drawn ahead")
        following = NONE if forgets else w.following
        described = _area(state, n, tile=w.tile, chunk=w.chunk, following=following)
        return _to(described, n, w, at="count_left")

    def _count_left(self, state: State, n: int, w: Worker) -> State:
        return _to(_words(state, left=state.own.left + 1), n, w, at="publish")

    def _publish(self, state: State, n: int, w: Worker) -> State:
        return _to(_area(state, n, state=SAVED), n, w, at="count_done" if w.done else "end")

    # ---- the next task

    def _next_task(self, state: State, n: int, w: Worker) -> State:
        w = w._replace(done=w.done + 1, budget=w.budget if w.budget >= self._firsts else 0)
        following = self._firsts + w.following
        if following < self.tiles:
            w = w._replace(tile=following, chunk=0, following=NONE, registers=(following, 0))
            goes = self._asks(w) and n >= state.budget
            return _to(state, n, w, at="wait" if goes else "draw_ahead")
        there = self._came(state) >= self._firsts
        there = there or self._has("asks nobody though workers are missing")
        if w.budget >= self._firsts and there:
            return _to(state, n, w, at="count_done")
        goes = self._asks(w) and n >= state.budget
        return _to(state, n, w, at="count_done" if goes else "see_left", then="see_claims")

    def _asks(self, w: Worker) -> bool:
        return w.budget == 0 or (self.chunks == 1 and not self.patient)

    def _count_done(self, state: State, n: int, w: Worker) -> State:
        return _to(_words(state, done=state.own.done + w.done), n, w, done=0, at="end")

    def _has(self, mistake: Mistake) -> bool:
        return self.mistake == mistake


def _to(state: State, number: int, worker: Worker, **changes: Any) -> State:
    workers = list(state.workers)
    after = worker._replace(**changes)
    # what a worker that has ended knew makes no other state
    workers[number] = Worker("end") if after.at == "end" else after
    return state._replace(workers=tuple(workers))


def _area(before: State, number: int, **changes: Any) -> State:
    areas = list(before.areas)
    areas[number] = areas[number]._replace(**changes)
    return before._replace(areas=tuple(areas))


def _claimed(state: State, number: int, value: int) -> State:
    claims = list(state.claims)
    claims[number] = value
    return state._replace(claims=tuple(claims))


def _words(state: State, **changes: Any) -> State:
    words = list(state.words)
    words[state.kernel] = state.own._replace(**changes)
    return state._replace(words=tuple(words))


def _path(came: dict[State, tuple[State | None, str]], state: State) -> list[str]:
    names = []
    at: State | None = state
    while at is not None:
        at, name = came[at]
        names.append(name)
    return names[::-1]

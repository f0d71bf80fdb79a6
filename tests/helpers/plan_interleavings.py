"""The protocol of one kernel with all steps of a plan (`PLAN` in targets/turns.py), as
interleavings.py has that of one step.

Input: numbers of workers, steps, tiles, chunks and launches.  Output: what can go wrong, or how
many states there are.  Within a step workers do what they do there; what is new is how they go on
from step to step, wait, and go.  Who waits looks for ever, so it is also checked that the end can
be reached from each state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from helpers.interleavings import FREE, NONE, Kernel, Model, Slot, Worker, Wrong, path, to

PlanMistake = Literal[
    "does not look for what was left while it waits",
    "goes on when all tiles are taken",
    "leaves the words of a launch as they are",
]


@dataclass(frozen=True)
class StepWorker(Worker):
    """at, at first: it looks for a step;  step: of the plan;  last: the one that it was in
    everybody: the budget sends nobody away
    """

    at: str = "see_complete"
    step: int = 0
    last: int = -1
    everybody: bool = False


@dataclass(frozen=True)
class Plan(Kernel):
    """words: of each step: ticket, tiles done, tiles left;  computed: of all steps in a row"""

    words: tuple[tuple[int, int, int], ...] = ()
    complete: int = 0
    gone: int = 0
    ended: int = 0


@dataclass(frozen=True)
class PlanModel(Model):
    """writes: of budgets in each launch but the last one
    mistake: also a `PlanMistake`
    """

    steps: int = 2
    writes: int = 2
    mistake: Any = ""

    def explore(self) -> int:
        """Raises Wrong also for a state from which the end cannot be reached."""
        empty = Plan((), (Slot(),) * self.workers, self.workers,
                     (0,) * (self.tiles * self.steps), words=((0, 0, 0),) * self.steps)  # fmt: skip
        first = self._launched(empty)
        came: dict[Kernel, tuple[Kernel | None, str]] = {first: (None, "begin")}
        before: dict[Kernel, list[Kernel]] = {}
        open_states, ends = [first], list[Kernel]()
        while open_states:
            state = open_states.pop()
            try:
                following = list(self._steps(state))
                if not following:
                    self._check_end(state)
                    ends.append(state)
            except AssertionError as error:
                raise Wrong(f"{error}: {' · '.join(path(came, state))}") from None
            for name, after in following:
                before.setdefault(after, []).append(state)
                if after not in came:
                    came[after] = state, name
                    open_states.append(after)
        reach = set(ends)
        while ends:
            new = [state for state in before.get(ends.pop(), ()) if state not in reach]
            reach.update(new)
            ends += new
        for state in came:
            if state not in reach:
                raise Wrong(f"workers wait for ever: {' · '.join(path(came, state))}")
        return len(came)

    def _launched(self, state: Kernel) -> Kernel:
        last = state.launch == self.launches
        workers = tuple(StepWorker() for _ in range(self.workers))
        return replace(super()._launched(state), workers=workers, writes=0 if last else self.writes)

    def _check_end(self, state: Kernel) -> None:
        assert isinstance(state, Plan)
        assert all(w.at == "end" for w in state.workers), "workers wait for ever"
        assert state.complete == self.steps, f"{state.complete} steps are complete"
        assert set(state.computed) == {self.chunks}, "a chunk is missing"
        assert all(slot.state == FREE for slot in state.slots), "a slot stays taken"

    def _steps(self, state: Kernel) -> Iterator[tuple[str, Kernel]]:
        assert isinstance(state, Plan)
        if all(w.at == "end" for w in state.workers):
            if state.launch < self.launches:
                yield "launch", self._launched(replace(state, launch=state.launch + 1))
            return
        for number, worker in enumerate(state.workers):
            if worker.at == "end" or (worker.at == "wait" and state.slots[number].state != FREE):
                continue
            yield f"{number} {worker.at}", self._stepped(state, number, worker)
        if state.writes:
            for budget in self.lower:
                if budget != state.budget:
                    yield f"budget {budget}", replace(state, budget=budget, writes=state.writes - 1)

    def _stepped(self, state: Plan, n: int, w: Worker) -> Kernel:
        assert isinstance(w, StepWorker)
        if hasattr(self, f"_plan_{w.at}"):
            found: Kernel = getattr(self, f"_plan_{w.at}")(state, n, w)
            return found
        # within a step: the words of that step stand for those of a kernel
        begin, end = w.step * self.tiles, (w.step + 1) * self.tiles
        ticket, done, left = state.words[w.step]
        own = state.computed[begin:end]
        if w.at == "compute":
            before = state.computed[:begin]
            assert set(before) <= {self.chunks}, "a step begins before the one before it is done"
        view = replace(state, computed=own, ticket=ticket, done=done, left=left)
        after = getattr(self, f"_{w.at}")(view, n, w)
        words = list(state.words)
        # a ticket beyond the last tile is as good as any other
        words[w.step] = min(after.ticket, self.tiles), after.done, after.left
        finished = w.at == "finish" and after.done == self.tiles
        exhausted = w.at == "first_ticket" and after.workers[n].at == "end"
        early = self._has("goes on when all tiles are taken") and exhausted
        after = replace(
            after, words=tuple(words), ticket=0, done=0, left=0,
            computed=state.computed[:begin] + after.computed + state.computed[end:],
        )  # fmt: skip
        if after.workers[n].at == "end" or finished:
            at = "complete" if finished or early else "see_complete"
            return to(after, n, w, at=at, last=w.step, tile=-1, chunk=0, slot=0, then="",
                      following=NONE, scanned=0, must_go=False, registers=(0, 0))  # fmt: skip
        return after

    def _plan_complete(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return to(replace(state, complete=w.step + 1), n, w, at="see_complete")

    def _plan_see_complete(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return to(state, n, w, at="see_budget", step=state.complete)

    def _plan_see_budget(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return to(state, n, w, at="see_gone", must_go=n >= state.budget,
                  everybody=state.budget >= self.workers)  # fmt: skip

    def _plan_see_gone(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        back = state.gone > 0 and w.everybody
        if w.step >= self.steps or back:
            return to(state, n, w, at="out")
        if w.must_go:
            return to(state, n, w, at="count_gone")
        if w.step == w.last:
            forgets = self._has("does not look for what was left while it waits")
            return to(state, n, w, at="see_ticket" if forgets else "see_more")
        fresh = w.last >= 0
        return to(state, n, w, at="first_ticket" if fresh else "see_left", then="first_ticket",
                  must_go=False, everybody=False)  # fmt: skip

    def _plan_see_more(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return self._enters(state, n, w, state.words[w.step][2] > 0, "see_ticket")

    def _plan_see_ticket(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return self._enters(state, n, w, state.words[w.step][0] < self.tiles, "see_complete")

    def _enters(self, state: Plan, n: int, w: StepWorker, some: bool, at: str) -> Kernel:
        return to(state, n, w, at="see_left" if some else at, then="first_ticket" if some else "",
                  must_go=False, everybody=False)  # fmt: skip

    def _plan_count_gone(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return to(replace(state, gone=state.gone + 1), n, w, at="out")

    def _plan_out(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        last = state.ended + 1 == self.workers
        forgets = self._has("leaves the words of a launch as they are")
        at = "reset_gone" if last and not forgets else "end"
        return to(replace(state, ended=state.ended + 1), n, StepWorker(), at=at)

    def _plan_reset_gone(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return to(replace(state, gone=0), n, w, at="reset_ended")

    def _plan_reset_ended(self, state: Plan, n: int, w: StepWorker) -> Kernel:
        return to(replace(state, ended=0), n, w, at="end")

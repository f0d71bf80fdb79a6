"""A GPU simulated by discrete events: streams of launches, blocks on multiprocessors, the budget
word.  Input: items that are put into streams.  Output: callbacks when they have ended, and spans of
blocks.  Kernels of a stream follow each other; blocks of urgent streams are placed first, each on
the SM that has most room.  Times are microseconds; nothing is random here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from lab.simulator.launches import KernelLaunch
from lab.simulator.sm import NOTHING, Multiprocessor, ResidentBlock
from tilewright.base.budget import UNLIMITED
from tilewright.elastic.policy import Gpu
from tilewright.elastic.timeline import BlockSpan

#: The result of a callback that takes the time of a launch, such as a write before a kernel.
TAKES_A_LAUNCH = object()


@dataclass(frozen=True, eq=False)
class SimulatedWait:
    """An item at which a stream waits until at most `stay` workers run, or `most_us` have
    passed."""

    stay: int
    most_us: float


StreamItem = KernelLaunch | SimulatedWait | Callable[[], object]


@dataclass(eq=False)
class SimulatedStream:
    """A stream.  urgent: its blocks are placed first;  sms: the SMs that its blocks may use"""

    urgent: bool
    sms: range
    waiting: deque[StreamItem] = field(default_factory=deque)
    head: KernelLaunch | None = None
    order: int = 0
    opens: bool = False
    settling: SimulatedWait | None = None


def at_full_clock(now: float) -> float:
    """The factor for a constant clock: 1 at any time."""
    return 1.0


class SimulatedGpu:
    """The simulated GPU.

    now:    the time in microseconds;  worked: microseconds of work by name
    held:   threads times microseconds of residency
    slowed: from the time to the factor by which all work takes longer, as at a lower clock
    """

    def __init__(
        self,
        gpu: Gpu,
        keep_spans: bool = False,
        slowed: Callable[[float], float] = at_full_clock,
    ) -> None:
        self.gpu, self.now, self.budget = gpu, 0.0, UNLIMITED
        self.spans: list[BlockSpan] = []
        self.worked: dict[str, float] = {}
        self.held = 0.0
        self._keep_spans, self._slowed = keep_spans, slowed
        self._sms = [Multiprocessor(n, gpu) for n in range(gpu.sms)]
        self._streams: list[SimulatedStream] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def stream(self, urgent: bool, sms: range | None = None) -> SimulatedStream:
        made = SimulatedStream(urgent, range(self.gpu.sms) if sms is None else sms)
        self._streams.append(made)
        return made

    def after(self, delay: float, call: Callable[[], None]) -> None:
        heappush(self._heap, (self.now + delay, next(self._numbers), call))

    def advance(self, until: float) -> None:
        """Runs all events up to a time."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, call = heappop(self._heap)
            call()
        self.now = max(self.now, until) if self._heap else self.now

    def put(self, stream: SimulatedStream, what: StreamItem) -> None:
        """Adds a kernel, a wait, or a call to a stream.  A call takes no time unless it returns
        TAKES_A_LAUNCH."""
        stream.waiting.append(what)
        if stream.head is None and not stream.opens:
            self._open(stream)

    def allow(self, budget: int) -> None:
        """Writes the budget: workers with this number or more leave."""
        self.budget = budget
        for sm in self._sms:
            leaving = [b for b in sm.blocks if b.owner.leave and b.worker >= budget]
            if leaving:
                self._pass(sm)
                for block in leaving:
                    _shorten(block)
                self._announce(sm)
        for stream in self._streams:
            head = stream.head
            if head is not None and head.leave == "entry" and budget == 0 and head.unplaced:
                head.unplaced, head.dropped = 0, True
                self._end_if_done(stream, head)
        self._place()

    def _pass(self, sm: Multiprocessor) -> None:
        """Advances an SM to the present time."""
        before = sm.at
        each = sm.advance(self.now)
        for block in sm.blocks:
            name = block.owner.name
            self.worked[name] = self.worked.get(name, 0.0) + each
            self.held += block.threads * (self.now - before)

    def _open(self, stream: SimulatedStream) -> None:
        """Starts the next item of a stream."""
        stream.opens = False
        while stream.head is None and stream.waiting:
            first = stream.waiting.popleft()
            if isinstance(first, SimulatedWait):
                stream.opens = True
                self.after(self.gpu.launch_us, partial(self._settle, stream, first))
                return
            if not isinstance(first, KernelLaunch):
                if first() is TAKES_A_LAUNCH:
                    stream.opens = True
                    self.after(self.gpu.launch_us, lambda: self._open(stream))
                    return
                continue
            stream.head, stream.order = first, next(self._numbers)
            if first.ready() and not first.run.complete:
                alive = first.run.fresh + len(first.run.saved)
                first.unplaced = min(first.workers, alive, first.tiles)
            if first.leave == "entry" and self.budget == 0:
                first.unplaced = 0
            self._end_if_done(stream, first)
        self._place()

    def _settle(self, stream: SimulatedStream, wait: SimulatedWait) -> None:
        stream.settling = wait
        self._settled()

        def over() -> None:
            if stream.settling is wait:
                stream.settling = None
                self._open(stream)

        self.after(wait.most_us, over)

    def _settled(self) -> None:
        """Continues the streams whose wait is over, since enough workers have left."""
        waiting = [stream for stream in self._streams if stream.settling is not None]
        if not waiting:
            return
        alive = sum(block.owner.leave is not None for sm in self._sms for block in sm.blocks)
        for stream in waiting:
            if stream.settling is not None and alive <= stream.settling.stay:
                stream.settling = None
                self._open(stream)

    def _place(self) -> None:
        """Places waiting blocks on SMs that have room."""
        heads = [s for s in self._streams if s.head is not None and s.head.unplaced]
        for stream in sorted(heads, key=lambda s: (not s.urgent, s.order)):
            launch = stream.head
            while launch is not None and launch.unplaced:
                free = [sm for n in stream.sms if (sm := self._sms[n]).room(launch.threads)]
                if not free:
                    break
                sm = min(free, key=lambda s: (s.threads, s.number))
                launch.unplaced -= 1
                self._begin(sm, launch)
            if launch is not None:
                self._end_if_done(stream, launch)

    def _begin(self, sm: Multiprocessor, launch: KernelLaunch) -> None:
        worker, launch.next_worker = launch.next_worker, launch.next_worker + 1
        work = None if launch.leave and worker >= self.budget else self._next(launch)
        if work is None:
            return
        cost, fold = launch.run.cost, launch.fold
        self._pass(sm)
        sm.add(
            ResidentBlock(launch, worker, launch.threads, cost.compute / fold, cost.memory / fold,
                  work * fold, self.now)
        )  # fmt: skip
        launch.live += 1
        self._announce(sm)

    def _next(self, launch: KernelLaunch) -> float | None:
        if launch.tiles <= 0:
            return None
        work = launch.run.take()
        launch.tiles -= work is not None
        return work

    def _announce(self, sm: Multiprocessor) -> None:
        memory = max(1.0, sum(each.memory for each in self._sms))
        sm.slowed = memory * self._slowed(self.now)
        version = sm.version
        if sm.blocks:
            self.after(sm.stop - self.now, lambda: self._stop(sm, version))

    def _stop(self, sm: Multiprocessor, version: int) -> None:
        """Handles the stop of a block on the SM."""
        if version != sm.version:
            return
        self._pass(sm)
        for block in sm.stopped():
            self._stopped(sm, block)
        self._announce(sm)
        self._place()

    def _stopped(self, sm: Multiprocessor, block: ResidentBlock) -> None:
        launch = block.owner
        if block.later > NOTHING:
            launch.run.saved.append(block.later / launch.fold)
        else:
            launch.run.done += 1
            stays = launch.leave in ("chunk", "tile") and block.worker < self.budget
            work = self._next(launch) if stays else None
            if work is not None:
                block.left = work * launch.fold
                return
        sm.remove(block)
        launch.live -= 1
        if launch.leave:
            self.after(0.0, self._settled)
        if self._keep_spans:
            self.spans.append(
                BlockSpan(sm.number, block.begun, self.now, launch.name, launch.critical,
                          block.threads)
            )  # fmt: skip
        stream = next(s for s in self._streams if s.head is launch)
        self._end_if_done(stream, launch)

    def _end_if_done(self, stream: SimulatedStream, launch: KernelLaunch) -> None:
        if stream.head is not launch or launch.live or launch.unplaced:
            return
        if launch.dropped:
            launch.run.restart()
        stream.head = None
        stream.opens = True
        self.after(self.gpu.launch_us, lambda: self._open(stream))
        launch.ended()


def _shorten(block: ResidentBlock) -> None:
    """Makes a worker that must leave stop at the end of its chunk; one that can leave only between
    tiles goes on."""
    launch = block.owner
    if launch.leave != "chunk" or block.later > NOTHING:
        return
    chunk = launch.run.cost.chunk_us * launch.fold
    later = (block.left - NOTHING) // chunk * chunk
    if later > NOTHING:
        block.left, block.later = block.left - later, later

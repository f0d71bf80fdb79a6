"""All steps of a plan as one elastic kernel: an inference is one launch, or two if it was left.

Input: a loaded bundle, and the words of base/budget.py.  Output: the same as of the plain plan,
whenever workers are sent away: every chunk is computed exactly once.  Who may run when is decided
elsewhere.  docs/elastic-form.md has the protocol, `PLAN` in targets/turns.py is its text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.base.budget import PARTS
from tilewright.base.errors import HostError, UsageError
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, DeviceMemory, Launch, Zeroes
from tilewright.hosts.cuda_elastic import SLOT, WORDS, Budget, Resumable
from tilewright.hosts.tensors import Array, largest_extents

#: Inferences that may follow each other before the words are cleared.
MOST_INFERENCES = 1024
#: Threads of an SM that registers suffice for: all steps have those of the largest function.
RESIDENT = 512
#: Threads that meet at a barrier come in whole warps.
WARP = 32
#: `Step` in targets/turns.py.
STEP = np.dtype([(name, np.int32) for name in
                 ("kernel", "tiles", "group", "parts", "stride", "scratch", "args")])  # fmt: skip
#: The kernel's parameters: the fields of `Plan` there.
FIELDS = (
    "const Step *steps", "const uint64_t *args", "unsigned *budget", "unsigned *words",
    "unsigned *slots", "char *saved", "unsigned *told", "int count", "int total",
)  # fmt: skip


def text_of(host: CudaHost, slots: Sequence[int], threads: int, resident: int = RESIDENT) -> str:
    """The kernel `k` of blocks of so many threads; steps name the slots by their places in
    `slots`."""
    steps = [
        f"namespace step{n} {{\n{host.forms[slot].text}__device__ __noinline__\n"
        "void step(const uint64_t *at, const Turn turn, int (*tasks)[3]) {\n"
        f"  {host.forms[slot].call};\n}}\n}}\n"
        for n, slot in enumerate(slots)
    ]
    cases = [f"    case {n}: return step{n}::step(at, turn, tasks);\n" for n in range(len(slots))]
    names = ", ".join(field.split()[-1].lstrip("*") for field in FIELDS)
    return "".join((
        host.texts.plan,
        *steps,
        "__device__ void run_step(int kernel, const uint64_t *at, const Turn turn,\n"
        "                         int (*tasks)[3]) {\n  switch (kernel) {\n",
        *cases,
        "  }\n}\n"
        f"KERNEL void __launch_bounds__({threads}, {max(1, resident // threads)}) "
        f"k({', '.join(FIELDS)}) {{\n"
        f"  run_plan({{{names}}});\n}}\n",
    ))  # fmt: skip


class WholePlan(Resumable):
    """One plan of a host at fixed extents; one launch runs at a time.

    A block has as many workers as its threads make groups of a step; threads beyond that wait.

    inferences: one after the other on the same inputs, before `begin` is needed again
    most: blocks; None: as many as the device runs at once
    resident: threads of an SM that registers must suffice for; functions that need more spill
    blocks: of a launch;  steps: of an inference
    Raises UsageError for a number of inferences that it does not count, HostError where groups are
    no whole warps or a block has too little shared memory.
    """

    def __init__(
        self,
        host: CudaHost,
        budget: Budget,
        plan: int = -1,
        extents: Sequence[int] | None = None,
        inferences: int = 1,
        most: int | None = None,
        resident: int = RESIDENT,
    ) -> None:
        if not 1 <= inferences <= MOST_INFERENCES:
            raise UsageError(
                f"{inferences} inferences cannot follow each other",
                hint=f"Give 1 to {MOST_INFERENCES}",
            )
        device = host.device
        if extents is None:
            extents = largest_extents(host.bundle.manifest)
        plain = host.steps(plan, extents)
        slots = sorted({slot for slot, _ in plain})
        threads = max((launch.group for _, launch in plain), default=WARP)
        table, args = _tables(host, plain, slots, threads)
        self.steps, total = len(table), len(table) * inferences
        shared = int(max(table["parts"] * table["scratch"], default=0))
        _check(table, shared, device.shared_bytes)
        text = text_of(host, slots, threads, resident)
        (kernel,) = device.compile(host.texts.prelude, [text], [shared])
        self.blocks = most or device.residents(kernel, threads, shared)
        if not self.blocks:
            raise HostError(
                f"no block of all steps fits a multiprocessor: it has {threads} threads",
                hint="Run this model's kernels one by one",
                shared=shared,
            )
        workers = self.blocks * table["parts"]
        slot_bytes = SLOT * int(max(workers, default=0))
        self._words = device.memory(WORDS * (1 + total) + slot_bytes)
        self._saved = device.memory(int(max(workers * table["stride"], default=0)))
        self._tables = _placed(device, table), _placed(device, args)
        told = device.words()
        addresses = (
            *(memory.address for memory in self._tables),
            budget.address,
            self._words.address,
            self._words.address + WORDS * (1 + total),
            self._saved.address,
            told.address,
        )
        self._args = *map(ctypes.c_void_p, addresses), ctypes.c_int(self.steps)
        self._launch = Launch(kernel, self.blocks, threads, (), shared)
        super().__init__(device, told, Zeroes(self._words.address, self._words.size))

    @property
    def complete(self) -> int:
        """How many steps are that belong to whole inferences, as of launches that have ended."""
        return super().complete

    def launch(self, total: int) -> Launch:
        """What goes on, whatever is complete, until so many steps are."""
        return replace(self._launch, args=(*self._args, ctypes.c_int(total)))

    def recorded(self, first: int, last: int) -> Callable[[], None]:
        """What goes on until `last` steps are complete, also with what was left before `first`."""
        return self.device.record([self.launch(last)])

    def run(self, again: Callable[[], None], rounds: int, inferences: int = 1) -> int:
        """So many inferences to their end; the launches that it took.

        again:  called before each launch, such as to give workers back their budget
        rounds: more are an error, since each computes a chunk at least
        """
        total = self.steps * inferences

        def start() -> None:
            again()
            self.device.start(self.launch(total))

        return self._ended(start, rounds, steps=total)


def _placed(device: CudaDevice, data: Array) -> DeviceMemory:
    memory = device.memory(data.nbytes)
    device.write(memory.address, data)
    return memory


def _tables(
    host: CudaHost, plain: Sequence[tuple[int, Launch]], slots: Sequence[int], threads: int
) -> tuple[Array, Array]:
    """Of a plan's steps in blocks of so many threads, and their arguments in words of 64 bits."""
    rows, args = list[tuple[int, ...]](), list[int]()
    for slot, launch in plain:
        form, group = host.forms[slot], launch.group
        parts = min(PARTS, threads // group)
        number = slots.index(slot)
        rows.append((number, launch.blocks, group, parts, form.saved, form.shared, len(args)))
        args += [(arg.value or 0) % 2**64 for arg in launch.args]
    return np.array(rows, STEP), np.array(args, np.uint64)


def _check(table: Array, shared: int, most: int) -> None:
    """Raises HostError."""
    hint = "Run this model's kernels one by one"
    for group in table["group"]:
        if group % WARP:
            raise HostError(
                f"groups of {group} threads are no whole warps of {WARP}",
                hint=hint,
                group=int(group),
            )
    if shared > most:
        raise HostError(
            f"a block of all steps needs {shared} bytes of shared memory", hint=hint, limit=most
        )

"""The wasmtime host: runs a bundle's generated modules in Python, without a browser.

Input: a bundle and input arrays.  Output: output arrays.  It loads the same parts as the browser
engine: shared memory, table, driver, the best kernel module, plan images; one call per inference.
        Each worker but the first is a Python thread in the driver's `serve`.
"""

from __future__ import annotations

import ctypes
import platform
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import wasmtime
from wasmtime import _ffi as ffi

from tilewright.base.abi import (
    ABORT,
    ALIGNMENT,
    CHECK,
    DONE,
    EPOCH,
    INDEX,
    MOST_WORKERS,
    STOP,
    TRAPPED,
    WORKER_BYTES,
    WORKER_LINES,
)
from tilewright.base.dtypes import in_memory
from tilewright.base.errors import (
    BundleCorrupt,
    HostError,
    KernelTrap,
    MemoryLimit,
    UsageError,
    of_kind,
)
from tilewright.bundle import BuildEntry, Bundle, PlanEntry, open_bundle
from tilewright.bundle.format import LONGEST, REBUILD, reading
from tilewright.bundle.linear_memory import PlanPlace, check_image, facts_of, places_of
from tilewright.bundle.weight_decoding import memory_of
from tilewright.hosts.inputs_outputs import (
    Array,
    Inference,
    as_declared,
    collect,
    extents_of,
    fit,
    out_of_range,
    pick_plan,
    state_array,
    state_number,
)
from tilewright.hosts.state_blocks import (
    from_blocks,
    into_blocks,
    needed_blocks,
    used_blocks,
)

PAGE, MOST_PAGES = 65536, 65536
MOST_HALF = float(np.finfo(np.float16).max)

#: The target whose section it reads.
TARGET = "wasm"

#: Returns 1 * 255 + 1 * 255 if the relaxed dot product reads its second operand as unsigned.
_DOT = """(module (func (export "f") (result i32) (i16x8.extract_lane_s 0
  (i16x8.relaxed_dot_i8x16_i7x16_s (i8x16.splat (i32.const 1)) (i8x16.splat (i32.const 255))))))"""


#: Wakes all workers that wait on a word of the memory.
_WAKE = """(module (import "env" "memory" (memory 1 65536 shared)) (func (export "wake") (param i32)
  (drop (memory.atomic.notify (local.get 0) (i32.const -1)))))"""


def _features() -> frozenset[str]:
    """The features of wasmtime on this machine beyond plain SIMD, detected by running code."""
    store = wasmtime.Store()
    made = wasmtime.Instance(store, wasmtime.Module(store.engine, _DOT), ())
    found = of_kind(made.exports(store)["f"], wasmtime.Func, "no function")
    return frozenset({"relaxed_simd"} | ({"dot_u8"} if found(store) == 510 else set()))


FEATURES = _features()

#: Vector registers that wasmtime's compiler can allocate on this machine.
REGISTERS = 15 if platform.machine().lower() in ("x86_64", "amd64") else 32

#: The name of wasmtime's compiler in builds; code variants for it are made for this host.
ENGINE = "cranelift"
VARIANTS = ("x86-cranelift",) if REGISTERS == 15 and "dot_u8" in FEATURES else ()


class _SharedMemory(wasmtime.SharedMemory):
    """Works around wasmtime 50, which passes a pointer to the pointer: ctypes refuses it."""

    def _as_extern(self) -> ffi.wasmtime_extern_t:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


class SharedBytes:
    """A shared linear memory, read and written by address.

    most: pages to which it may grow; 0: it has a fixed size
    """

    def __init__(self, engine: wasmtime.Engine, pages: int, most: int = 0) -> None:
        limits = wasmtime.Limits(pages, most or pages)
        self.memory = _SharedMemory(engine, wasmtime.MemoryType(limits, shared=True))
        pointer = ctypes.cast(self.memory.data_ptr(), ctypes.c_void_p)
        self._start, self._size = pointer.value or 0, pages * PAGE
        self.lock = threading.Lock()

    def reach(self, size: int) -> None:
        """Grows to at least `size` bytes.  Raises MemoryLimit, and nothing has changed then."""
        pages = -(-(size - self._size) // PAGE)
        if pages <= 0:
            return
        try:
            self.memory.grow(pages)
        except wasmtime.WasmtimeError as error:
            raise MemoryLimit(
                "there is no memory for a longer text",
                hint="Shorten the text, or free memory and go on",
                bytes=size, memory=self._size,
            ) from error  # fmt: skip
        self._size += pages * PAGE

    def write(self, data: bytes | memoryview, address: int) -> None:
        self._inside(address, len(data))
        ctypes.memmove(self._start + address, bytes(data), len(data))

    def read(self, address: int, size: int) -> bytes:
        self._inside(address, size)
        return ctypes.string_at(self._start + address, size)

    def _inside(self, address: int, size: int) -> None:
        if not 0 <= address <= self._size - size:
            raise BundleCorrupt(
                "the bundle names an address outside of its memory",
                hint=REBUILD,
                address=address,
                bytes=size,
                memory=self._size,
            )

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 4), "little", signed=True)

    def set(self, address: int, value: int) -> None:
        self.write((value & 0xFFFFFFFF).to_bytes(4, "little"), address)


class WasmtimeHost:
    """One loaded bundle.

    features: may be narrowed to test other variants
    threads:  workers that take part in a run, including the caller
    variant:  name of the code variant; by default the best that fits
    seconds:  the longest time that code of the bundle may run without a break, for bundles of
              unknown origin; it is slower then.  By default there is no limit

    Raises UsageError, BundleCorrupt, BundleVersion, MemoryLimit; HostError if no variant fits.
    """

    def __init__(
        self,
        path: Path,
        features: frozenset[str] = FEATURES,
        threads: int = 1,
        variant: str | None = None,
        seconds: float | None = None,
    ) -> None:
        if not 1 <= threads <= MOST_WORKERS:
            raise UsageError(
                f"The number of threads cannot be {threads}",
                hint=f"Use 1 to {MOST_WORKERS}",
                threads=threads,
            )
        self.bundle: Bundle = open_bundle(path)
        self.threads = threads
        config = wasmtime.Config()
        config.wasm_simd = True
        config.wasm_relaxed_simd = True
        config.wasm_threads = True
        config.shared_memory = True
        if seconds is not None:
            config.epoch_interruption = True
            # In wasmtime 50 a fault in a shared memory that several instances import ends the whole
            # process, so every access is checked by a comparison instead.
            config.signals_based_traps = False
        self._engine = wasmtime.Engine(config)
        self._seconds = seconds
        with reading("the section for Wasm"):
            self._load(features, variant)

    def _load(self, features: frozenset[str], variant: str | None) -> None:
        """Fills the memory with the bundle's data, and makes a worker for each thread."""
        manifest, threads = self.bundle.manifest, self.threads
        section = manifest.section(TARGET)
        facts = facts_of(section)
        self.places = places_of(section)
        self._states, self._compact, self._block = facts.states, facts.compact, facts.block
        self._blocks = self._behind = 0
        end = facts.memory.bytes + (threads - 1) * facts.memory.scratch_bytes
        size = end + manifest.blocks * facts.block
        if not 0 < size <= MOST_PAGES * PAGE or len(facts.states) != len(manifest.states):
            raise MemoryLimit("the bundle declares an impossible memory size", bytes=size)
        try:
            self.memory = SharedBytes(self._engine, -(-end // PAGE), -(-size // PAGE))
        except wasmtime.WasmtimeError as error:
            raise MemoryLimit("the model's memory could not be allocated", bytes=size) from error
        self.build = self._pick(section.builds, features, variant)
        at = facts.memory.weights
        for part in memory_of(self.bundle):
            self.memory.write(part, at)
            at += len(part)
        for place, ref, plan in zip(self.places, self.build.plans, manifest.plans, strict=True):
            image = self.bundle.read(ref)
            steps, extents = len(plan.steps), len(manifest.extents) + bool(facts.block)
            check_image(image, place.address, steps, section.slots, extents)
            self.memory.write(image, place.address)
        refs = (self.build.code, section.programs["driver"])
        try:
            modules = [wasmtime.Module(self._engine, self.bundle.read(ref)) for ref in refs]
            each = facts.memory.scratch_bytes
            starts = [facts.memory.scratch + n * each for n in range(threads)]
            workers = [
                Worker(self._engine, self.memory, start, modules, self._seconds) for start in starts
            ]
        except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
            raise BundleCorrupt(
                f"the code of the bundle cannot be loaded: {error}"[:LONGEST], hint=REBUILD
            ) from error
        self._caller = workers[0]
        for number, worker in enumerate(workers[1:], 1):
            threading.Thread(target=worker.serve, args=(number,), daemon=True).start()
        if threads > 1:
            weakref.finalize(self, _stop, self.memory)
        if facts.block:
            self._place_blocks(end)

    def _place_blocks(self, behind: int) -> None:
        """Puts states that grow behind everything else, with memory for the first block."""
        self._behind = behind
        for place in self.places:
            number = len(self.bundle.manifest.extents)
            self._caller.call("resize", place.address, number, behind // ALIGNMENT)
        self._grow(1)

    def _grow(self, blocks: int) -> None:
        """Raises MemoryLimit."""
        self.memory.reach(self._behind + blocks * self._block)
        self._blocks = max(self._blocks, blocks)

    @staticmethod
    def _pick(
        builds: tuple[BuildEntry, ...], features: frozenset[str], variant: str | None
    ) -> BuildEntry:
        """The first variant that can run; best one for this number of registers and this
        compiler."""
        able = [b for b in builds if features.issuperset(b.features)]
        if variant is not None:
            able = [b for b in able if b.variant == variant]
        if not able:
            raise HostError(
                "no code variant of the bundle fits this host",
                hint="Build the bundle for plain SIMD too, or name another variant",
                needed={b.variant: list(b.features) for b in builds},
                variant=variant,
            )
        fit = [b for b in able if b.facts.get("registers") == REGISTERS] or able
        return next((b for b in fit if b.facts.get("engine") == ENGINE), fit[0])

    def run(self, inputs: Mapping[str, object]) -> Inference:
        """Runs one inference: outputs by name for inputs by name.  Inputs smaller than the bucket
        are padded."""
        manifest = self.bundle.manifest
        number = pick_plan(manifest, inputs)
        plan, place = manifest.plans[number], self.places[number]
        try:
            with reading("the section for Wasm"):
                return self._run(number, plan, place, inputs)
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            # `_call` names traps of kernels, so this is one of the driver.
            raise HostError(
                f"the driver of the bundle stopped: {error}"[:LONGEST], hint=REBUILD
            ) from error

    def _run(
        self, number: int, plan: PlanEntry, place: PlanPlace, inputs: Mapping[str, object]
    ) -> Inference:
        manifest = self.bundle.manifest
        self._grow(needed_blocks(manifest, plan, inputs))
        for address, data in zip(place.inputs, fit(manifest, plan, inputs), strict=True):
            self.memory.write(data.tobytes(), address)
        for extent, size in enumerate(extents_of(manifest, inputs)):
            self._caller.call("resize", place.address, extent, size)
        self._call(number)
        read = self.memory.read
        return collect(manifest, plan, inputs, lambda n, size: read(place.outputs[n], size))

    def reset(self) -> None:
        """Sets all states to zero."""
        if self._block:
            self.memory.write(bytes(self._blocks * self._block), self._behind)
            return
        for number, address in enumerate(self._states):
            size = prod(self.bundle.manifest.states[number].shape)
            self.memory.write(bytes(size * self._kind_of(number).itemsize), address)

    def state(self, name: str) -> Array:
        """A copy of a state's contents."""
        number = state_number(self.bundle.manifest, name)
        state, growth = self.bundle.manifest.states[number], self.bundle.manifest.grown
        kind, count = self._kind_of(number), 0 if growth else prod(state.shape)
        if growth:
            count = prod(state.shape) // state.shape[-2] * growth.rows
        read = (self.memory.read(at, count * kind.itemsize) for at in self._addresses(number))
        parts = [np.frombuffer(data, kind).astype(in_memory(state.dtype).numpy) for data in read]
        whole = from_blocks(parts, state.shape, growth.rows) if growth else parts[0]
        return as_declared(state, whole.reshape(state.shape))

    def set_state(self, name: str, value: object) -> None:
        """Sets a state's contents.  Raises InputError for a wrong shape or type, MemoryLimit."""
        number, growth = state_number(self.bundle.manifest, name), self.bundle.manifest.grown
        data = state_array(self.bundle.manifest.states[number], value)
        kind = self._kind_of(number)
        if kind == np.float16:
            data = np.clip(data, -MOST_HALF, MOST_HALF)
        data = data.astype(kind)
        if growth:
            self._grow(used_blocks(data, growth.rows))
        parts = into_blocks(data, growth.rows, self._blocks) if growth else [data]
        for part, address in zip(parts, self._addresses(number), strict=True):
            self.memory.write(part.tobytes(), address)

    def _addresses(self, number: int) -> list[int]:
        """Where a state begins, in each block if it grows."""
        place = self._states[number]
        if not self._block:
            return [place]
        return [self._behind + at * self._block + place for at in range(self._blocks)]

    def _kind_of(self, number: int) -> np.dtype[Any]:
        """The type of a state's numbers in memory."""
        kind = np.dtype(in_memory(self.bundle.manifest.states[number].dtype).numpy)
        return np.dtype(np.float16) if self._compact and kind == np.float32 else kind

    def time(self, runs: int, plan: int = -1) -> list[float]:
        """Milliseconds of each of `runs` inferences, on the current contents of the inputs."""
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            self._call(plan)
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def _call(self, number: int) -> None:
        steps, address = self.bundle.manifest.plans[number].steps, self.places[number].address
        at = -1
        reason = "in another worker"
        try:
            code = self._caller.call("run", address, 0, len(steps), self.threads)
            at = self.memory.word(TRAPPED) - 1
        except wasmtime.Trap as trap:
            reason = str(trap).strip().splitlines()[-1].strip()
            at = self.memory.word(WORKER_LINES) - 1
            code = self._caller.call("abort", self.threads)
        if code == 0:
            return
        if at < 0:
            raise HostError("a worker hangs", hint="Load the bundle again")
        if at >= len(steps):
            raise HostError("a worker stopped outside of the plan", hint=REBUILD, reason=reason)
        step = steps[at]
        if check := self.memory.word(CHECK):
            self.memory.set(CHECK, 0)
            index = int.from_bytes(self.memory.read(INDEX, 8), "little", signed=True)
            raise out_of_range(steps, at, check - 1, index)
        raise KernelTrap(
            "a kernel stopped",
            hint="Build the bundle again. Report this if a kernel still stops",
            kernel=step.kernel,
            node=step.node,
            step=at,
            reason=reason,
        )


class Worker:
    """An instance of all modules with its own store, since threads cannot share one."""

    def __init__(
        self,
        engine: wasmtime.Engine,
        memory: SharedBytes,
        scratch: int,
        modules: list[wasmtime.Module],
        seconds: float | None = None,
    ) -> None:
        self._memory = memory
        self._engine, self._seconds = engine, seconds
        self._store = wasmtime.Store(engine)
        slots = max((i.type.limits.min for m in modules for i in m.imports
                     if isinstance(i.type, wasmtime.TableType)), default=1)  # fmt: skip
        kind = wasmtime.TableType(wasmtime.ValType.funcref(), wasmtime.Limits(slots, slots))
        number = wasmtime.GlobalType(wasmtime.ValType.i32(), False)
        env: dict[str, wasmtime.Memory | wasmtime.SharedMemory | wasmtime.Table | wasmtime.Global]
        env = {
            "memory": memory.memory,
            "table": wasmtime.Table(self._store, kind, None),
            "scratch": wasmtime.Global(self._store, number, wasmtime.Val.i32(scratch)),
        }
        if seconds is not None:
            self._store.set_epoch_deadline(1)
        wake = wasmtime.Instance(self._store, wasmtime.Module(engine, _WAKE), [memory.memory])
        self._wake = of_kind(wake.exports(self._store)["wake"], wasmtime.Func, "no function")
        for module in modules:
            imports = [env[item.name or ""] for item in module.imports]
            with self._watched():
                self._exports = wasmtime.Instance(self._store, module, imports).exports(self._store)

    def call(self, name: str, *args: int) -> Any:
        function = self._exports[name]
        if not isinstance(function, wasmtime.Func):
            raise TypeError(f"{name} is not a function")
        with self._watched():
            return function(self._store, *args)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Code that runs inside traps after the host's time limit."""
        if self._seconds is None:
            yield
            return
        self._store.set_epoch_deadline(1)
        timer = threading.Timer(self._seconds, self._engine.increment_epoch)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def serve(self, number: int) -> None:
        """Takes part in runs until the stop word is set; a trap ends the run, not the worker."""
        while not self._memory.word(STOP):
            try:
                self.call("serve", number)
            except wasmtime.Trap:
                leave_run(self._memory, number, self.wake)

    def wake(self, address: int) -> None:
        """Wakes all workers that wait on this word."""
        self._wake(self._store, address)


def leave_run(memory: SharedBytes, number: int, wake: Callable[[int], None]) -> None:
    """After a trap in worker `number`: aborts the run, records the step if it is the first trap,
    and wakes all waiting workers."""
    line = WORKER_LINES + number * WORKER_BYTES
    with memory.lock:
        for address, value in ((TRAPPED, memory.word(line)), (ABORT, 1)):
            memory.set(address, memory.word(address) or value)
        memory.set(line, 0)
    wake(line)
    wake(DONE)


def _stop(memory: SharedBytes) -> None:
    """Sets the stop word; waiting workers see it within their idle period."""
    memory.set(STOP, 1)
    memory.set(EPOCH, memory.word(EPOCH) + 1)

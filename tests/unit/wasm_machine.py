"""Runs compiled kernels in wasmtime, for the tests of the Wasm target.

Input: modules, or a `TileFn` with NumPy arrays.  Output: the arrays, changed; traps as exceptions.
Each buffer is followed by a canary; a kernel that writes past its buffer fails the test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import wasmtime

from tilewright.hosts.wasmtime import SharedBytes
from tilewright.kernel.loops import TileFn
from tilewright.targets.wasm import ALL, VARIANTS, compile_tile, link

ARGS = 2048
FIRST_BUFFER = 4096
CANARY = b"\xa5" * 64
FUEL = 1 << 60


@cache
def engine(deterministic: bool = False, counting: bool = False) -> wasmtime.Engine:
    """wasmtime with threads; `deterministic` fixes what relaxed SIMD leaves open, `counting` counts
    instructions."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    config.wasm_threads = True
    config.shared_memory = True
    config.wasm_relaxed_simd_deterministic = deterministic
    config.consume_fuel = counting
    return wasmtime.Engine(config)


def validate(module: bytes) -> None:
    wasmtime.Module.validate(engine(), module)


class Machine:
    """One memory and one table, into which modules are instantiated."""

    def __init__(
        self, size: int, slots: int = 1, deterministic: bool = False, counting: bool = False
    ) -> None:
        self.engine = engine(deterministic, counting)
        self.store = wasmtime.Store(self.engine)
        if counting:
            self.store.set_fuel(FUEL)
        self.memory = SharedBytes(self.engine, size // 65536 + 2)
        kind = wasmtime.TableType(wasmtime.ValType.funcref(), wasmtime.Limits(slots, None))
        self.table = wasmtime.Table(self.store, kind, None)
        whole = wasmtime.GlobalType(wasmtime.ValType.i32(), False)
        scratch = wasmtime.Val.i32((size + 65535) // 65536 * 65536)
        self.scratch = wasmtime.Global(self.store, whole, scratch)

    def load(self, module: bytes) -> wasmtime.InstanceExports:
        compiled = wasmtime.Module(self.engine, module)
        given = {"memory": self.memory.memory, "table": self.table, "scratch": self.scratch}
        imports = [given[i.name] for i in compiled.imports]
        return wasmtime.Instance(self.store, compiled, imports).exports(self.store)

    def write(self, at: int, data: bytes) -> None:
        self.memory.write(data, at)

    def words(self, at: int, values: Iterable[int]) -> None:
        self.write(at, b"".join(int(v).to_bytes(4, "little") for v in values))

    def read(self, at: int, size: int) -> bytes:
        return self.memory.read(at, size)


def run(
    fn: TileFn,
    arrays: Sequence[np.ndarray],
    variant: str = "x86",
    passes: frozenset[str] = ALL,
    tiles: Iterable[tuple[int, int]] | None = None,
    deterministic: bool = False,
) -> np.ndarray:
    """Compute tiles [first, last) for each given pair (default: all); the output's new contents.

    `arrays` are the kernel's buffers, the output first; they stay as they are.
    """
    module = link([compile_tile(fn, VARIANTS[variant], passes)], VARIANTS[variant], 1)
    parts = tuple(tiles) if tiles is not None else ((0, fn.tiles),)
    return run_module(module, parts, arrays, fn.values, deterministic)


def run_module(
    module: bytes,
    tiles: Iterable[tuple[int, int]],
    arrays: Sequence[np.ndarray],
    scalars: Sequence[int] = (),
    deterministic: bool = False,
) -> np.ndarray:
    """Compute tiles [first, last) for each given pair with the module's only kernel."""
    return _ran(module, tiles, arrays, scalars, deterministic)[0]


def instructions(module: bytes, tiles: int, arrays: Sequence[np.ndarray]) -> int:
    """How many Wasm instructions a processor is given for all tiles."""
    return FUEL - _ran(module, [(0, tiles)], arrays, counting=True)[1].store.get_fuel()


def _ran(
    module: bytes,
    tiles: Iterable[tuple[int, int]],
    arrays: Sequence[np.ndarray],
    scalars: Sequence[int] = (),
    deterministic: bool = False,
    counting: bool = False,
) -> tuple[np.ndarray, Machine]:
    places, at = [], FIRST_BUFFER
    for a in arrays:
        places.append(at)
        at += (a.nbytes + 15) // 16 * 16 + len(CANARY)
    machine = Machine(at, deterministic=deterministic, counting=counting)
    for a, place in zip(arrays, places, strict=True):
        machine.write(place, a.tobytes() + CANARY)
    machine.words(ARGS, (*places, *scalars))
    exports = machine.load(module)
    for first, last in tiles:
        exports["k0"](machine.store, ARGS, first, last)
    for a, place in zip(arrays, places, strict=True):
        assert machine.read(place + a.nbytes, len(CANARY)) == CANARY, "wrote past a buffer"
    raw = machine.read(places[0], arrays[0].nbytes)
    return np.frombuffer(raw, arrays[0].dtype).reshape(arrays[0].shape).copy(), machine

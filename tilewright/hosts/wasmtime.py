"""The wasmtime host: runs a bundle's generated modules in Python, without a browser.

Input: a bundle and input arrays.  Output: output arrays.  It loads exactly what the browser engine
loads: memory, table, driver, the best kernel module, plan images; one call per inference.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wasmtime

from tilewright.base.errors import HostError, KernelTrap, MemoryLimit
from tilewright.bundle import Bundle, Code, Plan, open_bundle
from tilewright.hosts.tensors import Run, collect, fit, pick_plan

PAGE = 65536
STEP_WORD = 4  # control word 1: the step that is being run

#: What wasmtime offers beyond plain SIMD.
FEATURES = frozenset({"relaxed_simd"})


class WasmtimeHost:
    """One loaded bundle.  `features` may be narrowed to test the build for lesser hosts."""

    def __init__(self, path: Path, features: frozenset[str] = FEATURES) -> None:
        self.bundle: Bundle = open_bundle(path)
        manifest = self.bundle.manifest
        config = wasmtime.Config()
        config.wasm_simd = True
        config.wasm_relaxed_simd = True
        engine = wasmtime.Engine(config)
        self._store = wasmtime.Store(engine)
        pages = -(-manifest.memory.bytes // PAGE)
        try:
            limits = wasmtime.Limits(pages, pages)
            self._memory = wasmtime.Memory(self._store, wasmtime.MemoryType(limits))
        except wasmtime.WasmtimeError as error:
            raise MemoryLimit(
                "the model's memory could not be allocated", bytes=manifest.memory.bytes
            ) from error
        self.code = self._pick(manifest.code, features)
        self._load(engine)

    @staticmethod
    def _pick(code: tuple[Code, ...], features: frozenset[str]) -> Code:
        for entry in code:
            if features.issuperset(entry.features):
                return entry
        raise HostError(
            "no kernel module of the bundle fits this host",
            hint="Build the bundle for plain SIMD too",
            needed=[list(c.features) for c in code],
        )

    def _load(self, engine: wasmtime.Engine) -> None:
        manifest, store = self.bundle.manifest, self._store
        at = manifest.memory.weights
        for shard in self.bundle.weights():
            self._memory.write(store, shard, at)
            at += len(shard)
        for plan in manifest.plans:
            self._memory.write(store, self.bundle.read(plan.image), plan.image.address)
        slots = max(manifest.slots, 1)
        kind = wasmtime.TableType(wasmtime.ValType.funcref(), wasmtime.Limits(slots, slots))
        table = wasmtime.Table(store, kind, None)
        scratch_type = wasmtime.GlobalType(wasmtime.ValType.i32(), False)
        scratch = wasmtime.Val.i32(manifest.memory.scratch)
        env: dict[str, Any] = {
            "memory": self._memory,
            "table": table,
            "scratch": wasmtime.Global(store, scratch_type, scratch),
        }
        exports: Any = {}
        for ref in (self.code, manifest.driver):
            module = wasmtime.Module(engine, self.bundle.read(ref))
            imports = [env[item.name or ""] for item in module.imports]
            exports = wasmtime.Instance(store, module, imports).exports(store)
        self._run = exports["run"]

    def run(self, inputs: Mapping[str, Any]) -> Run:
        """Outputs by name for inputs by name; inputs smaller than the bucket are padded."""
        manifest = self.bundle.manifest
        plan = pick_plan(manifest, inputs)
        for placed, data in fit(manifest, plan, inputs):
            self._memory.write(self._store, data.tobytes(), placed.address)
        self._call(plan)
        return collect(manifest, plan, inputs, self._read)

    def time(self, runs: int, plan: int = -1) -> list[float]:
        """Milliseconds of `runs` inferences one after another, on whatever the inputs hold."""
        chosen, times = self.bundle.manifest.plans[plan], []
        for _ in range(runs):
            start = time.perf_counter()
            self._call(chosen)
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def _call(self, plan: Plan) -> None:
        try:
            self._run(self._store, plan.image.address, 0, len(plan.steps))
        except wasmtime.Trap as trap:
            number = int.from_bytes(self._read(STEP_WORD, 4), "little")
            step = plan.steps[number]
            raise KernelTrap(
                "a kernel stopped: an index is out of range or a memory access is invalid",
                hint="Check the values of index inputs (token ids)",
                kernel=step.kernel,
                node=step.node,
                reason=str(trap).strip().splitlines()[-1].strip(),
            ) from trap

    def _read(self, address: int, size: int) -> bytes:
        return bytes(self._memory.read(self._store, address, address + size))

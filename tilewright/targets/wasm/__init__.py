"""The WebAssembly target: loops to Wasm IR, three passes, bytes.

Input: `TileFn`s and a `WasmVariant`.  Output: kernels, linked modules and the plan driver.  All are
encoded from one instruction table; no other compiler is used.  `choices.py` has the settings of
products that are fixed (docs/primitives.md), `driver.py` the plan driver that all workers run, and
`worker_loop.py` the loop of one worker.
"""

from tilewright.targets.wasm.driver import driver
from tilewright.targets.wasm.emit import CompiledKernel, compile_tile, emit_text
from tilewright.targets.wasm.link import link
from tilewright.targets.wasm.passes import ALL, PASSES
from tilewright.targets.wasm.variant import SPECIAL, VARIANTS, WasmVariant

__all__ = [
    "ALL",
    "PASSES",
    "SPECIAL",
    "VARIANTS",
    "CompiledKernel",
    "WasmVariant",
    "compile_tile",
    "driver",
    "emit_text",
    "link",
]

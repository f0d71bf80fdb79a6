"""The plan driver: the generated module that runs a whole inference with one call.

Input: the number of slots and pages to ask for.  Output: module bytes.  The plan image it walks is
described in docs/bundle.md; the driver is the same for every model.

    run(plan, first, last):
        for step in [first, last):
            control word 1 = step
            table[record.slot](record.args, 0, record.tiles)
"""

from __future__ import annotations

from tilewright.targets.wasm.emit import SLOT_TYPE, assemble, flatten
from tilewright.targets.wasm.ir import (
    Assign,
    Func,
    Load,
    Local,
    Run,
    Store,
    add,
    const,
    for_loop,
    times,
)
from tilewright.targets.wasm.module import Import, Module, encode_module
from tilewright.targets.wasm.target import WasmTarget

#: Where the driver writes the number of the step being run.
CONTROL_STEP = 4

#: Bytes of the plan's header and of one step record, and the record's fields.
HEADER, RECORD = 16, 16
SLOT, ARGS, TILES = 0, 4, 8


def _run() -> Func:
    plan, first, last = (Local(name, "i32", 0) for name in ("plan", "first", "last"))
    step, record = Local("step", "i32", 0), Local("record", "i32", 0)

    def word(offset: int) -> Load:
        return Load("i32.load", record, offset, -1)

    body = (
        Assign(record, add(plan, times(step, RECORD))),
        Store("i32.store", const(0), CONTROL_STEP, step, -1),
        Run(SLOT_TYPE, (word(HEADER + ARGS), const(0), word(HEADER + TILES)), word(HEADER + SLOT)),
    )
    return Func("run", (plan, first, last), (for_loop(step, first, last, 1, body, False),))


def driver(slots: int, memory_pages_min: int = 1) -> bytes:
    """The driver's module."""
    plain = WasmTarget("any", frozenset(), 0, 0)
    code = assemble([flatten(_run())], plain)
    imports = (Import("memory", "memory", memory_pages_min), Import("table", "table", slots))
    return encode_module(Module(imports, code, (("run", 0),)))

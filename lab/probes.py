"""WebAssembly that measures a host: hand-written kernels without a specification, and plans for
them.

Input: numbers of steps and tiles.  Output: a `Section` with one plan, whose only value is an output
of four f32, and the number of floating point operations of a run.

    peak    one step; every tile multiplies and adds in registers only
    steps   steps that do nothing; each waits for the previous one
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.base.abi import CONTROL_BYTES, align
from tilewright.base.sections import Build, File, Section
from tilewright.targets.simd.machine import Machine
from tilewright.targets.wasm.driver import driver
from tilewright.targets.wasm.emit import CompiledKernel, assemble, flatten
from tilewright.targets.wasm.ir import (
    Assign,
    Expr,
    Func,
    Load,
    Local,
    Op,
    Run,
    Stmt,
    Store,
    const,
    for_loop,
    op,
)
from tilewright.targets.wasm.link import link
from tilewright.targets.wasm.plan_image import StepCall, image, image_bytes
from tilewright.targets.wasm.variant import VARIANTS, WasmVariant

#: The address of the 16-byte output: after the control block, before the image.
OUTPUT = align(CONTROL_BYTES)


def peak_section(tiles: int) -> tuple[Section, int]:
    return _section(peak, [StepCall(0, (OUTPUT,), (), tiles, grain=16)]), tiles * FLOPS_PER_TILE


def steps_section(steps: int, tiles: int) -> tuple[Section, int]:
    """A section of steps that do nothing.  With one tile all steps are serial and share one ticket;
    with more, each step has this number of tickets."""
    call = StepCall(0, (), (), tiles, grain=1 if tiles > 1 else 0)
    calls = [call, *[replace(call, waits=tiles > 1, chained=tiles == 1)] * (steps - 1)]
    return _section(lambda _: nothing(), calls), 0


def _section(kernel: Callable[[WasmVariant], CompiledKernel], calls: list[StepCall]) -> Section:
    base = OUTPUT + 64
    total = base + align(image_bytes(calls))
    drawn = File(image(calls, base), "bin")
    builds = (
        Build(
            variant=t.name,
            features=tuple(sorted(t.features)),
            code=File(link([kernel(t)], t, 1), "wasm"),
            plans=(drawn,),
            facts={"registers": t.registers},
        )
        for t in VARIANTS.values()
        if t.is_default
    )
    memory = {
        "bytes": total, "control": 0, "weights": base, "arena": OUTPUT, "arena_bytes": 64,
        "scratch": total, "scratch_bytes": 0,
    }  # fmt: skip
    return Section(
        builds=tuple(builds),
        slots=1,
        memory=total,
        programs={"driver": File(driver(1), "wasm")},
        plans=({"address": base, "arena_bytes": 64, "inputs": [], "outputs": [OUTPUT]},),
        kernels=(),
        facts={"memory": memory, "states": []},
    )


# ---- kernels -------------------------------------------------------------------------------------
# Each has the signature of a slot.  Its argument block holds one address, where each tile stores 16
# bytes, so that no engine drops the work.

#: Independent chains: enough to cover the latency of two FMA units, and all in registers.
CHAINS = 12
ROUNDS = 1024
UNROLL = 2
FLOPS_PER_TILE = 2 * 4 * CHAINS * UNROLL * ROUNDS


def peak(variant: WasmVariant) -> CompiledKernel:
    """Multiplies and adds in registers only; a tile is FLOPS_PER_TILE operations."""
    out, count = Local("out", "i32", 0), Local("count", "i32", 0)
    seed = Local("seed", "i32")
    factor, term = Local("factor", "v128"), Local("term", "v128")
    chains = [Local(f"chain{n}", "v128") for n in range(CHAINS)]

    def step(chain: Local) -> Stmt:
        if variant.fma:
            # the sum is the last operand, as in a matmul: engines reuse its register
            return Assign(chain, op("f32x4.relaxed_madd", factor, term, chain))
        # the product must depend on the chain: engines would compute a common product once for all
        # chains
        return Assign(chain, op("f32x4.add", op("f32x4.mul", chain, factor), term))

    def start(n: int) -> Expr:
        # starts from memory, so that an engine cannot compute the chains when it compiles
        return op("f32x4.splat", op("f32.convert_i32_s", op("i32.add", seed, const(n))))

    work = tuple(step(c) for _ in range(UNROLL) for c in chains)
    total: Expr = chains[0]
    for c in chains[1:]:
        total = op("f32x4.add", total, c)
    body: tuple[Stmt, ...] = (
        Assign(seed, Load("i32.load", out, 0, 0)),
        Assign(factor, op("f32x4.splat", Op("f32.const", (), (0x3F000000,)))),
        Assign(term, op("f32x4.splat", Op("f32.const", (), (0x3F800000,)))),
        *(Assign(c, start(n)) for n, c in enumerate(chains)),
        for_loop(count, const(0), const(ROUNDS), 1, work, True),
        Store("v128.store", out, 0, total, 0),
    )
    tile = Func("peak.tile", (out,), body)
    args, begin, end = (Local(name, "i32", 0) for name in ("args", "first", "last"))
    number = Local("tile", "i32", 0)
    call = (Run(tile.name, (Load("i32.load", args, 0, -1),)),)
    slot = Func("peak", (args, begin, end), (for_loop(number, begin, end, 1, call, False),))
    return CompiledKernel("peak", assemble([flatten(tile), flatten(slot)], variant))


def nothing() -> CompiledKernel:
    """A kernel that does nothing, so that a run takes only the driver's own time."""
    params = tuple(Local(name, "i32", 0) for name in ("args", "first", "last"))
    slot = Func("empty", params, ())
    anywhere = WasmVariant("any", frozenset(), Machine())
    return CompiledKernel("empty", assemble([flatten(slot)], anywhere))

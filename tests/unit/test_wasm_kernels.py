"""Hand-made loop nests through the whole Wasm target: contracts, passes, driver, peak, link.

What a test of random kernels would rarely meet: traps, stores that pass 3 must respect, prologue
values, scratch memory, constants that pass 1 must not move.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import wasmtime
from wasm_machine import Machine, run, validate

from tilewright.base.dtypes import F32, I32, I64, DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel.expr import Bound, Call, Const, Expr, Guard, IndexValue, Load, Reg, Splat
from tilewright.kernel.index import Index, Var, index
from tilewright.kernel.loops import (
    Barrier,
    For,
    If,
    Let,
    LetGather,
    LetMin,
    Scratch,
    Set,
    Stmt,
    Store,
    TileFn,
)
from tilewright.kernel.spec import Buffer
from tilewright.targets.wasm import (
    ALL,
    PASSES,
    VARIANTS,
    compile_tile,
    driver,
    emit_text,
    link,
    plan_image,
)

SUBSETS = [frozenset(c) for n in range(4) for c in combinations(sorted(ALL), n)]
X86 = VARIANTS["x86"]
every_subset = pytest.mark.parametrize("passes", SUBSETS, ids=lambda s: "+".join(sorted(s)) or "-")


def kernel(
    body: tuple[Stmt, ...],
    sizes: tuple[int, ...],
    tile: Var | None = None,
    dtypes: tuple[DType, ...] = (),
    scalars: tuple[tuple[str, int], ...] = (),
    prologue: tuple[Stmt, ...] = (),
    scratch: tuple[int, ...] = (),
) -> TileFn:
    """A `TileFn` over buffers of the given sizes, f32 if not said otherwise."""
    tile = tile or Var("tile", 1)
    types = (*dtypes, *(F32,) * (len(sizes) - len(dtypes)))
    return TileFn(
        "k",
        tuple(Buffer(t, n) for t, n in zip(types, sizes, strict=True)),
        tuple(Var(name, 1 << 20) for name, _ in scalars),
        tuple(Scratch(F32, n) for n in scratch),
        tile,
        prologue,
        body,
        tile.extent,
        tuple(value for _, value in scalars),
    )


def gemm(
    m: int, k: int, n: int, unroll: int, change: Callable[[Expr], Expr] = lambda e: e
) -> TileFn:
    """C = A B in tiles of 12 x 8, register tile 6 x 8, B in panels of 8 columns."""
    tile = Var("tile", m // 12 * (n // 8))
    row, panel = Var("row", m // 12), Var("panel", n // 8)
    r, step = Var("r", 12), Var("k", k)
    a, b, c = Var("a", m * k), Var("b", k * n), Var("c", m * n)
    accs = [(i, j, Reg(f"acc{i}{j}", F32, 4)) for i in range(6) for j in range(2)]
    inner: list[Stmt] = []
    for u in range(unroll):
        for i, j, acc in accs:
            left = Splat(Load(1, index(a) + index(step) + i * k + u, F32), 4)
            right = Load(2, index(b) + index(step) * 8 + u * 8 + j * 4, F32, 4)
            inner.append(Set(acc.name, Call("fma", (left, right, acc), F32, 4)))
    micro: list[Stmt] = [
        Let(a, index(row) * (12 * k) + index(r) * k),
        Let(c, index(row) * (12 * n) + index(r) * n + index(panel) * 8),
        *(Set(acc.name, Const(0.0, F32, 4)) for _, _, acc in accs),
        For(step, index(0), index(k), unroll, tuple(inner)),
        *(Store(0, index(c) + i * n + j * 4, change(acc)) for i, j, acc in accs),
    ]
    body = (
        Let(row, index(tile) // (n // 8)),
        Let(panel, index(tile) % (n // 8)),
        Let(b, index(panel) * (8 * k)),
        For(r, index(0), index(12), 6, tuple(micro)),
    )
    return kernel(body, (m * n, m * k, k * n), tile)


def panels(b: np.ndarray) -> np.ndarray:
    """[K][N] as [N/8][K][8]."""
    k, n = b.shape
    return np.ascontiguousarray(b.reshape(k, n // 8, 8).transpose(1, 0, 2))


@every_subset
@pytest.mark.parametrize("target", ["x86", "x86-simd"])
def test_matmul(passes: frozenset[str], target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype("float32") for s in ((24, 20), (20, 16)))
    fn = gemm(24, 20, 16, 4)
    out = run(fn, [np.full((24, 16), 7, "float32"), a, panels(b)], target, passes)
    np.testing.assert_array_equal(out, a @ b)


def test_matmul_hot_loop_is_one_instruction_per_load() -> None:
    """12 fused multiply-adds, 2 + 6 loads per step; no address arithmetic but the bumps."""
    text = emit_text(gemm(24, 64, 16, 4), X86)
    loop = text.split("loop")[2].split("end")[0]
    count = {name: loop.count(name) for name in ("relaxed_madd", "v128.load32_splat", "v128.load ")}
    assert count["relaxed_madd"] == 48
    assert count["v128.load32_splat"] == 24
    assert loop.count("v128.load") == 24 + 8
    assert loop.count("i32.add") == 6 + 1 + 1, "six row pointers, the panel's, the counter"


@every_subset
def test_a_store_between_equal_loads_is_respected(passes: frozenset[str]) -> None:
    """b0[1] is read, overwritten, read again; b1 may be the same memory and is read again too."""
    x = Reg("x", F32)
    body = (
        Set("x", Load(0, index(1), F32)),
        Store(0, index(1), Call("add", (x, Load(1, index(0), F32)), F32)),
        Set("x", Load(0, index(1), F32)),
        Store(0, index(0), Call("mul", (x, Load(1, index(0), F32)), F32)),
        Store(0, index(2), Load(0, index(1), F32)),
    )
    out = run(
        kernel(body, (3, 1)),
        [np.array([1, 2, 3], "float32"), np.array([5], "float32")],
        passes=passes,
    )
    np.testing.assert_array_equal(out, [35, 7, 7])


@every_subset
def test_overlapping_vectors_are_not_the_same_value(passes: frozenset[str]) -> None:
    """A vector load sees the store into its middle, and a scalar the vector store over it."""
    ones = Const(1.0, F32, 4)
    body = (
        Set("v", Load(0, index(0), F32, 4)),
        Store(0, index(2), ones),
        Set("w", Load(0, index(0), F32, 4)),
        Store(0, index(8), Call("add", (Reg("v", F32, 4), Reg("w", F32, 4)), F32, 4)),
        Set("s", Load(0, index(8), F32)),
        Store(0, index(7), ones),
        Store(0, index(0), Call("add", (Reg("s", F32), Load(0, index(8), F32)), F32)),
    )
    data = np.arange(12, dtype="float32")
    out = run(kernel(body, (12,)), [data], passes=passes)
    want = data.copy()
    v = want[:4].copy()
    want[2:6] = 1
    want[8:12] = v + want[:4]
    s = want[8]
    want[7:11] = 1
    want[0] = s + want[8]
    np.testing.assert_array_equal(out, want)


@every_subset
def test_constants_that_make_up_for_negative_terms_stay(passes: frozenset[str]) -> None:
    """b0[i] = b1[n - 1 - i] + b1[i - 300 if that exists]: base addresses would be negative."""
    n = 700
    i = Var("i", n)
    flipped = Load(1, index(i) * -1 + (n - 1), F32)
    late = index(i) - 300
    padded = Guard((Bound(late, n),), Load(1, late, F32), Const(0.0, F32))
    far = Guard((Bound(late + 600, n),), Load(1, late + 600, F32), Const(0.0, F32))
    total = Call("add", (flipped, Call("add", (padded, far), F32)), F32)
    fn = kernel((For(i, index(0), index(n), 1, (Store(0, index(i), total),)),), (n, n))
    x = np.arange(1, n + 1).astype("float32")
    want = x[::-1].copy()
    want[300:] += x[:-300]
    want[:400] += x[300:]
    np.testing.assert_array_equal(run(fn, [np.zeros(n, "float32"), x], passes=passes), want)


@every_subset
@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
def test_a_gathered_index_out_of_range_traps(passes: frozenset[str], dtype: DType) -> None:
    g, i, j = Var("g", 5), Var("i", 3), Var("j", 2)
    copy = Store(0, index(i) * 2 + index(j), Load(1, index(g) * 2 + index(j), F32))
    body = For(i, index(0), index(3), 1, (
        LetGather(g, Load(2, index(i), dtype)),
        For(j, index(0), index(2), 1, (copy,)),
    ))  # fmt: skip
    fn = kernel((body,), (6, 10, 3), dtypes=(F32, F32, dtype))
    table = np.arange(10, dtype="float32")
    at = np.array([4, 0, 2], dtype.numpy)
    out = run(fn, [np.zeros(6, "float32"), table, at], passes=passes)
    np.testing.assert_array_equal(out, table.reshape(5, 2)[at].ravel())
    for bad in (5, -1, 2**31 - 1):
        wrong = np.array([0, bad, 0], dtype.numpy)
        with pytest.raises(wasmtime.Trap, match="unreachable"):
            run(fn, [np.zeros(6, "float32"), table, wrong], passes=passes)


def test_a_64_bit_index_is_not_cut_before_the_check() -> None:
    g = Var("g", 5)
    fn = kernel(
        (LetGather(g, Load(1, index(0), I64)), Store(0, index(0), Load(1, index(g), I64))),
        (1, 5),
        dtypes=(I64, I64),
    )
    with pytest.raises(wasmtime.Trap, match="unreachable"):
        run(fn, [np.zeros(1, "int64"), np.array([1 << 32, 0, 0, 0, 0], "int64")])


@every_subset
def test_one_load_in_several_places(passes: frozenset[str]) -> None:
    """A load is lowered once per scope: not once for both arms, nor across a name bound again."""
    i, j = Var("i", 4), Var("j", 8)
    load = Load(1, index(j), F32)
    wide = Splat(Load(1, index(i), F32), 4)
    arms = If(
        (Bound(index(i), 2),),
        (Store(0, index(i) * 4 + 8, wide),),
        (Store(0, index(i) * 4 + 8, Call("neg", (wide,), F32, 4)),),
    )
    body = For(i, index(0), index(4), 1, (
        Let(j, index(i)), Store(0, index(i) * 2, load),
        Let(j, index(i) + 4), Store(0, index(i) * 2 + 1, load), arms,
    ))  # fmt: skip
    x = np.arange(1, 9, dtype="float32")
    out = run(kernel((body,), (24, 8)), [np.zeros(24, "float32"), x], passes=passes)
    np.testing.assert_array_equal(out[:8], x.reshape(2, 4).T.ravel())
    np.testing.assert_array_equal(out[8:].reshape(4, 4).T, [x[:4] * (1, 1, -1, -1)] * 4)


@every_subset
def test_prologue_scalars_and_zero_trips(passes: frozenset[str]) -> None:
    """Values of the prologue and of the argument block reach the tile; a loop may not run."""
    tile, width, half, i = Var("tile", 4), Var("width", 1 << 20), Var("half", 1 << 19), Var("i", 9)
    end = Var("end", 1 << 20)
    prologue = (Let(half, index(width) // 2), Set("two", Const(2.0, F32)))
    body = (
        LetMin(end, index(tile) * 3, index(half)),
        Set("sum", Const(0.0, F32)),
        For(i, index(0), index(end), 1, (
            Set("sum", Call("add", (Reg("sum", F32), Load(1, index(i), F32)), F32)),
        ), at_least_once=False),
        Store(0, index(tile), Call("mul", (Reg("sum", F32), Reg("two", F32)), F32)),
    )  # fmt: skip
    fn = kernel(body, (4, 9), tile, scalars=(("width", 14),), prologue=prologue)
    x = np.arange(1, 10).astype("float32")
    out = run(fn, [np.zeros(4, "float32"), x], passes=passes, tiles=[(2, 4), (0, 2)])
    np.testing.assert_array_equal(out, [2 * x[: min(3 * t, 7)].sum() for t in range(4)])


@every_subset
def test_scratch_memory(passes: frozenset[str]) -> None:
    """Staged through two scratch buffers, with a barrier, a branch and divisions."""
    n = 32
    i, j = Var("i", n), Var("j", n)
    swapped = (index(i) % 8) * 4 + index(i) // 8
    body = (
        For(i, index(0), index(n), 1, (Store(2, swapped, Load(1, index(i), F32)),)),
        Barrier(),
        For(j, index(0), index(n), 4, (
            If((Bound(index(j) - 8, 16),),
               (Store(3, index(j), Load(2, index(j), F32, 4)),),
               (Store(3, index(j), Const(-1.0, F32, 4)),)),
            Store(0, index(j), Load(3, index(j), F32, 4)),
        )),
    )  # fmt: skip
    x = np.arange(n).astype("float32")
    want = x.reshape(4, 8).T.ravel().copy()
    want[:8] = want[24:] = -1
    fn = kernel(body, (n, n), scratch=(n, n))
    np.testing.assert_array_equal(run(fn, [np.zeros(n, "float32"), x], passes=passes), want)
    code = compile_tile(fn, X86, passes)
    assert code.scratch == 2 * 128
    validate(link([code], X86, 1))


def test_negative_numerators_divide_down() -> None:
    n = 24
    i = Var("i", n)
    at: list[Index] = [index(i) - 11, index(i) * 3 - 20]
    value = Call("add", (_number(at[0] // 4), _number(at[1] % 7)), F32)
    fn = kernel((For(i, index(0), index(n), 1, (Store(0, index(i), value),)),), (n,))
    k = np.arange(n)
    np.testing.assert_array_equal(
        run(fn, [np.zeros(n, "float32")]), (k - 11) // 4 + (k * 3 - 20) % 7
    )


def _number(i: Index) -> Expr:
    return IndexValue(i, F32)


def test_compiling_is_deterministic_and_passes_only_shrink_code() -> None:
    fn = gemm(24, 64, 16, 4)
    names = [name for name, _ in PASSES]
    sizes = [compile_tile(fn, X86, frozenset(names[:k])).size for k in range(4)]
    assert sizes == sorted(sizes, reverse=True)
    assert compile_tile(fn, X86) == compile_tile(fn, X86)
    with pytest.raises(CompilerBug, match="no such pass"):
        compile_tile(fn, X86, frozenset({"inline"}))


def test_link_fills_slots_and_shares_equal_kernels() -> None:
    one, other = compile_tile(gemm(24, 64, 16, 4), X86), compile_tile(gemm(24, 64, 16, 2), X86)
    module = link([one, other, one], X86, 1)
    validate(module)
    assert len(module) < one.size + other.size + 400
    exports = {e.name for e in wasmtime.Module(Machine(0).engine, module).exports}
    assert exports == {"k0", "k1", "k2"}
    validate(link([one, other, one], X86, 1, named=True))
    relu = gemm(24, 64, 16, 4, lambda e: Call("exp", (e,), F32, 4))
    validate(link([compile_tile(relu, X86), one], X86, 1))


def test_the_driver_runs_steps() -> None:
    """Two kernels in three steps, as docs/bundle-wasm.md lays out a plan image."""
    tile = Var("tile", 6)
    at = index(tile)

    def apply(name: str, number: float) -> TileFn:
        value = Call(name, (Load(1, at, F32), Const(number, F32)), F32)
        return kernel((Store(0, at, value),), (6, 6), tile)

    double, plus = apply("mul", 2.0), apply("add", 1.0)
    machine = Machine(1 << 16, slots=2)
    machine.load(link([compile_tile(double, X86), compile_tile(plus, X86)], X86, 1))
    run_plan = machine.load(driver(2))["run"]
    x, y, z, plan = 8192, 8256, 8320, 4096
    steps = [(0, (y, x)), (1, (z, y)), (0, (z, z))]
    calls = [plan_image.StepCall(slot, buffers, (), 6, grain=1) for slot, buffers in steps]
    machine.write(plan, plan_image.image(calls, plan))
    data = np.arange(6, dtype="float32")
    machine.write(x, data.tobytes())

    def output() -> list[float]:
        return np.frombuffer(machine.read(z, 24), "float32").tolist()

    assert run_plan(machine.store, plan, 0, 2, 1) == 0
    assert output() == (data * 2 + 1).tolist()
    assert run_plan(machine.store, plan, 2, 3, 1) == 0
    assert output() == ((data * 2 + 1) * 2).tolist()
    assert run_plan(machine.store, plan, 3, 3, 1) == 0
    assert machine.read(0, 16) == bytes(16)


@pytest.mark.parametrize("grain", [1, 2, 4, 6])
@pytest.mark.parametrize("back", [False, True])
def test_the_driver_hands_out_tiles_from_either_end(grain: int, back: bool) -> None:
    """y[tile] = y[tile + 1] + 1 in place: the sum tells how many tiles ran before."""
    tile = Var("tile", 6)
    at = index(tile)
    value = Call("add", (Load(1, at + 1, F32), Const(1.0, F32)), F32)
    machine = Machine(1 << 16, slots=1)
    machine.load(link([compile_tile(kernel((Store(0, at, value),), (6, 7), tile), X86)], X86, 1))
    y, plan = 8192, 4096
    call = plan_image.StepCall(0, (y, y), (), 6, grain=grain, back=back)
    machine.write(plan, plan_image.image([call], plan))
    assert machine.load(driver(1))["run"](machine.store, plan, 0, 1, 1) == 0
    found = np.frombuffer(machine.read(y, 24), "float32").tolist()
    tickets = [range(n, min(n + grain, 6)) for n in range(0, 6, grain)]
    wanted = [0.0] * 7
    for ticket in tickets[::-1] if back else tickets:
        for n in ticket:
            wanted[n] = wanted[n + 1] + 1
    assert found == wanted[:6]

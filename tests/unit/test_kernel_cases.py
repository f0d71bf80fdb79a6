"""Single kernels that once went wrong, and what lowering promises about the shape of loops.

Input: hand-written specifications.  Each is run by the interpreter against the reference host.
"""

from __future__ import annotations

import pickle
from dataclasses import fields

import numpy as np
import pytest
from helpers.kernel_parts import Case
from helpers.kernels import assert_close, expected, interpret
from helpers.loop_check import check_loops
from helpers.schedules import scheduled

from tilewright.base.dtypes import BOOL, F32, F64, I32, I64
from tilewright.base.errors import KernelTrap
from tilewright.kernel import interpreter
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import Acc, Bound, Call, Const, Expr, Guard, Load, lanes_of
from tilewright.kernel.form import product
from tilewright.kernel.index import Gathered, Index, Var, index
from tilewright.kernel.loops import For, If, Set, Stmt, Store, TileFn
from tilewright.kernel.spec import Buffer, Kernel, Stage
from tilewright.kernel.tree import walk
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.strategies import lower

M, N, K = Var("m", 6), Var("n", 10), Var("k", 5)


def run(kernel: Kernel, *data: np.ndarray, schedule: Schedule | None = None) -> TileFn:
    """Lower, check and run; the result must be exact."""
    fn = lower(kernel, schedule or scheduled(kernel, x0=2, y0=8, x1=4, y1=8))
    check_loops(fn)
    out = interpret(fn, data, [list(range(fn.tiles))])
    assert_close(out, expected(Case(kernel, data, True)), True, 0.0)
    return fn


def exprs(stmts: tuple[Stmt, ...]) -> list[Expr]:
    found: list[Expr] = []
    for s in stmts:
        if isinstance(s, (Set, Store)):
            found += walk(s.value)
        elif isinstance(s, For):
            found += exprs(s.body)
        elif isinstance(s, If):
            found += exprs(s.then) + exprs(s.orelse)
    return found


def ints(rng: np.random.Generator, *shape: int, dtype: str = "f4") -> np.ndarray:
    return rng.integers(-3, 4, shape).ravel().astype(dtype)


def matmul(value: Expr, *extra: Buffer) -> Kernel:
    """value over (m, n), with stage 0 = sum over k of b1[m, k] * b2[k, n]."""
    a = Load(1, index(M) * 5 + index(K), F32)
    b = Load(2, index(K) * 10 + index(N), F32)
    stage = Stage("sum", (K,), Call("mul", (a, b), F32))
    buffers = (Buffer(F32, 60), Buffer(F32, 30), Buffer(F32, 50), *extra)
    return Kernel("matmul", (M, N), (stage,), value, index(M) * 10 + index(N), buffers)


def test_attention_mask_of_truth_values_in_the_store() -> None:
    """where(mask, scores, -1): the mask lies in memory as bytes, the scores in vectors."""
    rng = np.random.default_rng(0)
    mask = Load(3, index(M) * 10 + index(N), BOOL)
    value = Call("where", (mask, Acc(0, F32), Const(-1.0, F32)), F32)
    data = (ints(rng, 6, 5), ints(rng, 5, 10), rng.integers(0, 2, 60).astype(bool))
    fn = run(matmul(value, Buffer(BOOL, 60)), *data)
    wheres = [e for e in exprs(fn.body) if isinstance(e, Call) and e.fn == "where"]
    assert wheres
    assert all(lanes_of(e) == 4 for e in wheres)


def test_sum_leaves_vectors_for_a_type_without_vectors() -> None:
    rng = np.random.default_rng(1)
    wide = Call("cast", (Acc(0, F32),), I64)
    odd = Call("add", (wide, Load(3, index(N), I64)), I64)
    kernel = matmul(Call("cast", (odd,), F32), Buffer(I64, 10))
    run(kernel, ints(rng, 6, 5), ints(rng, 5, 10), ints(rng, 10, dtype="i8"))


@pytest.mark.parametrize("dtype", [I64, F64])
def test_reduction_in_a_wide_type_uses_no_vectors(dtype) -> None:
    """cast(sum of i64) to f32, along the last axis of the output."""
    value = Load(1, index(K) * 10 + index(N), dtype)
    kernel = Kernel(
        "sum",
        (N,),
        (Stage("sum", (K,), value),),
        Call("cast", (Acc(0, dtype),), F32),
        index(N),
        (Buffer(F32, 10), Buffer(dtype, 50)),
    )
    run(kernel, ints(np.random.default_rng(2), 50, dtype=dtype.numpy))


def test_gather_below_a_guard_reads_its_table_only_where_the_guard_holds() -> None:
    """pad(gather(x, t)): t[i - 2] does not exist for i < 2"""
    i = Var("i", 9)
    moved = index(i) - 2
    where = Index(((Gathered(Load(2, moved, I64), 4), 1),))
    guarded = Guard((Bound(moved, 5),), Load(1, where, F32), Const(7.0, F32))
    buffers = (Buffer(F32, 9), Buffer(F32, 4), Buffer(I64, 5))
    kernel = Kernel("pad", (i,), (), guarded, index(i), buffers)
    run(kernel, np.arange(4, dtype="f4"), np.array([3, 0, 1, 2, 2]))


def test_gather_in_the_other_part_of_a_concat() -> None:
    """concat(y, gather(x, t)): t[i - 4] does not exist where y is picked"""
    i = Var("i", 9)
    where = Index(((Gathered(Load(2, index(i) - 4, I64), 4), 1),))
    joined = Guard((Bound(index(i), 4),), Load(3, index(i), F32), Load(1, where, F32))
    buffers = (Buffer(F32, 9), Buffer(F32, 4), Buffer(I64, 5), Buffer(F32, 4))
    kernel = Kernel("concat", (i,), (), joined, index(i), buffers)
    run(kernel, np.arange(4, dtype="f4"), np.array([3, 0, 1, 2, 2]), np.ones(4, "f4"))


def test_gathered_rows_along_the_columns_are_no_register_tiles() -> None:
    """sum over k of x[m, k] * table[t[n], k]: both operands move with n"""
    rng = np.random.default_rng(3)
    where = Index(((Gathered(Load(3, index(N), I64), 7), 5),)) + index(K)
    a, b = Load(1, index(M) * 5 + index(K), F32), Load(2, where, F32)
    kernel = Kernel(
        "rows",
        (M, N),
        (Stage("sum", (K,), Call("mul", (a, b), F32)),),
        Acc(0, F32),
        index(M) * 10 + index(N),
        (Buffer(F32, 60), Buffer(F32, 30), Buffer(F32, 35), Buffer(I64, 10)),
    )
    run(kernel, ints(rng, 6, 5), ints(rng, 7, 5), rng.integers(0, 7, 10))
    column = Load(2, index(N) * 5 + index(K), F32)
    picked = Load(1, Index(((Gathered(Load(3, index(N), I64), 6), 5),)) + index(K), F32)
    stage = Stage("sum", (K,), Call("mul", (picked, column), F32))
    kernel = Kernel("both", kernel.axes, (stage,), Acc(0, F32), kernel.store, (
        Buffer(F32, 60), Buffer(F32, 30), Buffer(F32, 50), Buffer(I64, 10)))  # fmt: skip
    assert product(kernel) is None
    run(kernel, ints(rng, 6, 5), ints(rng, 10, 5), rng.integers(0, 6, 10))


def test_flipped_columns_do_not_run_below_their_buffer() -> None:
    """b[k, 9 - n]: lanes 10 and 11 of the last vector would lie before the first element"""
    rng = np.random.default_rng(6)
    a, b = Load(1, index(K), F32), Load(2, index(K) * 10 - index(N) + 9, F32)
    stage = Stage("sum", (K,), Call("mul", (a, b), F32))
    buffers = (Buffer(F32, 10), Buffer(F32, 5), Buffer(F32, 50))
    kernel = Kernel("flip", (N,), (stage,), Acc(0, F32), index(N), buffers)
    run(kernel, ints(rng, 5), ints(rng, 50))


def test_sum_over_an_axis_that_no_factor_has() -> None:
    """The reference host forgot to repeat the sum."""
    j = Var("j", 7)
    value = Call("mul", (Load(1, index(K), I32), Load(1, index(K), I32)), I32)
    stage = Stage("sum", (j, K), value)
    buffers = (Buffer(I32, 1), Buffer(I32, 5))
    kernel = Kernel("sum", (), (stage,), Acc(0, I32), Index(), buffers)
    out = expected(Case(kernel, (np.arange(5, dtype="i4"),), True))
    assert out.tolist() == [7 * 30]
    run(kernel, np.arange(5, dtype="i4"))


def test_gather_outside_its_table_traps() -> None:
    i = Var("i", 4)
    where = Index(((Gathered(Load(2, index(i), I64), 3), 1),))
    buffers = (Buffer(F32, 4), Buffer(F32, 3), Buffer(I64, 4))
    kernel = Kernel("take", (i,), (), Load(1, where, F32), index(i), buffers)
    fn = lower(kernel, scheduled(kernel))
    for wrong in (3, -1):
        table = [0, 1, wrong, 2]
        with pytest.raises(KernelTrap):
            interpreter.run(fn, [[0.0] * 4, [0.0] * 3, table])
        with pytest.raises(KernelTrap):
            expected(Case(kernel, (np.zeros(3, "f4"), np.array(table)), True))


def test_repeated_part_of_an_epilogue_is_computed_once() -> None:
    x = Call("add", (Acc(0, F32), Load(3, index(N), F32)), F32)
    value = Call("mul", (Call("abs", (x,), F32), x), F32)
    rng = np.random.default_rng(4)
    fn = run(matmul(value, Buffer(F32, 10)), ints(rng, 30), ints(rng, 50), ints(rng, 10))
    adds = [e for e in exprs(fn.body) if isinstance(e, Call) and e.fn == "add"]
    stores = sum(isinstance(e, Call) and e.fn == "mul" for e in exprs(fn.body))
    assert len(adds) == stores


def test_axes_merge_only_where_no_index_gets_a_division() -> None:
    batch = Var("b", 2)
    a = Load(1, index(batch) * 30 + index(M) * 5 + index(K), F32)
    b = Load(2, index(K) * 10 + index(N), F32)
    stage = Stage("sum", (K,), Call("mul", (a, b), F32))
    store = index(batch) * 60 + index(M) * 10 + index(N)
    buffers = (Buffer(F32, 120), Buffer(F32, 60), Buffer(F32, 50))
    merged = collapse(Kernel("mm", (batch, M, N), (stage,), Acc(0, F32), store, buffers))
    assert [v.extent for v in merged.axes] == [12, 10]
    bias = Load(3, index(N), F32)
    summed = Call("add", (Load(1, index(M) * 10 + index(N), F32), bias), F32)
    buffers = (Buffer(F32, 60), Buffer(F32, 60), Buffer(F32, 1), Buffer(F32, 10))
    kernel = Kernel("bias", (M, N), (), summed, index(M) * 10 + index(N), buffers)
    assert collapse(kernel) == kernel


def test_a_pickled_kernel_leaves_its_hash_behind() -> None:
    """Kernels travel to other processes, in which the same text has another hash."""
    kernel = matmul(Acc(0, F32))
    assert hash(kernel) == hash(matmul(Acc(0, F32)))
    copy = pickle.loads(pickle.dumps(kernel))
    assert vars(copy).keys() == {f.name for f in fields(kernel)}
    assert copy == kernel


def test_rows_are_split_evenly() -> None:
    """14 rows in register tiles of at most 6: 5 + 5 + 4, never 6 + 6 + 2."""
    rows = Var("m", 14)
    a, b = Load(1, index(rows) * 5 + index(K), F32), Load(2, index(K) * 10 + index(N), F32)
    stage = Stage("sum", (K,), Call("mul", (a, b), F32))
    buffers = (Buffer(F32, 140), Buffer(F32, 70), Buffer(F32, 50))
    kernel = Kernel("mm", (rows, N), (stage,), Acc(0, F32), index(rows) * 10 + index(N), buffers)
    rng = np.random.default_rng(5)
    fn = run(kernel, ints(rng, 70), ints(rng, 50), schedule=scheduled(kernel, x0=6, y0=4, x1=6))
    sums = {s.name for s in _sets(fn.body)}
    assert {name for name in sums if name.startswith("s4_")}
    assert not {name for name in sums if name.startswith("s5_")}


def _sets(stmts: tuple[Stmt, ...]) -> list[Set]:
    found: list[Set] = []
    for s in stmts:
        if isinstance(s, Set):
            found.append(s)
        elif isinstance(s, For):
            found += _sets(s.body)
        elif isinstance(s, If):
            found += _sets(s.then) + _sets(s.orelse)
    return found

"""Several threads compute one tile: their result, and what the interpreter does not let pass."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from helpers.kernels import assert_close, expected, interpret, random_case
from helpers.seeds import seeds

from tilewright.base.dtypes import F32
from tilewright.base.errors import CompilerBug
from tilewright.kernel import interpreter
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import Bound, Call, Const, Load, Reg, ShuffleXor, SubgroupBroadcast
from tilewright.kernel.index import Var, index
from tilewright.kernel.loops import Barrier, For, If, Scratch, Set, Stmt, Store, TileFn
from tilewright.kernel.spec import Buffer
from tilewright.targets.gpu.pointwise.reductions import lower_row_reductions

THREADS = 4
THREAD = Var("thread", THREADS)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("anchor", ["reduce", "rows", "contract"])
def test_threads_of_a_row_compute_what_the_specification_means(anchor: str) -> None:
    shared = 0
    for seed in seeds(60):
        case = random_case(seed, anchor)
        fn = lower_row_reductions(collapse(case.kernel), Random(seed).choice((2, 3, 4)))
        if fn is None:
            continue
        shared += 1
        out = interpret(fn, case.data, [list(range(fn.tiles))])
        assert_close(out, expected(case), case.exact, case.relative)
        again = interpret(fn, case.data, [list(reversed(range(fn.tiles)))])
        assert list(map(repr, again)) == list(map(repr, out)), "tile order changes bits"
        if any(isinstance(s, Barrier) for s in fn.body):
            with pytest.raises(CompilerBug, match="races"):
                interpret(without_barriers(fn), case.data, [list(range(fn.tiles))])
    assert shared > 5


@pytest.mark.one_in(3)
@pytest.mark.parametrize("anchor", ["reduce", "rows", "contract"])
@pytest.mark.parametrize("width", [2, 4, 8])
def test_subgroups_of_a_row_do_so_too(anchor: str, width: int) -> None:
    shared = 0
    for seed in seeds(60):
        case = random_case(seed, anchor)
        fn = lower_row_reductions(collapse(case.kernel), width * Random(seed).choice((1, 2)), width)
        if fn is None:
            continue
        shared += 1
        assert fn.subgroup == width
        out = interpret(fn, case.data, [list(range(fn.tiles))])
        assert_close(out, expected(case), case.exact, case.relative)
    assert shared


def without_barriers(fn: TileFn) -> TileFn:
    return replace(fn, body=tuple(s for s in fn.body if not isinstance(s, Barrier)))


def together(*body: Stmt, tiles: int = 1) -> TileFn:
    """b0: what comes out, b1: what goes in, b2: scratch, of an element per thread each."""
    each = Buffer(F32, THREADS)
    area = (Scratch(F32, THREADS),)
    return TileFn("k", (each, each), (), area, Var("tile", tiles), (), body, tiles, (), THREAD)


def turned(barrier: Stmt) -> TileFn:
    """Each thread stores what another one read."""
    other = index(THREAD) * -1 + (THREADS - 1)
    return together(
        Store(2, index(THREAD), Load(1, index(THREAD), F32)),
        barrier,
        Store(0, index(THREAD), Load(2, other, F32)),
    )


def test_scratch_is_shared_by_the_threads_of_a_tile() -> None:
    out = [0.0] * THREADS
    interpreter.run(turned(Barrier()), [out, [1.0, 2.0, 3.0, 4.0]])
    assert out == [4.0, 3.0, 2.0, 1.0]


def test_a_barrier_that_some_threads_miss_is_an_error() -> None:
    some = If((Bound(index(THREAD), 2),), (Barrier(),))
    with pytest.raises(CompilerBug, match="barrier"):
        interpreter.run(together(some), [[0.0] * THREADS, [1.0] * THREADS])


def test_two_barriers_are_not_one() -> None:
    some = If((Bound(index(THREAD), 2),), (Barrier(),), (Barrier(),))
    with pytest.raises(CompilerBug, match="barrier"):
        interpreter.run(together(some), [[0.0] * THREADS, [1.0] * THREADS])


def test_threads_that_write_one_element_race() -> None:
    with pytest.raises(CompilerBug, match="races"):
        interpreter.run(
            together(Store(0, index(0), Load(1, index(0), F32))), [[0.0] * 4, [1.0] * 4]
        )


def own_element(buffer: int) -> Store:
    return Store(buffer, index(THREAD), Load(1, index(THREAD), F32))


@pytest.mark.parametrize("buffer", [0, 2])
def test_threads_that_write_parts_of_one_vector_race_where_that_counts(buffer: int) -> None:
    lists = [[0.0] * THREADS, [1.0] * THREADS]
    interpreter.run(together(own_element(buffer)), lists)
    interpreter.run(together(own_element(buffer)), lists, whole={1: THREADS})
    with pytest.raises(CompilerBug, match="races"):
        interpreter.run(together(own_element(buffer)), lists, whole={buffer: THREADS})


def test_no_barrier_is_between_stores_of_one_vector_in_memory() -> None:
    """A barrier of a tile orders shared memory alone."""
    first, others = (Bound(index(THREAD), 1),), (Bound(index(THREAD) - 1, THREADS),)
    body = (If(first, (own_element(0),)), Barrier(), If(others, (own_element(0),)))
    with pytest.raises(CompilerBug, match="races"):
        interpreter.run(together(*body), [[0.0] * 4, [1.0] * 4], whole={0: 2})


def test_tiles_that_write_parts_of_one_vector_race() -> None:
    tile = Var("tile", 2)
    one = If((Bound(index(THREAD), 1),), (Store(0, index(tile), Load(1, index(tile), F32)),))
    lists = [[0.0] * THREADS, [1.0] * THREADS]
    interpreter.run(together(one, tiles=2), lists)
    with pytest.raises(CompilerBug, match="races"):
        interpreter.run(together(one, tiles=2), lists, whole={0: 2})


def given(*body: Stmt, width: int = 2) -> list[float]:
    """What threads store as "got", of 1 to 4 that they have as "own"."""
    own, out = Set("own", Load(1, index(THREAD), F32)), [0.0] * THREADS
    fn = together(own, Set("got", Const(0.0, F32)), *body, Store(0, index(THREAD), Reg("got", F32)))
    interpreter.run(replace(fn, subgroup=width), [out, [1.0, 2.0, 3.0, 4.0]])
    return out


def of_thread(number: int | Var) -> Set:
    return Set("got", SubgroupBroadcast(Reg("own", F32), index(number)))


@pytest.mark.parametrize(
    ("width", "number", "want"),
    [(2, 0, [1, 1, 3, 3]), (2, 1, [2, 2, 4, 4]), (4, 0, [1] * 4), (4, 2, [3] * 4)],
)
def test_a_subgroup_has_what_one_of_its_threads_has(
    width: int, number: int, want: list[float]
) -> None:
    assert given(of_thread(number), width=width) == want


def test_it_may_be_another_one_in_every_turn_of_a_loop() -> None:
    turn = Var("turn", 2)
    add = Set("got", Call("add", (Reg("got", F32), Reg("sum", F32)), F32))
    first = Set("sum", Const(0.0, F32))
    body = (of_thread(turn), add, Set("sum", Reg("got", F32)))
    assert given(first, For(turn, index(0), index(2), 1, body)) == [3, 3, 7, 7]


@pytest.mark.parametrize(
    ("stmt", "said"),
    [
        (of_thread(2), "a subgroup has 2 threads"),
        (of_thread(THREAD), "ask for"),
        (Set("got", ShuffleXor(Reg("own", F32), 2)), "a subgroup has 2 threads"),
        (Set("got", ShuffleXor(Reg("own", F32), 0)), "nothing is swapped"),
        (If((Bound(index(THREAD), 1),), (of_thread(0),)), "not all threads arrive"),
    ],
)
def test_no_thread_has_what_others_do_not_give(stmt: Stmt, said: str) -> None:
    with pytest.raises(CompilerBug, match=said):
        given(stmt)


def test_without_subgroups_nobody_gives() -> None:
    with pytest.raises(CompilerBug, match="a subgroup has 0 threads"):
        given(of_thread(0), width=0)

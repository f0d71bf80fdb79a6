"""The driver's function that changes the length of a plan with extents.

Input: a plan image in memory, with its table of extents (docs/bundle-wasm.md).
Output: a function of the driver's module. It must run between two runs, never during one.

    resize(plan, number, n)    sets extent `number` to n, and updates scalars, tiles and tickets
"""

from __future__ import annotations

from tilewright.base.abi import (
    BEFORE,
    BY,
    COUNT,
    EACH,
    ENTRY,
    GRAIN,
    HEADER,
    MOST,
    NUMBER,
    PLACE,
    PLUS,
    RECORD,
    TABLE,
    TICKETS,
    TILES,
    TIMES,
    WIDEST,
)
from tilewright.targets.wasm.ir import (
    Assign,
    Expr,
    Func,
    If,
    Load,
    Local,
    Stmt,
    Store,
    add,
    const,
    for_loop,
    op,
    times,
)


def _word(base: Expr, at: int) -> Load:
    return Load("i32.load", base, at, -1)


def _put(base: Expr, at: int, value: Expr) -> Store:
    return Store("i32.store", base, at, value, -1)


def _larger(a: Expr, b: Expr) -> Expr:
    return op("select", a, b, op("i32.gt_u", a, b))


def resize() -> Func:
    names = "plan number n table entry count step record tickets total widest"
    plan, number, n, table, entry, count, step, record, tickets, total, widest = (
        Local(name, "i32") for name in names.split()
    )
    given = op("i32.mul", n, _word(entry, TIMES))
    follow: tuple[Stmt, ...] = (
        If(
            op("i32.eq", _word(entry, NUMBER), number),
            (
                Assign(count, op("i32.div_u", add(given, _word(entry, PLUS)), _word(entry, BY))),
                Assign(
                    count,
                    op("select", count, _word(entry, MOST),
                       op("i32.lt_u", count, _word(entry, MOST))),
                ),
                _put(add(plan, _word(entry, PLACE)), 0, op("i32.mul", count, _word(entry, EACH))),
            ),
        ),
    )  # fmt: skip
    over = add(_word(record, HEADER + TILES), _word(record, HEADER + GRAIN))
    share: tuple[Stmt, ...] = (
        Assign(record, add(plan, times(step, RECORD))),
        Assign(
            tickets,
            op("i32.div_u", op("i32.sub", over, const(1)), _word(record, HEADER + GRAIN)),
        ),
        _put(record, HEADER + TICKETS, tickets),
        _put(record, HEADER + BEFORE, total),
        Assign(total, add(total, tickets)),
        Assign(widest, _larger(widest, tickets)),
    )
    body: tuple[Stmt, ...] = (
        Assign(table, add(plan, _word(plan, TABLE))),
        Assign(entry, add(table, const(4))),
        Assign(table, add(entry, times(_word(table, 0), ENTRY))),
        for_loop(entry, entry, table, ENTRY, follow, False),
        for_loop(step, const(0), _word(plan, COUNT), 1, share, False),
        _put(add(plan, times(_word(plan, COUNT), RECORD)), HEADER + BEFORE, total),
        _put(plan, WIDEST, widest),
    )
    return Func("resize", (plan, number, n), body)

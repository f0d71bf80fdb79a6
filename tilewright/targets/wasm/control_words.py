"""Access to the words of the control block that workers share: reads, writes and waits.

Input: addresses of base/abi.py.  Output: Wasm IR.  The driver decides the meaning of the words.
"""

from __future__ import annotations

from tilewright.base.abi import CHECK, INDEX, SPIN, WORKER_BYTES, WORKER_LINES
from tilewright.targets.wasm.ir import Effect, Expr, Local, Op, Store, add, const, op, times
from tilewright.targets.wasm.isa import ISA

#: Polls of the state before a waiting worker sleeps: about 50 microseconds.
DEFAULT_SPIN = 8192


def i64(value: int) -> Op:
    """An i64 constant."""
    return Op("i64.const", (), (value,))


def atomic(name: str, address: int, *args: Expr, base: Expr | None = None) -> Op:
    """An atomic instruction on a word of the control block, or of a worker's line at `base`."""
    return Op(name, (base or const(0), *args), (ISA[name].align, address))


def get(address: int, base: Expr | None = None) -> Op:
    """The word at `address`, of the worker's line at `base` if that is given."""
    return atomic("i32.atomic.load", address, base=base)


def put(address: int, value: Expr, base: Expr | None = None) -> Effect:
    """Stores a word."""
    return Effect(atomic("i32.atomic.store", address, value, base=base))


def report_out_of_range(check: int, index: Expr) -> tuple[Store, Store]:
    """The two stores by which a kernel reports an index (i64) that is out of range."""
    number = Store("i32.store", const(0), CHECK, const(check + 1), -1)
    return number, Store("i64.store", const(0), INDEX, index, -1)


def bump(address: int, by: int) -> Effect:
    """Adds to a word."""
    return Effect(atomic("i32.atomic.rmw.add", address, const(by)))


def wake(address: int) -> Effect:
    """Wakes all workers that sleep on a word."""
    return Effect(atomic("memory.atomic.notify", address, const(-1)))


def sleep_on(address: int, expected: Expr, period: int) -> Op:
    """Sleeps while the word is `expected`, for at most `period` nanoseconds."""
    return atomic("memory.atomic.wait32", address, expected, i64(period))


def line_of(worker: Expr) -> Expr:
    """The address of a worker's line."""
    return add(const(WORKER_LINES), times(worker, WORKER_BYTES))


def or_default(value: Expr, default: int) -> Expr:
    """`value`, or `default` if it is 0."""
    return op("select", value, const(default), value)


def polls_again(spins: Expr) -> Op:
    """True if a worker that polled the state `spins` times should poll again, not sleep."""
    return op("i32.lt_u", spins, or_default(get(SPIN), DEFAULT_SPIN))


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller of two numbers."""
    return op("select", a, b, op("i32.lt_s", a, b))


def i32_locals(names: str) -> list[Local]:
    """i32 locals with these names, which are separated by spaces."""
    return [Local(name, "i32") for name in names.split()]

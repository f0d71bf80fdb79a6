"""The third pass on stores: what is overwritten before anything can read it is not stored.

Input: hand-made loop nests.  Equal addresses of different buffers may be one place.
"""

from __future__ import annotations

import numpy as np
from test_wasm_kernels import X86, every_subset, kernel
from wasm_machine import run

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Call, Const, Load
from tilewright.kernel.index import index
from tilewright.kernel.loops import Store
from tilewright.targets.wasm import ALL, emit_text
from tilewright.targets.wasm.ir import Block, BrIf, Func, Local, const
from tilewright.targets.wasm.ir import Store as WasmStore
from tilewright.targets.wasm.variables import load_store_to_variable


@every_subset
def test_a_place_that_is_written_twice_ends_with_the_second(passes: frozenset[str]) -> None:
    """b0[0] is read between two stores, and so may b1 be; nothing reads b0[2] between its two."""
    x = Load(0, index(0), F32)
    body = (
        Store(0, index(0), Const(2.0, F32)),
        Store(0, index(1), Call("add", (x, Load(1, index(0), F32)), F32)),
        Store(0, index(0), Call("mul", (x, Const(10.0, F32)), F32)),
        Store(0, index(2), Load(1, index(0), F32)),
        Store(0, index(2), Call("neg", (Load(0, index(1), F32),), F32)),
    )
    arrays = [np.zeros(3, "float32"), np.array([5], "float32")]
    np.testing.assert_array_equal(run(kernel(body, (3, 1)), arrays, passes=passes), [20, 7, -7])


def test_the_third_pass_stores_only_what_stays() -> None:
    """A sum that an unrolled loop keeps in scratch memory is stored once; buffers may be one."""
    total, step = Load(2, index(0), F32, 4), Load(1, index(0), F32, 4)
    more = Store(2, index(0), Call("add", (total, step), F32, 4))
    body = (Store(2, index(0), Const(1.0, F32, 4)), *(more,) * 4, Store(0, index(0), total))
    summed = kernel(body, (4, 4), scratch=(4,))
    assert emit_text(summed, X86).count("v128.store") == 2
    assert emit_text(summed, X86, ALL - {"load_store_to_variable"}).count("v128.store") == 6
    data = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(run(summed, [data, data]), 1 + 4 * data)
    # b1 may be the same memory as b0: what lies there after the first store is read
    copied = Store(0, index(0), Load(1, index(4), F32, 4))
    read = Store(0, index(8), Load(1, index(0), F32, 4))
    assert emit_text(kernel((copied, read, copied), (12, 8)), X86).count("v128.store") == 3


def test_a_store_before_a_branch_stays() -> None:
    place, taken = Local("p", "i32", 0), Local("c", "i32", 0)
    stores = [WasmStore("i32.store", place, 0, const(n), 0) for n in (1, 2)]
    after = Func("f", (place, taken), (Block((stores[0], BrIf(0, taken), stores[1])),))
    assert load_store_to_variable(after) == after
    straight = Func("f", (place,), (Block(tuple(stores)),))
    (block,) = load_store_to_variable(straight).body
    assert isinstance(block, Block)
    assert [type(s) for s in block.body].count(WasmStore) == 1

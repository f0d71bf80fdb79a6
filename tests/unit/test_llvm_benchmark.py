"""The benchmark that has LLVM compile our loops: its C, and its modules in our bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.wasm import llvm, passes
from lab.subjects import alone, matmul_step, product_step
from tilewright.base.errors import HostError
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets.wasm import VARIANTS, compile_tile, link
from tilewright.targets.wasm.module import Import, Module, encode_module

#: A packed weight; columns that are copied to scratch memory first.
STEPS = {
    "weight": lambda: matmul_step(48, 32, 64),
    "copied": lambda: product_step("bmk,bkn->bmn", (2, 96, 96), (2, 96, 64), weight=False),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_module_gets_what_a_bundle_s_code_has(step: str) -> None:
    """Our own functions, in a module as a linker of C leaves it: our linker makes the same."""
    fn = passes.loops(STEPS[step]())
    code = compile_tile(fn, VARIANTS["x86"])
    imports = (Import("memory", "memory", 2), *([Import("scratch", "global")] * code.uses_scratch))
    foreign = encode_module(Module(imports, code.functions, (("k0", 1), ("other", 0))))
    assert llvm.in_bundle(foreign, code.uses_scratch) == link([code], VARIANTS["x86"], 1)


def test_a_module_with_data_is_refused() -> None:
    with pytest.raises(HostError, match="more than functions"):
        llvm.in_bundle(b"\0asm\x01\0\0\0" + bytes((11, 1, 0)), False)


@pytest.mark.parametrize("step", STEPS)
def test_clang_s_code_runs_in_our_bundle(step: str, tmp_path: Path) -> None:
    made = STEPS[step]()
    try:
        llvm.clang()
    except HostError as error:
        pytest.skip(str(error))
    ours = alone(made, Options(variants=(passes.VARIANT,))).contents
    wanted = ran(ours, tmp_path / "ours")
    for name, text in passes.LLVM.items():
        fn = passes.loops(made, text.r0, text.lanes)
        found, _ = llvm.compiled(llvm.text_of(fn), tmp_path, text.flags)
        theirs = passes.exchanged(ours, llvm.in_bundle(found, bool(fn.scratch)))
        output = ran(theirs, tmp_path / name)
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def ran(contents: Any, path: Path) -> np.ndarray[Any, Any]:
    write(contents, path)
    inputs = passes.inputs_of(path)
    (output,) = WasmtimeHost(path, threads=1).run(inputs).outputs.values()
    return output

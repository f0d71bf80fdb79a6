"""8-bit weights stored as bytes: four in a word, the first in the low bits.

Input: buffers of kernels, programs.  Output: the buffers that are stored so, and the text of their
elements.  Other 8-bit elements take a word each, since several threads may store to them.
"""

from __future__ import annotations

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F32, I8, U8, DType
from tilewright.base.errors import CompilerBug, ensure
from tilewright.kernel.expr import Call, Const, dtype_of
from tilewright.kernel.layout import Blocks
from tilewright.kernel.spec import Buffer
from tilewright.plan import Program


def in_bytes(buffer: Buffer) -> bool:
    """True for block-quantised weights of 8 bits, and zero points; these are always constants."""
    return buffer.dtype in (I8, U8) and isinstance(buffer.layout, Blocks)


def byte_tensors(program: Program) -> frozenset[int]:
    """The tensors that are stored as bytes: all of their readers must allow it."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for plan in program.plans:
        for step in plan.steps:
            kernel = program.kernels[step.kernel]
            buffers = kernel.buffers
            for access, buffer in zip(step.accesses, buffers, strict=True):
                value, packed = plan.values[access.value], in_bytes(buffer)
                if value.kind == "weight":
                    whole = not packed or access.offset % WORD_BYTES == 0
                    ensure(whole, "a tensor of bytes begins in a word", kernel=kernel.name)
                    found[packed].add(value.tensor)
                else:
                    ensure(not packed, f"a {value.kind} is stored as bytes", kernel=kernel.name)
    both = sorted(found[True] & found[False])
    ensure(not both, "only some readers of these tensors take them as bytes", tensors=both)
    return frozenset(found[True])


def element(word: str, at: str, dtype: DType) -> str:
    """The text of a buffer's element, from the word that contains it."""
    return f"{dtype.name}_at({word}, u32({at}))"


def as_floats(word: str, dtype: DType) -> str:
    """The text of all four bytes of a word as f32."""
    return f"{dtype.name}_real({word})"


def on_bytes(e: Call, args: list[str]) -> str:
    """The text of an operation on packed bytes: subtract 128, reinterpret the sign, or f32 to
    i8."""
    match e:
        case Call("cast", (Call("round", _),)) if e.dtype == I8 and dtype_of(e.operands[0]) == F32:
            # Adding a large constant rounds x; the last bits of the sum are the integer.
            x = args[0].removeprefix("round")
            whole = f"clamp({x}, vec4<f32>(-128.0), vec4<f32>(127.0)) + vec4<f32>(12582912.0)"
            return f"pack4xU8(bitcast<vec4<u32>>({whole}))"
        case Call("sub", (_, Const(128, _, _))):
            return f"({args[0]} ^ 0x80808080u)"
        case Call("cast", (x,)) if dtype_of(x) in (I8, U8):
            return args[0]
    raise CompilerBug(f"no text for packed bytes: {e}")

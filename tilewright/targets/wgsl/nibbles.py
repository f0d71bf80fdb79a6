"""Converts 4-bit integers to f32 by bit operations: on GPUs a conversion is slower than an
addition.

Input: an expression.  Output: its text if it is such an integer, at a constant place of a word,
minus a constant; otherwise None.  The 4 bits are put into the fraction of a number whose exponent
matches their place, so only bits at the high end of a word need a shift:

    f32(nibble(w, 8)) - 8   ->   bitcast<f32>((w & 0xf00) | exponent of 2^15) - (2^15 + 8)
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtypes import F32, I32
from tilewright.kernel.expr import Call, Const, Expr

#: Bits of an f32's fraction; the last place of a nibble that lies wholly within them; the shift of
#: later nibbles.
MANTISSA, LAST, SHIFT = 23, 16, 12
BIAS = 127


def small(e: Call, text_of: Callable[[Expr], str]) -> str | None:
    """The text of (f32(nibble(words, place)) - zero), where place and zero are constants."""
    number, zero = e, 0.0
    if e.fn == "sub" and isinstance(e.operands[0], Call) and isinstance(e.operands[1], Const):
        number, zero = e.operands[0], float(e.operands[1].value)
    if number.fn != "cast" or number.dtype != F32 or not zero.is_integer() or abs(zero) > 16:
        return None
    (nibble,) = number.operands
    if not isinstance(nibble, Call) or nibble.fn != "nibble" or nibble.dtype != I32:
        return None
    words, place = nibble.operands
    if not isinstance(place, Const):
        return None
    lanes = nibble.lanes
    whole, real = ("i32", "f32") if lanes == 1 else (f"vec{lanes}<i32>", f"vec{lanes}<f32>")
    text, at = text_of(words), int(place.value)
    if at > LAST:
        text, at = f"({text} >> {whole.replace('i32', 'u32')}({SHIFT}))", at - SHIFT
    bits = f"({text} & {whole}({15 << at})) | {whole}({BIAS + MANTISSA - at << MANTISSA:#x})"
    return f"(bitcast<{real}>({bits}) - {real}({2 ** (MANTISSA - at) + zero}))"

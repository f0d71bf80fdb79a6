"""ONNX matrix products as contractions.

Input: operand nodes and attributes.  Output: nodes.  A batch axis that is broadcast in one operand
is left out of that operand's letters, so nothing is repeated in memory.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from tilewright.base.dtypes import F32
from tilewright.base.errors import InvalidModel, ShapeError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.elementwise import one_dtype
from tilewright.graph.node import Node, cast, contract, iota, transpose


def product(a: Node, b: Node, left: str, right: str, out: str) -> Node:
    """An einsum of two operands, in which an axis of extent 1 may meet one of any extent."""
    one_dtype(a, b)
    extents = _extents(a, left), _extents(b, right)
    common = {k: next((e[k] for e in extents if e.get(k, 1) != 1), 1) for k in left + right}
    a, left = _needed(a, left, right + out, common)
    b, right = _needed(b, right, left + out, common)
    return contract(f"{left},{right}->{out}", a, b)


def _extents(x: Node, letters: str) -> dict[str, int]:
    if len(letters) != x.rank:
        raise ShapeError(f"{len(letters)} letters for {x.rank} axes", shape=x.shape)
    return dict(zip(letters, x.shape, strict=True))


def _needed(x: Node, letters: str, others: str, common: dict[str, int]) -> tuple[Node, str]:
    """The operand without axes of extent 1 that the other operand has in full, and summed over axes
    that only it has."""
    lonely = [i for i, k in enumerate(letters) if k not in others]
    x = al.total(x, lonely) if lonely else x
    gone = [
        i for i, (k, n) in enumerate(zip(letters, x.shape, strict=True))
        if i in lonely or (n == 1 and common[k] != 1)
    ]  # fmt: skip
    return al.squeeze(x, gone), "".join(k for i, k in enumerate(letters) if i not in gone)


@operator("MatMul")
def matmul(a: Node, b: Node) -> Node:
    """NumPy's matmul: the last two axes multiply, the others are batches."""
    if not a.rank or not b.rank:
        raise ShapeError("MatMul needs at least one axis", shape=[a.shape, b.shape])
    batch = "abcdefghij"[: max(a.rank - 2, b.rank - 2, 0)]
    left = (batch + "mk")[-a.rank :] if a.rank > 1 else "k"
    right = (batch + "kn")[-b.rank :] if b.rank > 1 else "k"
    return product(a, b, left, right, batch + "m" * (a.rank > 1) + "n" * (b.rank > 1))


@operator("Gemm")
def gemm(
    a: Node,
    b: Node,
    c: Node | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Node:
    """alpha * a b + beta * c.  Integers with fractional alpha or beta are computed in f32 and
    truncated."""
    made = product(a, b, "km" if transA else "mk", "nk" if transB else "kn", "mn")
    whole = made.dtype
    if c is not None:
        one_dtype(made, c)
    if not whole.is_float and not (alpha.is_integer() and (c is None or beta.is_integer())):
        made, c = cast(made, F32), None if c is None else cast(c, F32)
    made = made if alpha == 1.0 else al.mul(made, alpha)
    if c is not None and beta != 0.0:
        made = al.add(made, c if beta == 1.0 else al.mul(c, beta))
    return cast(made, whole)


@operator("Einsum")
def einsum(first: Node, *more: Node, equation: str) -> Node:
    """An einsum of any number of operands, contracted two at a time from the left."""
    terms, out = _parse(equation, [first, *more])
    pairs = [_diagonal(x, term) for x, term in zip((first, *more), terms, strict=True)]
    terms = [term for _, term in pairs]
    x, letters = pairs[0]
    for i, (y, term) in enumerate(pairs[1:]):
        later = "".join(terms[i + 2 :]) + out
        kept = "".join(dict.fromkeys(k for k in letters + term if k in later))
        target = out if i + 2 == len(terms) else kept
        x, letters = product(x, y, letters, term, target), target
    if len(terms) == 1:
        lonely = [i for i, k in enumerate(letters) if k not in out]
        x = al.squeeze(al.total(x, lonely), lonely)
        letters = "".join(k for k in letters if k in out)
        x = transpose(x, [letters.index(k) for k in out])
    return x


def _diagonal(x: Node, letters: str) -> tuple[Node, str]:
    """The operand without repeated letters: the diagonal of axes that share a letter."""
    for k in dict.fromkeys(letters):
        while letters.count(k) > 1:
            i, j = letters.index(k), letters.rindex(k)
            same = al.equal(iota(x.shape, i), iota(x.shape, j))
            x = al.squeeze(al.total(al.where(same, x, 0), (j,)), (j,))
            letters = letters[:j] + letters[j + 1 :]
    return x, letters


def _parse(equation: str, operands: Sequence[Node]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; an ellipsis becomes capital letters."""
    text, _, out = equation.replace(" ", "").partition("->")
    terms = text.split(",")
    if len(terms) != len(operands):
        raise InvalidModel(f"equation {equation!r} does not have {len(operands)} operands")
    free = [c for c in string.ascii_uppercase[::-1] + string.ascii_lowercase if c not in equation]
    ranks = [x.rank - len(t) + 3 for x, t in zip(operands, terms, strict=True) if "..." in t]
    dots = "".join(free[: max(ranks, default=0)])
    full = [
        t.replace("...", dots[len(dots) - (x.rank - len(t) + 3) :]) if "..." in t else t
        for x, t in zip(operands, terms, strict=True)
    ]
    every = "".join(terms).replace(".", "")
    once = dots + "".join(sorted(k for k in set(every) if every.count(k) == 1))
    result = out.replace("...", dots) if "->" in equation else once
    given = set("".join(full))
    wrong = sorted(k for k in set(result) if k not in given or result.count(k) > 1)
    if wrong:
        raise InvalidModel(
            f"equation {equation!r} has {wrong[0]!r} in its result "
            f"{'twice' if wrong[0] in given else 'and in no operand'}",
            hint="Correct the equation in the model, or export it again",
        )
    return full, result

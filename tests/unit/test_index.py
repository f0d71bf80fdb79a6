"""Index algebra: simplification never changes a value, and views fold into strides."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.kernel.index import Div, Index, Mod, Var, flatten, index, unflatten

VARS = (Var("a", 3), Var("b", 4), Var("c", 5))


def value(i: Index, env: dict[Var, int]) -> int:
    total = i.const
    for atom, c in i.terms:
        if isinstance(atom, Var):
            total += c * env[atom]
        elif isinstance(atom, Div):
            assert value(atom.value, env) >= 0, "targets divide without sign"
            total += c * (value(atom.value, env) // atom.by)
        elif isinstance(atom, Mod):
            assert value(atom.value, env) >= 0, "targets divide without sign"
            total += c * (value(atom.value, env) % atom.by)
    return total


@st.composite
def trees(draw: st.DrawFn, depth: int = 3):
    """(index built by the algebra, the same computed with plain integers)."""
    kind = draw(st.sampled_from(["var", "add", "mul", "div", "mod"] if depth else ["var"]))
    if kind == "var":
        v = draw(st.sampled_from(VARS))
        c = draw(st.integers(-3, 8))
        return index(v) + c, lambda env, v=v, c=c: env[v] + c
    left, plain = draw(trees(depth - 1))
    if kind == "add":
        right, other = draw(trees(depth - 1))
        return left + right, lambda env: plain(env) + other(env)
    n = draw(st.integers(1, 12))
    if kind == "mul":
        n = draw(st.sampled_from([n, -n]))
        return left * n, lambda env: plain(env) * n
    if kind == "div":
        return left // n, lambda env: plain(env) // n
    return left % n, lambda env: plain(env) % n


@settings(max_examples=300)
@given(trees())
def test_simplified_equals_plain_arithmetic(pair) -> None:
    simplified, plain = pair
    low, high = simplified.bounds
    for point in itertools.product(*(range(v.extent) for v in VARS)):
        env = dict(zip(VARS, point, strict=True))
        assert value(simplified, env) == plain(env)
        assert low <= plain(env) <= high


@settings(max_examples=100)
@given(trees(depth=2), st.sampled_from([(1, 1), (2, 0)]))
def test_substitution_equals_evaluation(pair, by) -> None:
    simplified, plain = pair
    a, b, c = VARS
    outer, inner = Var("o", 2), Var("i", 2)
    replaced = simplified.substitute({a: index(outer) * by[0] + index(inner) * by[1]})
    for o, i, vb, vc in itertools.product(range(2), range(2), range(4), range(5)):
        got = value(replaced, {outer: o, inner: i, b: vb, c: vc})
        assert got == plain({a: o * by[0] + i * by[1], b: vb, c: vc})


def test_reshape_of_merged_heads_is_affine() -> None:
    s, h, d = Var("s", 128), Var("h", 12), Var("d", 64)
    flat = flatten((index(s), index(h), index(d)), (128, 12, 64))
    at = unflatten(flat, (128, 768))
    assert at == (index(s), index(h) * 64 + index(d))


def test_panel_index_becomes_affine_in_a_tile() -> None:
    n, p, lane = Var("n", 384), Var("p", 48), Var("lane", 8)
    packed = (index(n) // 8) * 800 + index(n) % 8
    assert packed.substitute({n: index(p) * 8 + index(lane)}) == index(p) * 800 + index(lane)


def test_flipped_axis_in_another_shape() -> None:
    """reshape(flip(x)): (7 - i) // 4 was 1 for every i"""
    i = Var("i", 8)
    rows, cols = unflatten(index(i) * -1 + 7, (2, 4))
    for n in range(8):
        assert (value(rows, {i: n}), value(cols, {i: n})) == divmod(7 - n, 4)


def test_split_halves_meet_again() -> None:
    n = index(Var("n", 100))
    assert (n // 8) * 8 + n % 8 == n


def test_a_line_split_in_three_meets_again() -> None:
    n, shape = index(Var("n", 648)), (9, 9, 8)
    assert flatten(unflatten(n, shape), shape) == n

"""Random graphs over the whole op table.

Input: a seed.  Output: a `Graph` and input values.  Values are small whole numbers and every
function is exact on them, so that each stage of the compiler must give equal results.
"""

from __future__ import annotations

import math
from math import prod
from random import Random

import numpy as np

from helpers.graphs import Inputs
from tilewright.base.dtypes import BOOL, F32, I32, I64, DType
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    broadcast_shape,
    cast,
    concat,
    constant,
    contract,
    elementwise,
    flip,
    gather,
    graph_input,
    iota,
    node,
    pad,
    reduce,
    reshape,
    scalar_like,
    slice_,
    toposort,
    transpose,
    unfold,
)

SIZE = 200  # elements of a random tensor
LIMIT = 4000.0  # largest number of a random graph: f32 sums of thousands of them stay exact


class GraphMaker:
    """Grows a graph node by node; `bounds` holds the largest absolute value a node can have."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.inputs: dict[str, Node] = {}
        self.values: Inputs = {}
        self.pool: list[Node] = []
        self.bounds: dict[Node, float] = {}

    # ---- leaves ----------------------------------------------------------------------------------

    def shape(self) -> tuple[int, ...]:
        extents: list[int] = []
        for _ in range(self.rng.choice((0, 1, 2, 2, 3, 3, 4))):
            fits = [n for n in (1, 2, 3, 4, 5, 6, 8) if n * prod(extents) <= SIZE // 2]
            extents.append(self.rng.choice(fits))
        return tuple(extents)

    def numbers(self, shape: tuple[int, ...], dtype: DType, low: int, high: int) -> np.ndarray:
        made = np.random.default_rng(self.rng.getrandbits(32)).integers(low, high, shape)
        return np.asarray(made).astype(dtype.numpy)

    def leaf(self, shape: tuple[int, ...], dtype: DType = F32) -> Node:
        low, high = (0, 2) if dtype == BOOL else (-2, 3)
        value = self.numbers(shape, dtype, low, high)
        kind = self.rng.random()
        if kind < 0.6:
            name = f"x{len(self.inputs)}"
            made = self.inputs[name] = graph_input(name, shape, dtype)
            self.values[name] = value
        elif kind < 0.8:
            made = node(ops.Weight(f"w{len(self.bounds)}", shape, dtype, lambda: value))
        elif kind < 0.9:
            made = node(ops.Constant(value))
        else:
            made = broadcast(constant(self.rng.randint(-2, 2), dtype), shape)
        return self.keep(made, 2.0)

    def keep(self, n: Node, bound: float) -> Node:
        self.bounds[n] = max(bound, self.bounds.get(n, 0.0))
        self.pool.append(n)
        return n

    def pick(self, dtype: DType | None = F32) -> Node:
        fits = [n for n in self.pool if dtype is None or n.dtype == dtype]
        if not fits or self.rng.random() < 0.15:
            return self.leaf(self.shape(), dtype or F32)
        return self.rng.choice(fits[-self.rng.choice((1, 1, 2, 5, 50)) :])

    def partner(self, x: Node) -> Node:
        """A node that broadcasts with `x`; often one that exists."""
        fits = [n for n in self.pool if n.dtype == x.dtype and self.joins(n, x)]
        if fits and self.rng.random() < 0.6:
            return self.rng.choice(fits)
        shape = [n if self.rng.random() < 0.7 else 1 for n in x.shape]
        return self.leaf(tuple(shape[self.rng.randint(0, len(shape)) :]), x.dtype)

    @staticmethod
    def joins(a: Node, b: Node) -> bool:
        pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
        fits = all(n == m or 1 in (n, m) for n, m in pairs)
        return fits and prod(broadcast_shape([a.shape, b.shape])) <= SIZE

    # ---- steps -----------------------------------------------------------------------------------

    def grow(self) -> None:
        steps = {
            self.unary: 1, self.binary: 2, self.choose: 1, self.casts: 1, self.move: 9,
            self.fold: 2, self.product: 3, self.take: 1, self.joined: 2, self.repeated: 2,
            self.turned: 1,
        }  # fmt: skip
        (step,) = self.rng.choices(list(steps), list(steps.values()))
        step()

    def unary(self) -> None:
        x = self.pick()
        fn = self.rng.choice(("neg", "abs", "floor", "ceil", "round"))
        self.keep(elementwise(fn, x), self.bounds[x])

    def binary(self) -> None:
        x = self.pick(self.rng.choice((F32, F32, F32, I64, I32)))
        y = self.partner(x)
        a, b = self.bounds[x], self.bounds[y]
        fn = self.rng.choice(("add", "sub", "mul", "max", "min"))
        bound = {"mul": a * b, "add": a + b, "sub": a + b}.get(fn, max(a, b))
        if bound > LIMIT:
            return
        pair = (x, y) if self.rng.random() < 0.7 else (y, x)
        self.keep(elementwise(fn, *pair), bound)

    def repeated(self) -> None:
        """x * 1, x + 0, pow(x, 2), broadcast: what rewrites look for."""
        x = self.pick()
        kind = self.rng.randrange(5)
        if kind == 4:
            self.keep(node(ops.Elementwise("cast", x.dtype), x), self.bounds[x])
        elif kind == 0:
            fn = self.rng.choice(("mul", "div"))
            pair = [x, scalar_like(1, x)]
            if fn == "mul" and self.rng.random() < 0.5:
                pair.reverse()
            self.keep(elementwise(fn, *pair), self.bounds[x])
        elif kind == 1:
            pair = [x, scalar_like(0, x)]
            if self.rng.random() < 0.5:
                pair.reverse()
            self.keep(elementwise(self.rng.choice(("add", "sub")), *pair), self.bounds[x])
        elif kind == 2 and self.bounds[x] ** 2 <= LIMIT:
            self.keep(elementwise("pow", x, scalar_like(2, x)), self.bounds[x] ** 2)
        elif x.size * 3 <= SIZE:
            shape = tuple(n if n > 1 else 3 for n in x.shape)
            if prod(shape) <= SIZE:
                self.keep(broadcast(x, shape), self.bounds[x])

    def turned(self) -> None:
        """concat or sum of two tensors under one transpose"""
        x = self.pick()
        if x.rank < 2 or 2 * x.size > SIZE:
            return
        perm = list(range(x.rank))
        self.rng.shuffle(perm)
        y = self.leaf(x.shape)
        both = [transpose(x, perm), transpose(y, perm)]
        if self.rng.random() < 0.5:
            made = concat(both, self.rng.randrange(x.rank))
        else:
            made = elementwise("max", *both)
        self.keep(made, max(self.bounds[x], 2.0))

    def choose(self) -> None:
        x = self.pick()
        y = self.partner(x)
        test = elementwise(self.rng.choice(("lt", "le", "eq")), x, y)
        if self.rng.random() < 0.3:
            test = elementwise("not", test)
        if self.rng.random() < 0.3:
            self.keep(test, 1.0)
        self.keep(elementwise("where", test, x, y), max(self.bounds[x], self.bounds[y]))

    def casts(self) -> None:
        x = self.pick(self.rng.choice((F32, I64, I32, BOOL)))
        to = self.rng.choice((F32, F32, I64, I32, BOOL))
        self.keep(cast(x, to), max(1.0, self.bounds[x]))

    def move(self) -> None:
        x = self.pick(self.rng.choice((*[F32] * 8, I64, BOOL)))
        if not x.rank:
            self.keep(reshape(x, (1,) * self.rng.randint(1, 3)), self.bounds[x])
            return
        axis = self.rng.randrange(x.rank)
        choices = (self._transpose, self._transpose, self._reshape, self._reshape, self._slice,
                   self._pad, self._flip, self._unfold)  # fmt: skip
        made = self.rng.choice(choices)(x, axis)
        if made.size <= SIZE:
            self.keep(made, self.bounds[x] + 1)

    def _transpose(self, x: Node, axis: int) -> Node:
        perm = list(range(x.rank))
        self.rng.shuffle(perm)
        return transpose(x, perm)

    def _reshape(self, x: Node, axis: int) -> Node:
        new, rest = [], x.size
        while rest > 1:
            factor = self.rng.choice([n for n in range(2, rest + 1) if rest % n == 0])
            new.append(factor)
            rest //= factor
        for _ in range(self.rng.choice((0, 0, 1))):
            new.insert(self.rng.randint(0, len(new)), 1)
        return reshape(x, new)

    def _slice(self, x: Node, axis: int) -> Node:
        starts = [self.rng.randint(0, n - 1) for n in x.shape]
        steps = [self.rng.randint(1, 3) for _ in x.shape]
        spans = zip(x.shape, starts, steps, strict=True)
        return slice_(x, starts, [(n - s - 1) // by + 1 for n, s, by in spans], steps)

    def _pad(self, x: Node, axis: int) -> Node:
        before, after = ([self.rng.choice((0, 0, 1, 2)) for _ in x.shape] for _ in range(2))
        value = bool(self.rng.randint(0, 1)) if x.dtype == BOOL else self.rng.randint(-1, 1)
        return pad(x, before, after, value)

    def _flip(self, x: Node, axis: int) -> Node:
        return flip(x, {axis, self.rng.randrange(x.rank)})

    def _unfold(self, x: Node, axis: int) -> Node:
        size = self.rng.randint(1, min(3, x.shape[axis]))
        dilation = self.rng.randint(1, 2)
        if (size - 1) * dilation + 1 > x.shape[axis]:
            dilation = 1
        return unfold(x, axis, size, self.rng.randint(1, 2), dilation)

    def fold(self) -> None:
        x = self.pick(self.rng.choice((F32, F32, F32, I64)))
        if not x.rank:
            return
        axes = self.rng.sample(range(x.rank), self.rng.randint(1, x.rank))
        fn = self.rng.choice(("sum", "sum", "max", "min"))
        bound = self.bounds[x] * (prod(x.shape[a] for a in axes) if fn == "sum" else 1)
        if bound > LIMIT:
            return
        small = self.keep(reduce(fn, x, axes), bound)
        if self.rng.random() < 0.5:  # row-wise: x - reduce(x), then perhaps once more
            centred = self.keep(elementwise("sub", x, small), bound + self.bounds[x])
            if self.rng.random() < 0.6:
                top = self.keep(reduce("max", centred, axes), self.bounds[centred])
                self.keep(elementwise("min", centred, top), self.bounds[centred])

    def product(self) -> None:
        """A contraction of one to three letters that both have, with batch and lone letters."""
        a = self.pick()
        if not 1 <= a.rank <= 5:
            return
        letters = "abcde"[: a.rank]
        shared = [c for c in letters if self.rng.random() < 0.6] or [letters[-1]]
        batch = [c for c in shared if self.rng.random() < 0.35]
        extents = dict(zip(letters, a.shape, strict=True))
        new = {"n": self.rng.choice((1, 2, 3, 7, 8, 9))} if self.rng.random() < 0.85 else {}
        if self.rng.random() < 0.25:
            new["o"] = self.rng.randint(1, 3)
        summed_alone = {"s": 2} if self.rng.random() < 0.1 else {}
        right = [*shared, *new, *summed_alone]
        self.rng.shuffle(right)
        extents |= new | summed_alone
        out = [c for c in letters if c not in shared or c in batch]
        if out and self.rng.random() < 0.1:
            out.remove(self.rng.choice(out))
        out += new
        if self.rng.random() < 0.4:
            self.rng.shuffle(out)
        shape = tuple(extents[c] for c in right)
        fits = [n for n in self.pool if n.dtype == F32 and n.shape == shape]
        b = self.rng.choice(fits) if fits and self.rng.random() < 0.5 else self.operand(shape)
        depth = prod(n for c, n in extents.items() if c not in out)
        bound = self.bounds[a] * self.bounds[b] * depth
        if bound > LIMIT or prod(extents[c] for c in out) > SIZE or depth > 64:
            return
        pair = [(letters, a), ("".join(right), b)]
        if self.rng.random() < 0.3:
            pair.reverse()
        (la, left), (lb, other) = pair
        made = self.keep(contract(f"{la},{lb}->{''.join(out)}", left, other), bound)
        if self.rng.random() < 0.5:  # bias and activation
            y = self.partner(made)
            if bound + self.bounds[y] <= LIMIT and self.joins(made, y):
                summed = self.keep(elementwise("add", made, y), bound + self.bounds[y])
                self.keep(elementwise("max", summed, scalar_like(0, summed)), self.bounds[summed])

    def operand(self, shape: tuple[int, ...]) -> Node:
        """A leaf, or a view of one that ends in `shape`."""
        if self.rng.random() < 0.5 or len(shape) < 2:
            return self.leaf(shape)
        perm = list(range(len(shape)))
        self.rng.shuffle(perm)
        made = transpose(self.leaf(tuple(shape[perm.index(i)] for i in range(len(shape)))), perm)
        if self.rng.random() < 0.5:
            half = math.isqrt(prod(shape))
            if prod(shape) % max(half, 1) == 0:
                made = reshape(reshape(made, (prod(shape),)), shape)
        return self.keep(made, 2.0)

    def take(self) -> None:
        x = self.pick()
        if not x.rank:
            return
        axis = self.rng.randrange(x.rank)
        shape = self.rng.choice(((), (1,), (3,), (2, 2), (4,)))
        n = x.shape[axis]
        kind = self.rng.random()
        if kind < 0.5:
            name = f"i{len(self.inputs)}"
            picks = self.inputs[name] = graph_input(name, shape, self.rng.choice((I64, I32)))
            self.values[name] = self.numbers(shape, picks.dtype, 0, n)
        elif kind < 0.8:
            picks = constant(self.numbers(shape, I64, 0, n))
        else:
            picks = iota((n,), 0)
        if x.size // n * max(1, picks.size) <= SIZE:
            self.keep(gather(x, picks, axis), self.bounds[x])

    def joined(self) -> None:
        x = self.pick()
        if not x.rank:
            return
        axis = self.rng.randrange(x.rank)
        parts = [x]
        for _ in range(self.rng.randint(1, 2)):
            fits = [n for n in self.pool if n.dtype == x.dtype and n.rank == x.rank and all(
                i == axis or n.shape[i] == x.shape[i] for i in range(x.rank))]  # fmt: skip
            shape = list(x.shape)
            shape[axis] = self.rng.randint(1, 3)
            parts.append(self.rng.choice(fits) if fits else self.leaf(tuple(shape)))
        self.rng.shuffle(parts)
        if sum(p.size for p in parts) <= SIZE:
            self.keep(concat(parts, axis), max(self.bounds[p] for p in parts))


def random_graph(seed: int) -> tuple[Graph, Inputs]:
    rng = Random(f"graph{seed}")
    m = GraphMaker(rng)
    m.leaf(m.shape())
    for _ in range(rng.randint(2, 24)):
        m.grow()
    last = max(m.pool[-6:], key=lambda n: len(toposort([n])))
    outputs = [last, *(rng.choice(m.pool) for _ in range(rng.choice((0, 0, 1, 2))))]
    if rng.random() < 0.15:
        outputs.append(rng.choice([*m.inputs.values(), last]))
    if rng.random() < 0.1:
        outputs.append(constant(m.numbers((2, 3), F32, -2, 3)))
    named = tuple((f"y{i}", n) for i, n in enumerate(outputs))
    return Graph("random", tuple(m.inputs.items()), named), m.values

"""Attention: softmax(q·kᵀ)·v of a block of query rows, whose scores stay in scratch memory.

Input: a kernel with two contractions and a softmax between.  Output: a `TileFn`: one tile is about
`x1` query rows of one head.  For each block of `y1` keys, register tiles compute scores into
scratch, one exponential per score is computed in place, and register tiles multiply by v.

    all keys in one block:  context = exp(s - max) · v,  stored with the division by the sum
    several blocks:         running maximum M, sum L and context C of each row ("online softmax",
                            Milakov and Gimelshein 2018): M' = max(M, max s), f = exp(M - M'),
                            L' = f·L + sum exp(s - M'), C' = f·C + exp(s - M')·v
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import BOOL, F32, I32
from tilewright.kernel.attention_masks import last_seen
from tilewright.kernel.expr import LOWEST, Acc, Bound, Call, Const, Expr, Load, Reg, Splat, larger
from tilewright.kernel.index import Index, Var, index, stride
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.simd.attention import AttentionSchedule
from tilewright.targets.simd.attention_tile import VECTORS, AttentionTile
from tilewright.targets.simd.vectorize import across_lanes, lane_sums, transposed, vector

#: Rows whose dot products are summed together, by the rows of a tile: at most 12 sums, with 4 keys.
DOTS = {2: 2, 3: 3, 4: 2}


def lower(kernel: Kernel, schedule: AttentionSchedule) -> TileFn:
    """Loops for tiles of x1 query rows of one head, in blocks of y1 keys."""
    return _Lowering(kernel, schedule).lower()


class _Lowering(AttentionTile):
    """Builds the parts of a tile in order: scores, softmax, context."""

    # ---- the whole tile --------------------------------------------------------------------------

    def lower(self) -> TileFn:
        full, rest = divmod(self.at.keys.extent, self.block)
        end = self.b.end(self.at.keys) if self.b.limited(self.at.keys) else self._seen()
        if not self.online:
            self._block(Index(), self.block, end)
            return self.b.finish(self.kernel, tuple(self.scratch))
        with self._each_row() as row:
            self.b.store(self.tops, row, Const(LOWEST, F32))
            self.b.store(self.sums, row, Const(0.0, F32))
        with self.b.loop("z", Index(), self.b.let(self.count * self.at.n.extent)) as z:
            self.b.store(self.sofar, z, Const(0.0, F32))
        if end is None:
            with self.b.loop("block", Index(), index(full)) as block:
                self._block(self.b.let(block * self.block), self.block)
            if rest:
                self._block(index(full * self.block), rest)
        else:
            self._blocks(end, full, rest)
        self._finish()
        return self.b.finish(self.kernel, tuple(self.scratch))

    def _seen(self) -> Index | None:
        """The number of keys that some row of the tile sees, at least 1; None if the mask does not
        say."""
        last = last_seen(self.at)
        if last is None:
            return None
        row = {self.at.m: self.b.let(self.first + self.count - 1)}
        keys = Call("add", (last.substitute(self.values | row), Const(1, I32)), I32)
        return self.b.uniform(keys, self.at.keys.extent, "seen", least=1)

    def _blocks(self, end: Index, full: int, rest: int) -> None:
        """Blocks up to a run-time end; the last one may have fewer keys."""
        b = self.b
        count = b.let_min(index(full), b.let((end + (self.block - 1)) // self.block))
        with b.loop("block", Index(), count) as block:
            start = b.let(block * self.block)
            self._block(start, self.block, b.let_min(index(self.block), end - start))
        if rest:
            start = index(full * self.block)
            with b.branch() as then:
                self._block(start, rest, b.within(end - start, rest + 1, "keys"))
            b.choose((Bound(end - (start + 1), self.at.keys.extent),), then)

    def _block(self, start: Index, keys: int, end: Index | None = None) -> None:
        """Scores, softmax and context of `keys` keys from `start` on.

        end: the number of keys that exist, where it is known only at run time
        """
        if end is None:
            self._pad(keys)
            self._scores(start, keys)
        else:
            self._scores(start, keys, end)
            self._pad_from(end)
        if self.online:
            self._softmax_so_far(keys, end)
        else:
            self._softmax(keys, end)
        self._context(start, keys, end)

    # ---- scores ----------------------------------------------------------------------------------

    def _pad(self, keys: int) -> None:
        """Sets the lanes of a row's last pass that hold no score to -inf, so that exp makes 0 of
        them."""
        step = VECTORS * self.lanes
        first, end = keys // self.lanes * self.lanes, -(-keys // step) * step
        if keys == end:
            return
        with self._each_row() as row:
            for at in range(first, end, self.lanes):
                low = Const(float("-inf"), F32, self.lanes)
                self.b.store(self.scores, row * self.width + at, low)

    def _pad_from(self, end: Index) -> None:
        """The same after a run-time end, once the scores of whole panels are stored."""
        b, step = self.b, VECTORS * self.lanes
        last = b.let((end + (step - 1)) // step * step)
        with self._each_row() as row, b.loop("z", end, last, extent=self.width) as z:
            b.store(self.scores, row * self.width + z, Const(float("-inf"), F32))

    def _scores(self, start: Index, keys: int, end: Index | None = None) -> None:
        at, y0 = self.at, self.schedule.y0
        rows = {at.m: self.first + index(self.local)}
        argument = at.argument.substitute(rows | {at.keys: start + index(self.key)})
        q = at.q.at(at.q.index.substitute(rows))
        k = at.k.at(at.moved(at.k.index, start, self.key))
        if not self._staged("k") and stride(at.k.index, at.keys) != 1:
            self._dots(argument, q, k, keys, end)
            return
        argument = rewrite(argument, lambda e: Acc(0, F32) if isinstance(e, Acc) else e)
        col = k
        if self._staged("k"):
            col = Load(self.k_panel, index(at.depth) * y0 + index(self.key) % y0, F32)
        store = index(self.local) * self.width + index(self.key)
        tile = self._tile(q, col, self.key, at.depth, argument, store, self.scores)
        with_panel = self._stage_keys if self._staged("k") else None
        for panel, cols in self._panels(keys, end):
            if with_panel is not None:
                with_panel(k, panel, cols)
            for local, count in self._row_tiles():
                self._emit(tile, local, count, panel, self.values, cols)

    def _stage_keys(self, k: Load, panel: Index, cols: int) -> None:
        """Transposes k[key, d] of a panel to panel[d, key], by squares of lanes x lanes."""
        at, y0, lanes, b = self.at, self.schedule.y0, self.lanes, self.b
        squares = stride(k.index, at.depth) == 1
        whole, rest = divmod(at.depth.extent, lanes) if squares else (0, at.depth.extent)
        for group in range(0, -(-cols // lanes) * lanes, lanes):
            base = panel * y0 + group
            valid = min(cols - group, lanes)
            with b.loop("d", Index(), index(whole)) as d:
                values = {**self.values, at.depth: d * lanes}
                at_key = [k.index.substitute({**values, self.key: base + i}) for i in range(valid)]
                rows: list[Expr] = [replace(k, index=i, lanes=lanes) for i in at_key]
                rows += [Const(0.0, F32, lanes)] * (lanes - valid)
                for i, column in enumerate(transposed(b, rows)):
                    b.store(self.k_panel, (d * lanes + i) * y0 + group, column)
            with b.loop("d", index(whole * lanes), index(whole * lanes + rest)) as d:
                values = {**self.values, at.depth: d}
                column = vector(k, self.key, base, lanes, values, {}, valid % lanes)
                b.store(self.k_panel, d * y0 + group, column)

    def _dots(self, argument: Expr, q: Load, k: Load, keys: int, end: Index | None) -> None:
        """For few rows: each score is a dot product along the depth.  Rows share what they read of
        a key, if their sums fit registers."""
        b, whole = self.b, self.even and self.row_tiles <= self.group
        together = DOTS.get(self.most, 1) if whole else 1
        many = self.lanes * (2 if together == 1 else 1)
        groups = index(keys // many)
        if end is not None:
            groups = b.let_min(groups, b.let((end + (many - 1)) // many))
        with b.loop("row", Index(), self.count, together, self.most) as row:
            rows = [row + i for i in range(together)]
            with b.loop("keys", Index(), groups) as group:
                self._dots_of(argument, q, k, rows, group * many, many)
            if keys % many:
                self._dots_of(argument, q, k, rows, index(keys // many * many), keys % many)

    def _dots_of(
        self, argument: Expr, q: Load, k: Load, rows: list[Index], base: Index, count: int
    ) -> None:
        """The scores of some rows and of `count` keys from `base` on."""
        at, lanes, b = self.at, self.lanes, self.b
        whole, rest = divmod(at.depth.extent, lanes)
        values = [{**self.values, self.local: row} for row in rows]
        pairs = [(i, r) for i in range(count) for r in range(len(rows))]
        sums = {(i, r): Reg(f"dot{r}_{i}" if r else f"dot{i}", F32, lanes) for i, r in pairs}
        for reg in sums.values():
            b.set(reg.name, Const(0.0, F32, lanes))

        def step(d: Index, valid: int) -> None:
            def read(x: Load, i: int, r: int) -> Load:
                found = x.index.substitute({**values[r], at.depth: d, self.key: base + i})
                return replace(x, index=found, lanes=lanes, valid=valid)

            queries = [Reg(f"query{r}" if r else "query", F32, lanes) for r in range(len(rows))]
            for r, query in enumerate(queries):
                b.set(query.name, read(q, 0, r))
            for (i, r), reg in sums.items():
                factor: Expr = read(k, i, r)
                if len(rows) > 1:
                    b.set("shared", factor) if not r else None
                    factor = Reg("shared", F32, lanes)
                b.set(reg.name, Call("fma", (queries[r], factor, reg), F32, lanes))

        with b.loop("d", Index(), index(whole)) as d:
            step(d * lanes, 0)
        if rest:
            step(index(whole * lanes), rest)
        for r, row in enumerate(rows):
            for first in range(0, count, lanes):
                valid = min(count - first, lanes)
                some: list[Expr] = [sums[i, r] for i in range(first, first + valid)]
                some += [Const(0.0, F32, lanes)] * (lanes - valid)
                b.set("scores", lane_sums(some))
                known = {at.scores: Reg("scores", F32, lanes)}
                there = base + first
                value = vector(argument, self.key, there, lanes, values[r], known, valid % lanes)
                b.store(self.scores, row * self.width + there, value, valid % lanes)

    # ---- softmax ---------------------------------------------------------------------------------

    def _passes(self, keys: int, end: Index | None) -> Index:
        """The number of passes, of VECTORS vectors each, over a row's scores."""
        step = VECTORS * self.lanes
        if end is None:
            return index(-(-keys // step))
        return self.b.let((end + (step - 1)) // step, "passes")

    def _softmax(self, keys: int, end: Index | None) -> None:
        """Replaces scores by exp(scores - maximum), and computes the sum of each row."""
        passes = self._passes(keys, end)
        with self._each_row() as row:
            self._maximum(row, passes)
            self._powers(row, passes)
            self.b.store(self.sums, row, Reg("sum", F32))

    def _softmax_so_far(self, keys: int, end: Index | None) -> None:
        """The same with the running maximum, and the factor by which it rescales earlier blocks."""
        b, top = self.b, Reg("top", F32)
        passes = self._passes(keys, end)
        with self._each_row() as row:
            self._maximum(row, passes)
            before = Reg("before", F32)
            b.set("before", Load(self.tops, row, F32))
            b.set("top", larger(before, top))
            b.set("factor", Call("exp", (Call("sub", (before, top), F32),), F32))
            b.store(self.tops, row, top)
            b.store(self.factors, row, Reg("factor", F32))
            self._powers(row, passes)
            both = (Load(self.sums, row, F32), Reg("factor", F32), Reg("sum", F32))
            b.store(self.sums, row, Call("fma", both, F32))

    def _maximum(self, row: Index, passes: Index) -> None:
        """The row's largest score.  A NaN may be lost here, but exp(NaN - maximum) is NaN again."""
        b, lanes = self.b, self.lanes
        tops = [Reg(f"top{i}", F32, lanes) for i in range(VECTORS)]
        for t in tops:
            b.set(t.name, Const(float("-inf"), F32, lanes))
        step = VECTORS * lanes
        with b.loop("u", Index(), passes) as u:
            for i, t in enumerate(tops):
                at = row * self.width + u * step + i * lanes
                b.set("score", Load(self.scores, at, F32, lanes))
                b.set(t.name, larger(t, Reg("score", F32, lanes)))
        for t in tops[1:]:
            b.set(tops[0].name, larger(tops[0], t))
        b.set("top", across_lanes("max", tops[0]))

    def _powers(self, row: Index, passes: Index) -> None:
        b, lanes = self.b, self.lanes
        sums = [Reg(f"sum{i}", F32, lanes) for i in range(2)]
        for s in sums:
            b.set(s.name, Const(0.0, F32, lanes))
        b.set("tops", Splat(Reg("top", F32), lanes))
        with b.loop("u", Index(), b.let(passes * (VECTORS // len(sums)))) as u:
            for i, s in enumerate(sums):
                at = row * self.width + u * (len(sums) * lanes) + i * lanes
                score = Load(self.scores, at, F32, lanes)
                centred = Call("sub", (score, Reg("tops", F32, lanes)), F32, lanes)
                power = Reg(f"power{i}", F32, lanes)
                b.set(power.name, Call("exp", (centred,), F32, lanes))
                b.set(s.name, Call("add", (s, power), F32, lanes))
                b.store(self.scores, at, power)
        b.set(sums[0].name, Call("add", (sums[0], sums[1]), F32, lanes))
        b.set("sum", across_lanes("sum", sums[0]))

    # ---- context ---------------------------------------------------------------------------------

    def _context(self, start: Index, keys: int, end: Index | None) -> None:
        """Multiplies powers by v, into the output or added to the context of earlier blocks."""
        at, local = self.at, index(self.local)
        key = Var(self.key.name, keys)
        v = at.v.at(at.moved(at.v.index, start, key))
        if self._staged("v"):
            self._stage_values(v, key, end)
            v = Load(self.v_copy, index(key) * self.v_width + index(at.n), F32)
        row = Load(self.scores, local * self.width + index(key), F32)
        if self.online:
            store = local * at.n.extent + index(at.n)
            before = (Load(self.sofar, store, F32), Load(self.factors, local, F32), Acc(0, F32))
            value: Expr = Call("fma", before, F32)
            tile = self._tile(row, v, at.n, key, value, store, self.sofar)
        else:
            moved = {at.m: self.first + local}
            value, store = self._value(Load(self.sums, local, F32), Acc(0, F32)), self.kernel.store
            value, store = value.substitute(moved), store.substitute(moved)
            tile = self._tile(row, v, at.n, key, value, store, 0)
        for panel, cols in self._panels(at.n.extent):
            for base, rows in self._row_tiles():
                self._emit(tile, base, rows, panel, self.values, cols, end)

    def _stage_values(self, v: Load, key: Var, end: Index | None) -> None:
        """Copies v[key, n] of the block to scratch, row by row."""
        b, at, lanes = self.b, self.at, self.lanes
        with b.loop("key", Index(), index(key.extent) if end is None else end) as k:
            values = {**self.values, key: k}
            for first in range(0, at.n.extent, lanes):
                valid = min(at.n.extent - first, lanes) % lanes
                row = vector(v, at.n, index(first), lanes, values, {}, valid)
                b.store(self.v_copy, k * self.v_width + first, row)

    def _finish(self) -> None:
        """Stores the value of each row from its context and sum."""
        at, lanes, b = self.at, self.lanes, self.b
        whole, rest = divmod(at.n.extent, lanes)
        with self._each_row() as row:
            total = Load(self.sums, row, F32)
            none = Call("eq", (total, Const(0.0, F32)), BOOL)
            # A row without a finite score gives exp(-inf - -inf), as specified.
            value = self._value(Call("where", (none, Const(float("nan"), F32), total), F32))
            values = {**self.values, at.m: b.let(self.first + row)}

            def store(n: Index, valid: int) -> None:
                there = row * at.n.extent + n
                known = {at.context: Load(self.sofar, there, F32, lanes, valid)}
                made = vector(value, at.n, n, lanes, values, known, valid)
                b.store(0, self.kernel.store.substitute({**values, at.n: n}), made, valid)

            with b.loop("n", Index(), index(whole)) as n:
                store(n * lanes, 0)
            if rest:
                store(index(whole * lanes), rest)

    def _value(self, total: Expr, context: Expr | None = None) -> Expr:
        """The kernel's value, with the sum (and the context) replaced by these expressions."""
        known = {self.at.total: total}
        if context is not None:
            known[self.at.context] = context
        change = lambda e: known.get(e.stage, e) if isinstance(e, Acc) else e  # noqa: E731
        return rewrite(self.kernel.value, change)

"""Weights of a language model as graph nodes: small integers with scales, or numbers.

Input: `ModelTensor`s, which a reader of files makes.  Output: products with them, and rows of
them.  A least value per block adds a second, smaller product, so that kernels need no other form
than integers with scales:

    sum over k of x[k] * (q[n, k] * scale[n, b] + least[n, b])
        = sum over k of x[k] * (q[n, k] * scale[n, b])
          + sum over b of (sum of block b of x) * least[n, b]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.base.dtypes import F32, DType
from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.graph import ops
from tilewright.graph.node import Node, cast, contract, gather, node, reshape, with_pick_source
from tilewright.graph.ops import Array, Shape

#: Reads a part of a tensor from its file.
Load = Callable[[], Array]


def mapped(path: Path, what: str) -> Array:
    """The bytes of a file, which are read when they are used.  Raises InvalidModel.

    what: the file, as the message calls it
    """
    try:
        return np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as cause:
        raise InvalidModel(
            f"cannot read {what}: {getattr(cause, 'strerror', None) or cause}",
            hint="Check the path and its permissions", path=str(path),
        ) from cause  # fmt: skip


@dataclass(frozen=True)
class ModelTensor:
    """A tensor of a file: numbers, or integers with a scale for each block of a row.

    name, kind: the file's names of the tensor and of its type
    dtype:  type of `whole`: F32 for numbers, I8 or U8 for integers
    whole:  its numbers or integers;  stored: "f16" or "bf16" if all numbers are of this type
    group:  number of integers that share a scale; 0 for numbers
    scale, least: [rows, columns / group] as f32; a weight is integer * scale + least
    halves: whether f16 can represent all scales and least values
    """

    name: str
    kind: str
    shape: Shape
    dtype: DType
    whole: Load
    stored: str = ""
    group: int = 0
    scale: Load | None = None
    least: Load | None = None
    halves: bool = False


@dataclass(frozen=True)
class Matrix:
    """A tensor [rows, columns].  whole: integers, or numbers as f32 if nothing else is there
    scale, least: [rows, blocks];  group: integers that share them"""

    whole: Node
    scale: Node | None
    least: Node | None
    group: int

    def times(self, x: Node) -> Node:
        """x[m, columns] -> [m, rows]"""
        if self.scale is None:
            return contract("mk,nk->mn", x, self.whole)
        made = contract("mk,nk->mn", x, self._scaled(self.whole, self.scale))
        if self.least is None:
            return made
        blocks = reshape(x, (x.shape[0], -1, self.group))
        sums = reshape(al.total(blocks, [2]), blocks.shape[:2])
        return al.add(made, contract("mb,nb->mn", sums, self.least))

    def rows(self, ids: Node) -> Node:
        """ids[m] -> [m, columns]"""
        whole = gather(self.whole, ids, 0, with_pick_source(0))
        if self.scale is None:
            return whole
        made = self._scaled(whole, gather(self.scale, ids, 0, with_pick_source(0)))
        if self.least is None:
            return made
        least = al.unsqueeze(gather(self.least, ids, 0, with_pick_source(0)), [2])
        blocks = reshape(made, (made.shape[0], -1, self.group))
        return reshape(al.add(blocks, least), made.shape)

    def _scaled(self, whole: Node, scale: Node) -> Node:
        # the form that graph/constants.py knows
        blocks = cast(reshape(whole, (whole.shape[0], -1, self.group)), F32)
        return reshape(al.mul(blocks, al.unsqueeze(scale, [2])), whole.shape)


@dataclass
class WeightTable:
    """Nodes of a model's tensors, each made once, so that all graphs share them.

    tensors: by role;  called: what the file calls a role
    loose: what products may round their other operand to;  used: roles that were asked for
    """

    tensors: Mapping[str, ModelTensor]
    called: Callable[[str], str]
    loose: str = ""
    used: set[str] = field(default_factory=set)
    _matrices: dict[str, Matrix] = field(default_factory=dict)
    _numbers: dict[str, Node] = field(default_factory=dict)

    def __contains__(self, role: str) -> bool:
        return role in self.tensors

    def matrix(self, role: str, shape: Shape) -> Matrix:
        """The tensor of a role.  Raises InvalidModel if there is none of this shape."""
        if role not in self._matrices:
            self._matrices[role] = self._matrix(self._tensor(role, shape))
        return self._matrices[role]

    def numbers(self, role: str, shape: Shape) -> Node:
        """The tensor as f32, not for products of rows.  Raises InvalidModel, UnsupportedOp."""
        if role not in self._numbers:
            t = self._tensor(role, shape)
            if t.group:
                what = "vector" if len(shape) == 1 else "tensor"
                raise UnsupportedOp(f"the {what} {t.name!r} has the type {t.kind}", tensor=t.name)
            self._numbers[role] = node(ops.Weight(t.name, t.shape, F32, t.whole, t.stored))
        return self._numbers[role]

    def product(self, x: Node, name: str, rows: int) -> Node:
        """x[m, columns] times the weight, and the bias added if there is one."""
        made = self.matrix(f"{name}.weight", (rows, x.shape[1])).times(x)
        if f"{name}.bias" not in self:
            return made
        return al.add(made, self.numbers(f"{name}.bias", (rows,)))

    def check_all_used(self, architecture: str) -> None:
        """Raises UnsupportedOp for a tensor that no graph has read: a part of the model would be
        missing."""
        for role, tensor in self.tensors.items():
            if role not in self.used:
                raise UnsupportedOp(
                    f"the tensor {tensor.name!r} has no place in the architecture "
                    f"{architecture!r}",
                    hint="The model is of another kind than its architecture says",
                    tensor=tensor.name, architecture=architecture,
                )  # fmt: skip

    def _tensor(self, role: str, shape: Shape) -> ModelTensor:
        tensor = self.tensors.get(role)
        if tensor is None:
            name = self.called(role)
            raise InvalidModel(
                f"the tensor {name!r} is missing",
                hint="The model is not complete, or of a kind that is not supported",
                tensor=name,
            )
        if tensor.shape != shape:
            raise InvalidModel(
                f"the tensor {tensor.name!r} has the wrong shape",
                hint="The model's settings and its tensors do not belong together",
                tensor=tensor.name, expected=list(shape), shape=list(tensor.shape),
            )  # fmt: skip
        self.used.add(role)
        return tensor

    def _matrix(self, t: ModelTensor) -> Matrix:
        if t.scale is None:
            made = node(ops.Weight(t.name, t.shape, t.dtype, t.whole, t.stored, self.loose))
            return Matrix(made, None, None, 0)
        whole = node(ops.Weight(t.name, t.shape, t.dtype, t.whole))
        scale = self._per_block(t, "scale", t.scale, self.loose)
        least = self._per_block(t, "least", t.least, "") if t.least else None
        return Matrix(whole, scale, least, t.group)

    def _per_block(self, t: ModelTensor, what: str, load: Load, loose: str) -> Node:
        """A number per block, [rows, blocks]."""
        shape, stored = (t.shape[0], t.shape[1] // t.group), "f16" if t.halves else ""
        compact = t.halves and bool(np.isfinite(load()).all())
        return node(ops.Weight(f"{t.name}.{what}", shape, F32, load, stored, loose, compact))

"""Weights of a GGUF file as graph nodes: small integers with scales, never as f32 numbers.

Input: a `GgufTensor`.  Output: products with it, and rows of it.  A least value per block adds a
second, smaller product, so that kernels need no other form than integers with scales:

    sum over k of x[k] * (q[n, k] * scale[n, b] + least[n, b])
        = sum over k of x[k] * (q[n, k] * scale[n, b])
          + sum over b of (sum of block b of x) * least[n, b]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tilewright.base.dtypes import F32, I8, U8
from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.gguf.file import GgufFile, GgufTensor
from tilewright.frontend.gguf.tensor_types import Part
from tilewright.graph import ops
from tilewright.graph.node import Node, cast, contract, gather, node, reshape, with_pick_source
from tilewright.graph.ops import Array, Shape


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
        # the form that graph/quantised.py knows
        blocks = cast(reshape(whole, (whole.shape[0], -1, self.group)), F32)
        return reshape(al.mul(blocks, al.unsqueeze(scale, [2])), whole.shape)


@dataclass
class WeightTable:
    """Nodes of a file's tensors, each made once, so that all graphs share them.

    loose: what products may round their other operand to;  used: names that were asked for
    """

    file: GgufFile
    loose: str = ""
    used: set[str] = field(default_factory=set)
    _matrices: dict[str, Matrix] = field(default_factory=dict)
    _vectors: dict[str, Node] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.file.tensors

    def matrix(self, name: str, shape: Shape) -> Matrix:
        """Raises InvalidModel if there is none of this shape."""
        if name not in self._matrices:
            self._matrices[name] = self._matrix(self._tensor(name, shape))
        return self._matrices[name]

    def vector(self, name: str, size: int) -> Node:
        """Numbers as f32.  Raises InvalidModel."""
        if name not in self._vectors:
            tensor = self._tensor(name, (size,))
            if tensor.block.group:
                raise UnsupportedOp(
                    f"the vector {name!r} has the type {tensor.block.name}", tensor=name
                )
            load = partial(_numbers, tensor)
            stored = tensor.block.stored
            self._vectors[name] = node(ops.Weight(name, tensor.shape, F32, load, stored))
        return self._vectors[name]

    def unused(self) -> list[str]:
        return [name for name in self.file.tensors if name not in self.used]

    def _tensor(self, name: str, shape: Shape) -> GgufTensor:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise InvalidModel(
                f"the tensor {name!r} is missing",
                hint="The file is not complete, or of a kind of model that is not supported",
                tensor=name,
            )
        if tensor.shape != shape:
            raise InvalidModel(
                f"the tensor {name!r} has the wrong shape",
                hint="The file's metadata and its tensors do not belong together",
                tensor=name, expected=list(shape), shape=list(tensor.shape),
            )  # fmt: skip
        self.used.add(name)
        return tensor

    def _matrix(self, tensor: GgufTensor) -> Matrix:
        name, block, shape = tensor.name, tensor.block, tensor.shape
        if block.scale is None:
            load = partial(_numbers, tensor)
            made = node(ops.Weight(name, shape, F32, load, block.stored, self.loose))
            return Matrix(made, None, None, 0)
        signed = np.dtype(np.int8) == block.integers(tensor.data[:1].reshape(-1, block.bytes)).dtype
        load = partial(_part, tensor, block.integers, shape[1])
        whole = node(ops.Weight(name, shape, I8 if signed else U8, load))
        scale = self._per_block(tensor, "scale", block.scale, self.loose)
        least = self._per_block(tensor, "least", block.least, "") if block.least else None
        return Matrix(whole, scale, least, block.group)

    def _per_block(self, tensor: GgufTensor, what: str, part: Part, loose: str) -> Node:
        """A number per block, [rows, blocks]."""
        block, (rows, columns) = tensor.block, tensor.shape
        count = columns // block.group
        load, stored = partial(_part, tensor, part, count), "f16" if block.halves else ""
        return node(ops.Weight(f"{tensor.name}.{what}", (rows, count), F32, load, stored, loose))


def _numbers(tensor: GgufTensor) -> Array:
    return tensor.block.values(tensor.data).reshape(tensor.shape)


def _part(tensor: GgufTensor, part: Part, columns: int) -> Array:
    return part(tensor.data.reshape(-1, tensor.block.bytes)).reshape(-1, columns)

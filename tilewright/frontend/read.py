"""Reads a model file without its weights.

Input: a path or an `onnx.ModelProto`.  Output: a `Model` whose functions are inlined, or
InvalidModel.  It gives no dimension a value (see shapes.py).  The nodes of all graphs are sorted so
that each reads only results of earlier nodes; otherwise the file's order is kept.  InvalidModel
says if nothing makes a tensor, if two nodes make it, or if there is a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)
from onnx.defs import OpSchema

from tilewright.base.dtypes import DType
from tilewright.base.errors import InvalidModel, UnsupportedDType, UnsupportedOp
from tilewright.frontend import operators  # noqa: F401  fills the table that `find` reads
from tilewright.frontend.float16_types import Types, types_of
from tilewright.frontend.initializers import (
    WIDENED,
    check_bytes,
    data_file,
    dtype_of,
    tensor_node,
)
from tilewright.frontend.inline_functions import write_out
from tilewright.frontend.opsets import OLDEST
from tilewright.frontend.structure_checks import check_bounds, describe, domain_of, subgraphs
from tilewright.frontend.subgraphs import names_read
from tilewright.graph.node import Node

Dim = int | str | None


@dataclass(frozen=True)
class TensorDecl:
    """An input or output as the file declares it.

    dims: numbers, names, or None for dynamic ones without a name; None: the rank is unknown
    widened_from: the file's element type if it is read as f32, such as "f16"
    """

    name: str
    dtype: DType
    dims: tuple[Dim, ...] | None
    widened_from: str | None = None


@dataclass(frozen=True, eq=False)
class Model:
    """A model, read once; graphs of all shapes are made from it.

    halves: whether weights are rounded to f16 (initializers.py)
    bytes:  whether products may round what they multiply with weights to i8
    tf32:   whether products of f32 may round both operands to TF32
    inside: set in the body of an operator that ONNX defines by others: the types of its tensors
    """

    name: str
    inputs: tuple[TensorDecl, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[NodeProto]
    weights: Mapping[str, TensorProto]
    opsets: Mapping[str, int]
    folder: Path | None
    skeleton: ModelProto
    halves: bool = False
    bytes: bool = False
    tf32: bool = False
    inside: Types | None = None
    #: Nodes by the `id` of their tensor.  The tensor is stored too, so that the id stays valid.
    _constants: dict[int, tuple[TensorProto, Node]] = field(default_factory=dict, repr=False)

    def constant(self, tensor: TensorProto, name: str = "") -> Node:
        """The node of a tensor of this file.  All graphs get the same node, so its bytes are hashed
        once."""
        if id(tensor) not in self._constants:
            self._constants[id(tensor)] = (
                tensor,
                tensor_node(tensor, self.folder, name, self.halves, self.bytes, self.tf32),
            )
        return self._constants[id(tensor)][1]

    @cached_property
    def types(self) -> Types:
        """By name, the type of each tensor that the model declares as "f16" or "bf16"."""
        return types_of(self) if self.inside is None else self.inside

    @property
    def dim_names(self) -> tuple[str, ...]:
        """The named dynamic dimensions of all inputs, in order."""
        names = (d for i in self.inputs for d in i.dims or () if isinstance(d, str))
        return tuple(dict.fromkeys(names))


def load(source: str | Path | ModelProto | Model) -> Model:
    """Reads and checks a model, without its weights.

    Raises InvalidModel, UnsupportedOp, UnsupportedDType.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, ModelProto):
        return _model(source, None, source.graph.name)
    path = Path(source)
    return _model(_parse(path), path.parent, path.stem)


def data_files(model: Model) -> list[Path]:
    """The files beside the model's own that have bytes of its tensors.  Raises InvalidModel."""
    tensors = (*model.weights.values(), *_inner_tensors(model.nodes))
    found = {data_file(tensor, model.folder) for tensor in tensors}
    return sorted(path for path in found if path is not None)


def _inner_tensors(nodes: Sequence[NodeProto]) -> Iterator[TensorProto]:
    """Those of attributes and of subgraphs."""
    for node in nodes:
        yield from (a.t for a in node.attribute if a.HasField("t"))
        for body in subgraphs(node):
            yield from body.initializer
            yield from _inner_tensors(body.node)


def _parse(path: Path) -> ModelProto:
    try:
        data = path.read_bytes()
    except OSError as cause:
        raise InvalidModel(
            f"cannot read the model file: {cause.strerror}",
            hint="Check the path and its permissions",
            path=str(path),
        ) from cause
    try:
        proto = ModelProto()
        proto.ParseFromString(data)
    except DecodeError as cause:
        message, hint = _diagnosis(data)
        raise InvalidModel(message, hint=hint, path=str(path), bytes=len(data)) from cause
    return proto


def _diagnosis(data: bytes) -> tuple[str, str]:
    """Message and hint for a file that is not a model."""
    head = data[:512].lstrip().lower()
    if head.startswith(b"<"):
        return "this is a web page, not an ONNX model", "the download got an error page"
    if head.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the model", "run `git lfs pull`"
    if data.startswith(b"\x08") and len(data) > 2:
        return "the ONNX file is truncated or damaged", "download it again and compare its size"
    return "this is not an ONNX model", "give a file with the protobuf of an ONNX ModelProto"


def _model(proto: ModelProto, folder: Path | None, name: str) -> Model:
    check_bounds(proto)
    _check_declared(proto)
    opsets = _opsets(proto)
    weights = {t.name: t for t in proto.graph.initializer}
    for tensor in weights.values():
        check_bytes(tensor, folder)
    skeleton = _skeleton(proto)
    if skeleton.functions:
        write_out(skeleton)
    put_in_order(skeleton.graph)
    _drop_unread(skeleton.graph, opsets[""], names_read(skeleton.graph))
    opsets = _opsets(skeleton)
    return Model(
        name=name or "model",
        inputs=tuple(_decl(v) for v in proto.graph.input if v.name not in weights),
        outputs=tuple(v.name for v in proto.graph.output),
        nodes=tuple(skeleton.graph.node),
        weights=weights,
        opsets=opsets,
        folder=folder,
        skeleton=skeleton,
    )


def _check_declared(proto: ModelProto) -> None:
    if not proto.HasField("graph") or not proto.graph.output:
        raise InvalidModel(
            "the model has no graph with outputs",
            hint="The file is empty, truncated, or not an ONNX model",
        )
    if proto.graph.sparse_initializer:
        raise UnsupportedOp("sparse weights are not supported", hint="Store them densely")


def _opsets(proto: ModelProto) -> dict[str, int]:
    """The opset of each domain.  Raises UnsupportedOp if the default one is too old or new."""
    opsets = {domain_of(entry.domain): int(entry.version) for entry in proto.opset_import}
    newest = onnx.defs.onnx_opset_version()
    version = opsets.get("", 0)
    if not version:
        raise InvalidModel("the model imports no opset of the default domain")
    if not OLDEST <= version <= newest:
        way = (
            "convert it with onnx.version_converter, or export it again"
            if version < OLDEST
            else "update the onnx package, or export the model with an older opset"
        )
        raise UnsupportedOp(
            f"the model's opset {version} is not supported",
            hint=f"Supported are {OLDEST} to {newest}: {way}",
            opset=version,
        )
    return opsets


def _decl(info: ValueInfoProto) -> TensorDecl:
    if not info.type.HasField("tensor_type"):
        raise UnsupportedOp(f"input {info.name!r} is not a tensor", input=info.name)
    tensor = info.type.tensor_type
    dims = tuple(_dim(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    try:
        dtype = dtype_of(tensor.elem_type)
    except UnsupportedDType as error:
        raise UnsupportedDType(
            f"input {info.name!r}: {error.message}", hint=error.hint, input=info.name, **error.facts
        ) from error
    return TensorDecl(info.name, dtype, dims, WIDENED.get(int(tensor.elem_type)))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:  # some exporters write -1 for dynamic
        return int(dim.dim_value)
    return None if dim.dim_param == "?" else str(dim.dim_param) or None  # "?": written by Paddle


def _skeleton(proto: ModelProto) -> ModelProto:
    """The model with its weights as inputs, so that it can be copied and changed cheaply."""
    light = ModelProto(ir_version=proto.ir_version)
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    graph = light.graph
    graph.name = proto.graph.name or "graph"
    graph.node.extend(proto.graph.node)
    graph.output.extend(proto.graph.output)
    graph.input.extend(proto.graph.input)
    weights = dict.fromkeys(t.name for t in proto.graph.initializer)
    for name in weights.keys() - {v.name for v in proto.graph.input}:
        graph.input.append(ValueInfoProto(name=name))
    return light


def _drop_unread(graph: GraphProto, version: int, read: Collection[str]) -> None:
    """Removes the names of unread optional outputs: old exporters name them all."""
    for node in graph.node:
        for body in subgraphs(node):
            _drop_unread(body, version, read)
        if domain_of(node.domain) or not onnx.defs.has(node.op_type, version):
            continue
        declared = onnx.defs.get_schema(node.op_type, version).outputs
        for i, (name, output) in enumerate(zip(node.output, declared, strict=False)):
            if name not in read and output.option == OpSchema.FormalParameterOption.Optional:
                node.output[i] = ""


def put_in_order(graph: GraphProto, around: Collection[str] = frozenset()) -> None:
    """Sorts the nodes of a graph and its subgraphs.  A sorted graph stays as it is.

    around: names of tensors of the graphs around this one
    """
    given = {x.name for x in (*graph.input, *graph.initializer)}
    makers: dict[str, int] = {}
    for at, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers or name in given:
                raise InvalidModel(
                    f"tensor {name!r} is the result of two nodes",
                    hint="The file is damaged: export the model again",
                    node=describe(node), op=node.op_type,
                )  # fmt: skip
            makers[name] = at
    visible = {*around, *given, *makers}
    for node in graph.node:
        for body in subgraphs(node):
            put_in_order(body, visible)
    needed = [[*_made_here(node, makers, visible)] for node in graph.node]
    for output in graph.output:
        if output.name not in visible:
            raise InvalidModel(
                f"no node makes the output {output.name!r}",
                hint="The file is damaged, or its nodes were renamed: export the model again",
                output=output.name,
            )
    if any(before >= at for at, makes in enumerate(needed) for before in makes):
        nodes = [graph.node[at] for at in _order(graph.node, needed)]
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _made_here(node: NodeProto, makers: dict[str, int], visible: Collection[str]) -> Iterator[int]:
    """The positions of the nodes whose results a node reads."""
    for name in _read(node):
        if name in makers:
            yield makers[name]
        elif name not in visible:
            raise InvalidModel(
                f"nothing makes the tensor {name!r}, which a node reads",
                hint="The file is damaged, or its nodes were renamed: export the model again",
                node=describe(node), op=node.op_type,
            )  # fmt: skip


def _read(node: NodeProto) -> Iterator[str]:
    """The tensors that a node reads from the graph around it, also inside its subgraphs."""
    yield from filter(None, node.input)
    for body in subgraphs(node):
        own = {x.name for x in (*body.input, *body.initializer)}
        own |= {name for inner in body.node for name in inner.output}
        reads = [*(n for inner in body.node for n in _read(inner)), *(o.name for o in body.output)]
        yield from (name for name in reads if name not in own)


def _order(nodes: Sequence[NodeProto], needed: Sequence[Sequence[int]]) -> list[int]:
    """Positions of the nodes in an order that satisfies `needed` and otherwise keeps the file's
    order."""
    readers: list[list[int]] = [[] for _ in nodes]
    missing = [len(set(before)) for before in needed]
    for at, before in enumerate(needed):
        for maker in set(before):
            readers[maker].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for reader in readers[at]:
            missing[reader] -= 1
            if not missing[reader]:
                heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = nodes[next(at for at, count in enumerate(missing) if count)]
        raise InvalidModel(
            "nodes need each other's results in a cycle",
            hint="The file is damaged: export the model again",
            node=describe(stuck), op=stuck.op_type,
        )  # fmt: skip
    return order

"""The records of a plan: values with classes and lives, steps with what they read and write.

Input: numbers and names from fusion.  Output: frozen records that every target encodes for its
hosts, and the same as plain data for the bundle; equal plans give equal data.  They have no
addresses, threads or kinds of memory.

    value 0 input x   value 1 weight W   value 2 temporary t   value 3 output y   value 4 state h
    step 0: t = kernel 0 (x, W)          step 1: y = kernel 1 (t, h)   after 0
    step 2: h = kernel 2 (y)             after 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any, Literal

from tilewright.base.abi import align
from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel.extents import number_of
from tilewright.kernel.layout import ROWS, Layout, RowBlocks
from tilewright.kernel.spec import Kernel

#: Kinds of values: set before a run, read after it, used within it, part of the model, or kept from
#: run to run (a KV cache, the memory of a recurrent model).
Class = Literal["input", "output", "temporary", "weight", "state"]
CLASSES: tuple[Class, ...] = ("input", "output", "temporary", "weight", "state")


@dataclass(frozen=True)
class Value:
    """One tensor of a plan.

    name:   of inputs, outputs and states; "" for others
    tensor: of weights: number in the program's table of tensors; of states: number of the state; -1
            for others
    as_f16: stored as f16: the kernels that read and write it all allow it (`Buffer.as_f16`)
    first, last: the steps, both included, between which it must keep its contents; -1: before the
        first step; the number of steps: after the last
    """

    kind: Class
    dtype: DType
    shape: tuple[int, ...]
    name: str = ""
    tensor: int = -1
    first: int = -1
    last: int = -1
    as_f16: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Number of bytes; may exceed 32 bits."""
        return self.size * self.dtype.size


@dataclass(frozen=True)
class Access:
    """A kernel's buffer: it begins at element `offset` of a value."""

    value: int
    offset: int = 0


@dataclass(frozen=True)
class Check:
    """An index that a kernel reads and checks as it runs.

    node, op: of the model, which picks by it;  axis: of the operand, of `length` elements
    least:    the smallest index that the operator takes; below 0 they count from the end, and the
              kernel counts from the front
    """

    node: str
    op: str
    axis: int
    length: int
    least: int = 0


@dataclass(frozen=True)
class Step:
    """One run of a kernel.

    kernel: number in the program's list
    write:  of its only output
    reads:  in the order of the kernel's input buffers
    after:  steps that must end before this one begins, without the steps that those wait for
    node, op: the model's node and its operator, for people
    checks: the kernel's indices that are checked, by their numbers (kernel/index.py: `Gathered`);
            the manifest has them, a plan's file does not
    """

    kernel: int
    write: Access
    reads: tuple[Access, ...]
    after: tuple[int, ...] = ()
    node: str = ""
    op: str = ""
    checks: tuple[Check, ...] = field(default=(), compare=False)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """In the order of the kernel's buffers: the output first."""
        return (self.write, *self.reads)


@dataclass(frozen=True)
class Plan:
    """The steps for one combination of buckets.

    dims:   the bucket of each named dimension
    inputs, outputs: numbers of values, in the model's order; two outputs may be one value
    """

    dims: Mapping[str, int]
    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


#: Bytes of an element in files that is narrower than in memory.
_STORED = {"f16": 2, "bf16": 2, "i8": 1, "u8": 1}


@dataclass(frozen=True)
class Tensor:
    """A stored constant of the program, as kernels read it.

    offset: of its first byte among those of all tensors in memory; may exceed 32 bits
    stored: the narrower element type of files, which hosts widen: "f16", "bf16", or "i8" and "u8",
            which mean (whole - zero) * scale; else ""
    scale, zero: numbers of the tensors with these, which come earlier; None: no zero point
    compact: stored as f16 in files and in every memory: all kernels that read it convert it
            (`Buffer.compact`)
    """

    dtype: DType
    shape: tuple[int, ...]
    offset: int = 0
    layout: Layout = ROWS
    stored: str = ""
    scale: int | None = None
    zero: int | None = None
    compact: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Number of bytes in a linear memory."""
        return self.stored_bytes if self.compact else self.size * self.dtype.size

    @property
    def stored_bytes(self) -> int:
        """Number of bytes in files."""
        return self.size * _STORED.get(self.stored, self.dtype.size)


@dataclass(frozen=True)
class State:
    """A value that outlives a run; it is zero until it is written, and after a reset.

    compact: linear memories hold its f32 numbers rounded to f16, between -65504 and 65504
    rows:    it grows by blocks of this many rows (`Growth`); 0: it has a fixed size
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    compact: bool = False
    rows: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def each(self) -> int:
        """Bytes of an element in a linear memory."""
        return _STORED["f16"] if self.compact else self.dtype.size

    @property
    def bytes(self) -> int:
        """Number of bytes in a linear memory."""
        return self.size * self.each

    @property
    def blocks(self) -> int:
        """The most blocks; 0 of a state of a fixed size."""
        return -(-self.shape[-2] // self.rows) if self.rows else 0

    @property
    def block(self) -> int:
        """Elements in a block, of a state that grows."""
        *matrices, _, columns = self.shape if self.rows else (0, 0)
        return prod(matrices) * self.rows * columns


@dataclass(frozen=True)
class Growth:
    """How states grow: all of them by the same blocks of rows, as a run needs them.

    A run with `last` in the input `input` and `n` new rows, the size of the dimension `dim`, needs
    max(last + 1, n) rows, counted along the axis before the last one.

    rows: of a block
    """

    input: str
    dim: str
    rows: int


@dataclass(frozen=True)
class Extent:
    """A named dimension whose size each run sets, from 1 to `bound`.

    Values are stored as at the bound for every size; kernels read the size from their argument
    block (`Kernel.limits` has the axes that end there).
    """

    name: str
    bound: int


@dataclass(frozen=True)
class Program:
    """All that targets need of a model: kernels, plans smallest first, the tables of both kinds of
    values that plans share, the run-time extents by their numbers, and how states grow."""

    kernels: tuple[Kernel, ...]
    plans: tuple[Plan, ...]
    tensors: tuple[Tensor, ...] = ()
    states: tuple[State, ...] = ()
    extents: tuple[Extent, ...] = ()
    growth: Growth | None = None

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the weight region; tensors are aligned to cache lines."""
        return max((align(t.offset + t.bytes) for t in self.tensors), default=0)

    @property
    def block_places(self) -> tuple[tuple[int, ...], int]:
        """(first byte of each state in a block of a linear memory, bytes of a block); states of a
        fixed size take no part."""
        sizes = [align(s.block * s.each) for s in self.states]
        *places, end = accumulate(sizes, initial=0)
        return tuple(places), end

    @property
    def blocks(self) -> int:
        """The most blocks of states that grow."""
        return max((s.blocks for s in self.states), default=0)


def check(program: Program) -> None:
    """Checks a program: numbers exist, buffers fit, and each step comes after the steps that it
    waits for.  Raises CompilerBug; a reader of a file reports that the file is damaged instead."""
    for kernel in program.kernels:
        bounds = [program.extents[number_of(v)].bound for v in kernel.extents]
        _need(bounds == [v.extent - 1 for v in kernel.extents], kernel.name, "other bounds")
    for plan in program.plans:
        for number, step in enumerate(plan.steps):
            _need(
                0 <= step.kernel < len(program.kernels), step.node, "a kernel that does not exist"
            )
            kernel = program.kernels[step.kernel]
            _need(all(0 <= other < number for other in step.after), step.node, "waits for later")
            _need(len(step.accesses) == len(kernel.buffers), step.node, "other buffers")
            for access, buffer in zip(step.accesses, kernel.buffers, strict=True):
                _need(0 <= access.value < len(plan.values), step.node, "no such value")
                value = plan.values[access.value]
                _need(value.dtype == buffer.dtype, kernel.name, f"{value} as {buffer}")
                stored = buffer.as_f16 and value.kind != "weight"
                _need(value.as_f16 == stored, kernel.name, f"{value} as {buffer}")
                grows = isinstance(buffer.layout, RowBlocks)
                _need(grows == _grows(program, value), kernel.name, f"{value} as {buffer}")
                end = value.size if grows else access.offset + buffer.size
                _need(0 <= access.offset <= end <= value.size, kernel.name, f"beyond: {access}")
            written = plan.values[step.write.value].kind
            _need(written not in ("input", "weight"), kernel.name, f"writes an {written}")
        for value in plan.values:
            if value.kind == "weight":
                _need(0 <= value.tensor < len(program.tensors), "plan", "no such tensor")
                tensor = program.tensors[value.tensor]
                _need(value.size == tensor.size, "plan", "another size of a tensor")
                _need(value.dtype == tensor.dtype, "plan", "another dtype of a tensor")
            if value.kind == "state":
                _need(0 <= value.tensor < len(program.states), "plan", "no such state")
                state = program.states[value.tensor]
                _need(value.shape == state.shape, "plan", "another shape of a state")
        for place in (*plan.inputs, *plan.outputs):
            _need(0 <= place < len(plan.values), "plan", "no such input or output")


def _grows(program: Program, value: Value) -> bool:
    known = value.kind == "state" and value.tensor in range(len(program.states))
    return known and program.states[value.tensor].rows > 0


def _need(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise CompilerBug(f"the plan does not fit its kernels: {what}"[:300], node=where)


Data = Any


def plan_to_data(plan: Plan) -> dict[str, Data]:
    return {
        "dims": dict(plan.dims),
        "values": [
            {
                "kind": v.kind,
                "dtype": v.dtype.name,
                "shape": list(v.shape),
                **({"name": v.name} if v.name else {}),
                **({"tensor": v.tensor} if v.tensor >= 0 else {}),
                "life": [v.first, v.last],
                **({"halves": True} if v.as_f16 else {}),
            }
            for v in plan.values
        ],
        "steps": [
            {
                "kernel": s.kernel,
                "write": [s.write.value, s.write.offset],
                "reads": [[a.value, a.offset] for a in s.reads],
                "after": list(s.after),
                "node": s.node,
                "op": s.op,
            }
            for s in plan.steps
        ],
        "inputs": list(plan.inputs),
        "outputs": list(plan.outputs),
    }


def plan_from_data(data: dict[str, Data]) -> Plan:
    return Plan(
        dims=dict(data["dims"]),
        values=tuple(
            Value(
                v["kind"], DTYPES[v["dtype"]], tuple(v["shape"]), v.get("name", ""),
                v.get("tensor", -1), first=v["life"][0], last=v["life"][1],
                as_f16=v.get("halves", False),
            )
            for v in data["values"]
        ),
        steps=tuple(
            Step(
                s["kernel"],
                Access(*s["write"]),
                tuple(Access(*a) for a in s["reads"]),
                tuple(s["after"]),
                s["node"],
                s.get("op", ""),
            )
            for s in data["steps"]
        ),
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
    )  # fmt: skip

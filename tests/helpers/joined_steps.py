"""Plans whose joined steps run in one dispatch, on the interpreter of the loop IR.

Input: a graph.  Output: its plan, and what it gives when joined steps run by given loops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.whole_vectors import wholes
from tilewright.fusion.program import BucketPlan, program_of
from tilewright.graph.node import Graph, Node, evaluate
from tilewright.graph.passes import optimise
from tilewright.hosts.reference import run_kernel
from tilewright.kernel import interpreter
from tilewright.kernel.loops import TileFn
from tilewright.plan import Program
from tilewright.targets.gpu.step_joining.joined_steps import JoinedSteps, find_joined_steps
from tilewright.targets.protocol import PACKING

from .graphs import steps_of
from .loop_check import check_loops

#: The loops of joined steps.
Lower = Callable[[JoinedSteps], TileFn]


def planned(graph: Graph) -> tuple[Program, tuple[Node, ...]]:
    """The program of a graph, and the nodes of its tensors."""
    packed = optimise(graph, PACKING)
    return program_of([BucketPlan({}, packed, steps_of(packed))])


def run_joined(graph: Graph, inputs: dict[str, np.ndarray], lower: Lower) -> list[np.ndarray]:
    """The outputs.  What joined steps do not store holds nothing: nobody may read it."""
    program, tensors = planned(graph)
    (plan,) = program.plans
    values = [
        inputs[v.name].ravel().copy() if v.kind == "input"
        else evaluate([tensors[v.tensor]])[0].ravel() if v.kind == "weight"
        else np.full(v.size, 77, v.dtype.numpy)
        for v in plan.values
    ]  # fmt: skip
    found, at = {join.first: join for join in find_joined_steps(plan, program.kernels)}, 0
    while at < len(plan.steps):
        join = found.get(at, JoinedSteps(at, at))
        steps = plan.steps[at : join.last + 1]
        buffers = [
            values[a.value][a.offset : a.offset + b.size]
            for step in steps
            for a, b in zip(step.accesses, program.kernels[step.kernel].buffers, strict=True)
        ]
        if len(steps) == 1:
            run_kernel(program.kernels[steps[0].kernel], buffers)
        else:
            fn = lower(join)
            check_loops(fn)
            lists = [b.tolist() for b in buffers]
            interpreter.run(fn, lists, whole=wholes(fn) if fn.thread else None)
            for n in fn.outputs:
                buffers[n][:] = lists[n]
        at = join.last + 1
    return [values[n].reshape(plan.values[n].shape) for n in plan.outputs]

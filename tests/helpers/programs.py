"""The program of a small graph of one input, and that it holds together.

Input: targets, the input and the outputs by name.  Output: the checked program.
"""

from __future__ import annotations

from lab.subjects import compile_graph
from tilewright.compiler import Options
from tilewright.graph.node import Graph, Node
from tilewright.plan import Program, check


def program(targets: tuple[str, ...], x: Node, **outputs: Node) -> Program:
    graph = Graph("g", (("x", x),), tuple(outputs.items()))
    made = compile_graph(graph, Options(targets=targets)).program
    check(made)
    return made

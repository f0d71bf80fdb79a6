"""Which parts of a source only the host's compiler needs.

Input: a `Module`.  Output: edits that take them out: functions of the host, and includes of system
headers.  NVRTC, and kernels on the CPU, are then given what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.elastic.transform.module import Module, whole
from tilewright.elastic.transform.source import Edit, inside

if TYPE_CHECKING:
    from tree_sitter import Node

#: Headers that device code needs and its compiler has.
_KEPT = re.compile(r"cuda_fp16|cuda_bf16|cooperative_groups|mma\.h|cuda/|cub/|crt/|cuda_pipeline")
_DEVICE = re.compile(r"__device__|__global__|\bconstexpr\b")
_SCOPES = frozenset({"function_definition", "lambda_expression", "compound_statement"})


def device_part(module: Module) -> list[Edit]:
    return [Edit(node.start_byte, node.end_byte, _lines(module, node)) for node in _hosts(module)]


def _lines(module: Module, node: Node) -> str:
    """Line numbers stay."""
    return "\n" * module.source.of(node).count("\n")


def _hosts(module: Module) -> Iterator[Node]:
    of = module.source.of
    called = {n for k in module.kernels for n in module.behind(module.calls_in(k.body))}
    for node in inside(module.source.root, skip=_SCOPES):
        if node.type == "preproc_include" and not _KEPT.search(of(node)):
            yield node
        elif node.type == "function_definition" and not _inside_type(node):
            outer = whole(node)
            body = node.child_by_field_name("body")
            end = body.start_byte if body is not None else node.end_byte
            head = module.source.between(outer.start_byte, end)
            names = {f.name for f in module.functions if f.node.id == node.id}
            if not _DEVICE.search(head) and not names & called and not _by_macro(module, head):
                yield outer
        elif node.type in ("declaration", "expression_statement", "using_declaration"):
            outer = whole(node)
            parent = outer.parent
            if parent is not None and parent.type in _PLACES and not _needed(of(outer)):
                yield outer


_PLACES = ("translation_unit", "preproc_if", "preproc_ifdef", "preproc_else", "declaration_list",
           "namespace_definition", "linkage_specification")  # fmt: skip
_NEEDED = re.compile(
    r"__device__|__constant__|__managed__|__global__|__shared__|\bconst\b|\bconstexpr\b"
    r"|\bstruct\b|\bclass\b|\benum\b|\bunion\b|cooperative_groups|nvcuda"
)


def _needed(text: str) -> bool:
    return bool(_NEEDED.search(text)) and "std::" not in text


def _inside_type(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type == "field_declaration_list":
            return True
        parent = parent.parent
    return False


def _by_macro(module: Module, head: str) -> bool:
    """Whether a macro in the function's head marks it as the device's."""
    return any(
        _DEVICE.search(m.value)
        for word in set(re.findall(r"\w+", head))
        for m in module.macros.get(word, ())
    )

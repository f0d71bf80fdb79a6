"""Finds the parts of a source that only the host's compiler needs.

Input: a `CudaSource`.  Output: edits that remove host functions.  NVRTC, and kernels on the CPU,
get the rest.  Headers that were not found are included where they exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.elastic.transform.cuda_source import Edit, Headers, included, inside
from tilewright.elastic.transform.definitions import CudaSource, whole

if TYPE_CHECKING:
    from tree_sitter import Node

#: Headers that device code needs and that its compiler has.
_KEPT = re.compile(r"cuda_fp16|cuda_bf16|cooperative_groups|mma\.h|cuda/|cub/|crt/|cuda_pipeline")
_SCOPES = frozenset({"function_definition", "lambda_expression", "compound_statement"})
#: Definitions other than functions, and the places where they may be removed.
_OTHERS = ("declaration", "expression_statement", "using_declaration", "struct_specifier",
           "class_specifier", "type_definition", "alias_declaration",
           "template_instantiation")  # fmt: skip
_PLACES = ("translation_unit", "preproc_if", "preproc_ifdef", "preproc_else", "declaration_list",
           "namespace_definition", "linkage_specification")  # fmt: skip
#: Text of declarations that the device may need.
_NEEDED = re.compile(
    r"__device__|__constant__|__managed__|__global__|__shared__|\bconst\b|\bconstexpr\b"
    r"|\bstruct\b|\bclass\b|\benum\b|\bunion\b|\btypedef\b|\busing \w+\s*=|cooperative_groups"
    r"|nvcuda"
)
#: Text of declarations that only the host's library has.
_HOST = re.compile(r"\bstd::(?!(?:numeric_limits|is_|enable_if|conditional)\b)")


def device_part(module: CudaSource, headers: Headers) -> list[Edit]:
    edits = [Edit(node.start_byte, node.end_byte, _lines(module, node)) for node in _hosts(module)]
    for source, directive in headers.missing:
        name = included(directive.tokens)
        if source is module.source and name and not _KEPT.search(name):
            text = module.source.between(directive.start, directive.end)
            quoted = (
                directive.tokens[0].text if directive.tokens[0].kind == "string" else f"<{name}>"
            )
            guard = f"#if __has_include({quoted})"
            edits.append(Edit(directive.start, directive.end, f"{guard}\n{text}\n#endif"))
    return edits


def _lines(module: CudaSource, node: Node) -> str:
    """The line breaks of a removed part, so that line numbers stay the same."""
    return "\n" * module.source.of(node).count("\n")


def _hosts(module: CudaSource) -> Iterator[Node]:
    of = module.source.of
    for node in inside(module.source.root, skip=_SCOPES):
        if node.type == "function_definition" and not _inside_type(node):
            if not (module.is_marked(node) or module.is_made(node)):
                yield whole(node)
        elif node.type in _OTHERS:
            outer = whole(node)
            parent = outer.parent
            if parent is not None and parent.type in _PLACES and not _needed(of(outer)):
                yield outer


def _needed(text: str) -> bool:
    """True if the device may need a declaration; it does not need those of the host's library."""
    return bool(_NEEDED.search(text)) and not _HOST.search(text)


def _inside_type(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type == "field_declaration_list":
            return True
        parent = parent.parent
    return False

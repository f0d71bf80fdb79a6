"""Writes the elastic forms of a kernel: a tile function, workers that draw tiles, and a slice.

Input: a kernel with its verdict.  Output: text of CUDA C++.  The extra parameters of the forms are
`tilewright::TileRange` and `tilewright::Turn`; cpu_trial.py has them for Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.base.errors import required
from tilewright.elastic.transform.copies import TILE, TW
from tilewright.elastic.transform.cuda_source import Edit, Source, inside, name_of
from tilewright.elastic.transform.definitions import Definition
from tilewright.elastic.transform.eligibility import Verdict
from tilewright.targets.ticket_protocol import TURNS

if TYPE_CHECKING:
    from tree_sitter import Node

#: The first line of a file with elastic forms.
MARK = "// Elastic forms made by Tilewright"
#: Code that the forms call.  It precedes the source, so macros of the source do not change it.
PRELUDE = f"""{MARK}: docs/elastic-transform.md, docs/elastic-form.md.
#ifndef TILEWRIGHT_ELASTIC
#define TILEWRIGHT_ELASTIC
namespace tilewright {{
{TURNS.strip()}
struct TileRange {{  // tiles [first, last) of a kernel, numbered as its blocks: x first
  unsigned grid[3], threads[3];  // of the whole kernel, as it would be launched
  unsigned first, last;
  unsigned each;  // so many tiles are one task of a worker: short ones cost less together
  const unsigned *map;  // three numbers for each tile: the block that it is; null: computed
}};
struct Tile {{
  uint3 tw_block;
  dim3 tw_grid;
  uint3 tw_thread;
  dim3 tw_threads;
  mutable unsigned tw_live;  // lanes of the warp that have not returned
}};
__device__ __forceinline__ Tile tw_tile_of(const TileRange &s, unsigned number) {{
  uint3 block;
  if (s.map) {{
    block.x = s.map[3 * number], block.y = s.map[3 * number + 1], block.z = s.map[3 * number + 2];
  }} else if (s.grid[1] == 1 && s.grid[2] == 1) {{
    block.x = number, block.y = block.z = 0;
  }} else {{
    const unsigned row = number / s.grid[0];
    block.x = number % s.grid[0], block.y = row % s.grid[1], block.z = row / s.grid[1];
  }}
  return Tile{{block, dim3(s.grid[0], s.grid[1], s.grid[2]), threadIdx, blockDim, ~0u}};
}}
// The tile behind this one, with the number given.
__device__ __forceinline__ void tw_advance(Tile &t, const TileRange &s, unsigned number) {{
  if (s.map) t.tw_block = tw_tile_of(s, number).tw_block;
  else if (++t.tw_block.x == s.grid[0]) {{
    t.tw_block.x = 0;
    if (++t.tw_block.y == s.grid[1]) t.tw_block.y = 0, ++t.tw_block.z;
  }}
}}
__device__ __forceinline__ bool leads() {{
  return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
}}
// What the forms call: words of theirs that a macro of the source may have are few.
__device__ __forceinline__ Worker tw_begin(const Turn &t, int *task) {{
  Worker w{{}};
  if (leads()) w = first_task(t, task);
  return w;
}}
__device__ __forceinline__ void tw_ahead(const Turn &t, Worker &w, int own) {{
  if (leads()) ask_ahead(t, w, own);
}}
__device__ __forceinline__ void tw_next(const Turn &t, int *task, Worker &w, int own) {{
  if (leads()) next_task(t, task, w, own, true);
}}
__device__ __forceinline__ void tw_finish(const Turn &t, const int *task, const Worker &w) {{
  if (leads() && task[0] < 0) finish(t, w.done);
}}
__device__ __forceinline__ unsigned tw_first(const TileRange &s, int task) {{
  return s.first + task * s.each;
}}
__device__ __forceinline__ unsigned tw_end_of(const TileRange &s, unsigned number) {{
  return number + min(s.each, s.last - number);
}}
__device__ __forceinline__ unsigned tw_begin(const TileRange &s) {{ return s.first + blockIdx.x; }}
__device__ __forceinline__ bool tw_within(const TileRange &s, unsigned number) {{
  return number < s.last;
}}
__device__ __forceinline__ unsigned tw_step() {{ return gridDim.x; }}
__device__ __forceinline__ unsigned tw_rank() {{
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}}
__device__ __forceinline__ unsigned tw_size() {{ return blockDim.x * blockDim.y * blockDim.z; }}
__device__ __forceinline__ unsigned tw_size(const TileRange &s) {{
  return s.threads[0] * s.threads[1] * s.threads[2];
}}
// The tile as thread `number` of the kernel sees it; blocks of the launch may be smaller.
__device__ __forceinline__ Tile tw_as_thread(Tile t, const TileRange &s, unsigned number) {{
  const unsigned row = number / s.threads[0];
  t.tw_thread.x = number % s.threads[0], t.tw_thread.y = row % s.threads[1];
  t.tw_thread.z = row / s.threads[1];
  t.tw_threads = dim3(s.threads[0], s.threads[1], s.threads[2]);
  return t;
}}
}}  // namespace tilewright
#endif
"""
_FORMS = """
// ---- elastic forms of %(name)s
%(tile)s
%(elastic)s {
  __shared__ int tw_tasks[2][3];
  tilewright::Worker tw_worker = tilewright::tw_begin(tw_turn, tw_tasks[0]);
  __syncthreads();
  for (int tw_side = 0;; tw_side ^= 1) {
    const int tw_own = tw_tasks[tw_side][0];
    if (tw_own < 0) return;
    tilewright::tw_ahead(tw_turn, tw_worker, tw_own);
    unsigned tw_number = tilewright::tw_first(tw_shard, tw_own);
    const unsigned tw_end = tilewright::tw_end_of(tw_shard, tw_number);
    tilewright::Tile tw_at = tilewright::tw_tile_of(tw_shard, tw_number);
    for (;;) {
      %(call)s
      if (++tw_number >= tw_end) break;
      %(between)stilewright::tw_advance(tw_at, tw_shard, tw_number);
    }
    tilewright::tw_next(tw_turn, tw_tasks[tw_side ^ 1], tw_worker, tw_own);
    __syncthreads();
    tilewright::tw_finish(tw_turn, tw_tasks[tw_side ^ 1], tw_worker);
  }
}
%(slice)s {
  for (unsigned tw_number = tilewright::tw_begin(tw_shard);
       tilewright::tw_within(tw_shard, tw_number); tw_number += tilewright::tw_step()) {
    const tilewright::Tile tw_at = tilewright::tw_tile_of(tw_shard, tw_number);
    %(call)s
    __syncthreads();
  }
}
"""
#: The tile's threads are computed by fewer threads of a worker.
_THREAD = "tilewright::tw_as_thread(tw_at, tw_shard, tw_n)"
_FOLDED = """for (unsigned tw_n = tilewright::tw_rank(); tw_n < tilewright::tw_size(tw_shard);
           tw_n += tilewright::tw_size())
        %s"""
BOUNDS = "__launch_bounds__"
SHARD, TURN = "const tilewright::TileRange tw_shard", "const tilewright::Turn tw_turn"
#: Words that forms contain besides those of the kernel.  The source must not redefine them.
WORDS = frozenset(
    re.findall(r"[A-Za-z_]\w*", re.sub(r"//.*|%\(\w+\)s", "", _FORMS + _FOLDED))
) | frozenset(re.findall(r"[A-Za-z_]\w*", f"{SHARD} {TURN} {TILE} {TW} {_THREAD} {BOUNDS}")) | {
    "__global__", "__device__", "__forceinline__", "void", "template",
}  # fmt: skip


@dataclass(frozen=True)
class Head:
    """The parts of a kernel's head that its forms repeat.

    template: "template <…>" or "";  label: "k" or "k<float>";  parameters, names: of the kernel
    arguments: of the template, "<T, N>" or ""
    """

    template: str
    label: str
    parameters: tuple[str, ...]
    names: tuple[str, ...]
    arguments: str


def forms(
    source: Source, verdict: Verdict, body: str, fold: bool, threads: int | None = None
) -> str:
    """The three functions, which follow the kernel's own text.

    body: of the tile;  threads: the most of a block, if the kernel does not say it itself
    """
    head = head_of(source, verdict.function)
    kernel = verdict.function
    of_tile = [re.sub(r"\b__grid_constant__\b", "", p) for p in head.parameters]
    call = _call(head, fold)
    # Between tiles of a task no barrier is needed if threads share nothing.
    between = "__syncthreads();\n      " if verdict.together else ""
    first = f"const {TILE} {TW}"
    tile = (
        f"{head.template}__device__ __forceinline__ void {_named(head, 'tw')}"
        f"({', '.join([first, *of_tile])}) {body}"
    )
    elastic = _headed(source, kernel, head, "elastic", threads, SHARD, TURN)
    slice_ = _headed(source, kernel, head, "slice", threads, SHARD)
    return _FORMS % {
        "name": kernel.name, "tile": tile, "elastic": elastic, "slice": slice_, "call": call,
        "between": between,
    }  # fmt: skip


def _call(head: Head, fold: bool) -> str:
    name = _named(head, "tw") + head.arguments
    if not fold:
        return f"{name}({', '.join(['tw_at', *head.names])});"
    return _FOLDED % f"{name}({', '.join([_THREAD, *head.names])});"


def _named(head: Head, form: str) -> str:
    return re.sub(r"^\w+", lambda found: f"{found[0]}_{form}", head.label)


def _headed(
    source: Source, kernel: Definition, head: Head, form: str, threads: int | None, *more: str
) -> str:
    """The kernel's own text up to its body, with another name, more parameters and a thread limit.

    Without the limit the compiler takes registers from the tile to make room for threads that never
    come: a loop in a block of 32 threads took 1.7 times as long.
    """
    label, parameters = kernel.labels, kernel.parameters
    given = f"({', '.join([*head.parameters, *more])})"
    own = source.between(kernel.whole.start_byte, label.start_byte)
    bounds = f"__launch_bounds__({threads}) " if threads and BOUNDS not in own else ""
    edits = [
        Edit(label.start_byte, label.end_byte, f"{bounds}{source.of(label)}_{form}"),
        Edit(parameters.start_byte, parameters.end_byte, given),
    ]
    return source.edited(kernel.whole.start_byte, kernel.body.start_byte, edits).strip()


def head_of(source: Source, kernel: Definition) -> Head:
    parameters, names = [], []
    given = [n for n in kernel.parameters.named_children if n.type.endswith("declaration")]
    if [source.of(n) for n in given] == ["void"]:
        given = []
    for number, node in enumerate(given):
        text, name = _parameter(source, node, f"tw_unused{number}")
        parameters.append(text)
        names.append(name)
    found = kernel.declarator.child_by_field_name("declarator")
    label = required(found, "a kernel has no name", kernel=kernel.name)
    templates = kernel.templates
    lists = [source.of(t) for t in templates]
    arguments = [a for t in templates for a in _arguments(source, t)]
    own = source.of(label).partition("<")[2]
    return Head(
        "".join(f"template {text}\n" for text in lists),
        source.of(label),
        tuple(parameters),
        tuple(names),
        f"<{', '.join(arguments)}>" if arguments and not own else "",
    )


def _parameter(source: Source, node: Node, unnamed: str) -> tuple[str, str]:
    """A parameter without its default value, and the argument that passes it on."""
    end, value = node.end_byte, node.child_by_field_name("default_value")
    if value is not None:
        end = next(c.start_byte for c in node.children if c.type == "=")
    text = source.between(node.start_byte, end).strip()
    name = name_of(node.child_by_field_name("declarator"))
    if name is None:
        return f"{text} {unnamed}", unnamed
    pack = any(n.type == "variadic_declarator" for n in inside(node))
    return text, source.of(name) + ("..." if pack else "")


def _arguments(source: Source, parameters: Node) -> list[str]:
    """A template's own parameters as the arguments of another template."""
    found = []
    for node in parameters.named_children:
        if node.type == "comment":
            continue
        name = (
            name_of(node)
            if node.type.startswith(("type_", "variadic_type", "optional_type"))
            else name_of(node.child_by_field_name("declarator")) or _last_name(node)
        )
        if name is not None:
            pack = "variadic" in node.type or any(
                n.type == "variadic_declarator" for n in inside(node)
            )
            found.append(source.of(name) + ("..." if pack else ""))
    return found


def _last_name(node: Node) -> Node | None:
    names = [n for n in inside(node) if n.type in ("type_identifier", "identifier")]
    return names[-1] if names else None

"""The second forms of a kernel: a tile as a device function, workers that draw tiles, and a slice.

Input: a kernel with its verdict.  Output: text of CUDA C++.  The extra parameters of the forms are
`tilewright::TileRange` and `tilewright::Turn`; arguments.py has them for Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.elastic.transform.module import Definition
from tilewright.elastic.transform.rewrite import TILE, TW
from tilewright.elastic.transform.rules import Verdict
from tilewright.elastic.transform.source import Edit, Source, inside, name_of
from tilewright.targets.turns import TURNS

if TYPE_CHECKING:
    from tree_sitter import Node

#: How a file with elastic forms begins.
MARK = "// Elastic forms made by Tilewright"
#: What the forms call.  It stands before the source, so macros of the source do not change it.
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
  uint3 block;
  dim3 grid;
  uint3 thread;
  dim3 threads;
  unsigned live;  // lanes of the warp that have not returned
}};
__device__ __forceinline__ Tile tile(const TileRange &s, unsigned number) {{
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
__device__ __forceinline__ void advance(Tile &t, const TileRange &s, unsigned number) {{
  if (s.map) t.block = tile(s, number).block;
  else if (++t.block.x == s.grid[0]) {{
    t.block.x = 0;
    if (++t.block.y == s.grid[1]) t.block.y = 0, ++t.block.z;
  }}
}}
__device__ __forceinline__ bool leads() {{
  return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
}}
__device__ __forceinline__ unsigned rank() {{
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}}
__device__ __forceinline__ unsigned size() {{ return blockDim.x * blockDim.y * blockDim.z; }}
__device__ __forceinline__ unsigned size(const TileRange &s) {{
  return s.threads[0] * s.threads[1] * s.threads[2];
}}
// The tile as thread `number` of the kernel sees it; blocks of the launch may be smaller.
__device__ __forceinline__ Tile as_thread(Tile t, const TileRange &s, unsigned number) {{
  const unsigned row = number / s.threads[0];
  t.thread.x = number % s.threads[0], t.thread.y = row % s.threads[1];
  t.thread.z = row / s.threads[1];
  t.threads = dim3(s.threads[0], s.threads[1], s.threads[2]);
  return t;
}}
}}  // namespace tilewright
#endif
"""
BOUNDS = "__launch_bounds__"
SHARD, TURN = "const tilewright::TileRange tw_shard", "const tilewright::Turn tw_turn"


@dataclass(frozen=True)
class Head:
    """What of a kernel's head its forms repeat.

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
    """The three functions, after the kernel's own text.

    body: of the tile;  threads: the most of a block, if the kernel does not say it itself
    """
    head = head_of(source, verdict.function)
    kernel = verdict.function
    of_tile = [re.sub(r"\b__grid_constant__\b", "", p) for p in head.parameters]
    call = _call(head, fold)
    # between tiles of one task nobody waits where threads share nothing
    between = "__syncthreads();\n      " if verdict.together else ""
    tile = (
        f"{head.template}__device__ __forceinline__ void {_named(head, 'tw')}"
        f"({', '.join([f'{TILE} {TW}', *of_tile])}) {body}"
    )
    elastic = _headed(source, kernel, head, "elastic", threads, SHARD, TURN)
    slice_ = _headed(source, kernel, head, "slice", threads, SHARD)
    return f"""
// ---- elastic forms of {kernel.name}
{tile}
{elastic} {{
  __shared__ int tw_tasks[2][3];
  tilewright::Worker tw_worker{{}};
  if (tilewright::leads()) tw_worker = tilewright::first_task(tw_turn, tw_tasks[0]);
  __syncthreads();
  for (int tw_side = 0;; tw_side ^= 1) {{
    const int tw_own = tw_tasks[tw_side][0];
    if (tw_own < 0) return;
    if (tilewright::leads()) tilewright::ask_ahead(tw_turn, tw_worker, tw_own);
    unsigned tw_number = tw_shard.first + tw_own * tw_shard.each;
    const unsigned tw_end = tw_number + min(tw_shard.each, tw_shard.last - tw_number);
    tilewright::Tile tw_at = tilewright::tile(tw_shard, tw_number);
    for (;;) {{
      {call}
      if (++tw_number >= tw_end) break;
      {between}tilewright::advance(tw_at, tw_shard, tw_number);
    }}
    if (tilewright::leads())
      tilewright::next_task(tw_turn, tw_tasks[tw_side ^ 1], tw_worker, tw_own, true);
    __syncthreads();
    if (tilewright::leads() && tw_tasks[tw_side ^ 1][0] < 0)
      tilewright::finish(tw_turn, tw_worker.done);
  }}
}}
{slice_} {{
  for (unsigned tw_number = tw_shard.first + blockIdx.x; tw_number < tw_shard.last;
       tw_number += gridDim.x) {{
    const tilewright::Tile tw_at = tilewright::tile(tw_shard, tw_number);
    {call}
    __syncthreads();
  }}
}}
"""


def _call(head: Head, fold: bool) -> str:
    name = _named(head, "tw") + head.arguments
    if not fold:
        return f"{name}({', '.join(['tw_at', *head.names])});"
    thread = "tilewright::as_thread(tw_at, tw_shard, tw_n)"
    return f"""for (unsigned tw_n = tilewright::rank(); tw_n < tilewright::size(tw_shard);
           tw_n += tilewright::size())
        {name}({", ".join([thread, *head.names])});"""


def _named(head: Head, form: str) -> str:
    return re.sub(r"^\w+", lambda found: f"{found[0]}_{form}", head.label)


def _headed(
    source: Source, kernel: Definition, head: Head, form: str, threads: int | None, *more: str
) -> str:
    """The kernel's own text up to its body, with another name, more parameters, and the most
    threads of a block.

    Without these the compiler takes registers from the tile to make room for threads that never
    come (seen: a loop of a block of 32 threads took 1.7 times as long).
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
    label = kernel.declarator.child_by_field_name("declarator")
    assert label is not None
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
    """A parameter without its default value, and what is handed on."""
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
    """A template's own parameters as the arguments of another."""
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

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
from tilewright.elastic.transform.rules import Verdict, Waits
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
  const unsigned *map;  // three numbers for each tile: the block that it is; null: computed
}};
enum {{ PLAIN, DRAINED, COUNTED }};  // how barriers inside of a tile are met
struct Tile {{
  uint3 block;
  dim3 grid;
  uint3 thread;
  dim3 threads;
  unsigned live;  // lanes of the warp that have not returned
  int waits;
  // Threads that have returned meet each of these in `drain`.
  __device__ __forceinline__ void barrier() const {{
    if (waits == PLAIN) __syncthreads();
    else __syncthreads_or(1);
    if (waits == COUNTED) __syncthreads_count(0);
  }}
  __device__ __forceinline__ int barrier_count(int p) const {{
    if (waits == COUNTED) __syncthreads_or(1);
    return __syncthreads_count(p);
  }}
  __device__ __forceinline__ int barrier_or(int p) const {{ return barrier_count(p) > 0; }}
  __device__ __forceinline__ int barrier_and(int p) const {{ return barrier_count(!p) == 0; }}
}};
__device__ __forceinline__ Tile tile(const TileRange &s, unsigned number, int waits) {{
  uint3 block;
  if (s.map) {{
    block.x = s.map[3 * number], block.y = s.map[3 * number + 1], block.z = s.map[3 * number + 2];
  }} else {{
    const unsigned row = number / s.grid[0];
    block.x = number % s.grid[0], block.y = row % s.grid[1], block.z = row / s.grid[1];
  }}
  return Tile{{block, dim3(s.grid[0], s.grid[1], s.grid[2]), threadIdx, blockDim, ~0u, waits}};
}}
// The end of a tile: until all threads have returned, those that have meet the others' barriers.
__device__ __forceinline__ void drain(int waits) {{
  if (waits == PLAIN) __syncthreads();
  else while (__syncthreads_or(0))
    if (waits == COUNTED) __syncthreads_count(0);
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


def forms(source: Source, verdict: Verdict, body: str, fold: bool) -> str:
    """The three functions, after the kernel's own text.  body: of the tile"""
    head = head_of(source, verdict.function)
    kernel = verdict.function
    of_tile = [re.sub(r"\b__grid_constant__\b", "", p) for p in head.parameters]
    call = _call(head, verdict.waits, fold)
    tile = (
        f"{head.template}__device__ __forceinline__ void {_named(head, 'tw')}"
        f"({', '.join([f'{TILE} {TW}', *of_tile])}) {body}"
    )
    elastic = _headed(source, kernel, head, "elastic", SHARD, TURN)
    slice_ = _headed(source, kernel, head, "slice", SHARD)
    waits = verdict.waits.name
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
    const unsigned tw_number = tw_shard.first + tw_own;
{call}
    if (tilewright::leads())
      tilewright::next_task(tw_turn, tw_tasks[tw_side ^ 1], tw_worker, tw_own, true);
    tilewright::drain(tilewright::{waits});
    if (tilewright::leads() && tw_tasks[tw_side ^ 1][0] < 0)
      tilewright::finish(tw_turn, tw_worker.done);
  }}
}}
{slice_} {{
  for (unsigned tw_number = tw_shard.first + blockIdx.x; tw_number < tw_shard.last;
       tw_number += gridDim.x) {{
{call}
    tilewright::drain(tilewright::{waits});
  }}
}}
"""


def _call(head: Head, waits: Waits, fold: bool) -> str:
    name = _named(head, "tw") + head.arguments
    tile = f"tilewright::tile(tw_shard, tw_number, tilewright::{waits.name})"
    if not fold:
        return f"    {name}({', '.join([tile, *head.names])});"
    thread = "tilewright::as_thread(tw_whole, tw_shard, tw_n)"
    return f"""    const tilewright::Tile tw_whole = {tile};
    for (unsigned tw_n = tilewright::rank(); tw_n < tilewright::size(tw_shard);
         tw_n += tilewright::size())
      {name}({", ".join([thread, *head.names])});"""


def _named(head: Head, form: str) -> str:
    return re.sub(r"^\w+", lambda found: f"{found[0]}_{form}", head.label)


def _headed(source: Source, kernel: Definition, head: Head, form: str, *more: str) -> str:
    """The kernel's own text up to its body, with another name and more parameters."""
    label, parameters = kernel.labels, kernel.parameters
    given = f"({', '.join([*head.parameters, *more])})"
    edits = [
        Edit(label.start_byte, label.end_byte, f"{source.of(label)}_{form}"),
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

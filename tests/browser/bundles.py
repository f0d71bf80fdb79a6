"""The bundles of the browser tests, really compiled, and ways to damage them.

Input: a name of `MAKERS`.  Output: a bundle folder that tests share and must not change; `copied`
gives one to spoil.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from helpers import outputs
from helpers.once import made_once
from helpers.schedules import scheduled

from lab.subjects import compile_graph, compile_matmul
from tilewright.base.dtypes import BOOL, F32, I8, I32, I64
from tilewright.bundle import POINTER, open_bundle, write
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.frontend import load
from tilewright.frontend.operators.activation import softmax
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    ModelNode,
    cast,
    constant,
    contract,
    elementwise,
    gather,
    graph_input,
    node,
    scalar_like,
)
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine, by_machine

from . import search_model

Array = np.ndarray[Any, np.dtype[Any]]
BERT = Path(__file__).parents[1] / "models" / "bert-tiny-sdpa-dynamo.onnx"
BERT_LENGTHS = (8, 16)
BOTH = ("wasm", "wgsl")
TABLE_ROWS = 5
TABLE_NODE = "words/Gather_7"
DOUBLED = 65536


def mixed() -> Graph:
    """One input of every kind that a caller can get wrong."""
    x = graph_input("x", (2, 3), F32)
    keep = graph_input("keep", (2, 3), BOOL)
    long = graph_input("long", (2, 3), I64)
    short = graph_input("short", (2, 3), I32)
    chosen = elementwise("where", keep, x, scalar_like(-1.0, x))
    whole = elementwise("add", long, cast(short, I64))
    return Graph("mixed", _inputs(x, keep, long, short), (("chosen", chosen), ("whole", whole)))


def table() -> Graph:
    values = np.random.default_rng(3).standard_normal((TABLE_ROWS, 12), np.float32)
    ids = graph_input("ids", (2, 7), I64)
    weight = node(ops.Weight("table", values.shape, F32, lambda: values))
    return Graph(
        "table",
        _inputs(ids),
        (("y", gather(weight, ids, 0, source=ModelNode(TABLE_NODE, "Gather"))),),
    )


def narrow() -> Graph:
    """Rows of bytes with a scale for each: files hold the bytes."""
    whole = np.arange(-127, 128, dtype=np.int8).repeat(12).reshape(255, 12)
    q = node(ops.Weight("q", whole.shape, I8, lambda: whole))
    rows = elementwise("mul", cast(q, F32), constant(np.full((1, 1), 0.5, np.float32)))
    ids = graph_input("ids", (3,), I64)
    return Graph("narrow", _inputs(ids), (("y", gather(rows, ids, 0)),))


def doubled() -> Graph:
    """Next to no work, but a quarter of a megabyte in and out: what leaks here shows."""
    x = graph_input("x", (DOUBLED,), F32)
    return Graph("doubled", _inputs(x), (("y", elementwise("add", x, x)),))


def difference() -> Graph:
    """So little work that a page does it in its own thread."""
    x, z = graph_input("x", (96,), F32), graph_input("z", (96,), F32)
    return Graph("difference", _inputs(x, z), (("y", elementwise("sub", x, z)),))


def attention(rows: int = 128, heads: int = 12, depth: int = 32) -> Graph:
    q, k, v = (graph_input(name, (heads, rows, depth), F32) for name in "qkv")
    scores = elementwise("mul", contract("hmd,hnd->hmn", q, k), scalar_like(depth**-0.5, q))
    return Graph(
        "attention", _inputs(q, k, v), (("y", contract("hmn,hnd->hmd", softmax(scores), v)),)
    )


def staged() -> Graph:
    """A product whose columns are copied first: its kernel needs scratch memory."""
    a, b = graph_input("a", (96, 512), F32), graph_input("b", (96, 512), F32)
    return Graph("staged", _inputs(a, b), (("y", contract("mk,nk->mn", a, b)),))


def _inputs(*nodes: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((n.op.name, n) for n in nodes)


def _bert(_folder: Path) -> Compiled:
    return compile_model(BERT, Options(buckets={"n": BERT_LENGTHS}))


def _search(folder: Path, targets: tuple[str, ...] = ("wasm",)) -> Compiled:
    folder.mkdir()
    model = search_model.write_model(folder / "search.onnx")
    tokenizer = search_model.write_tokenizer(folder / "tokenizer.json")
    return compile_model(
        model,
        Options(
            buckets={"n": search_model.LENGTHS},
            assets={tokenizer.name: tokenizer.read_bytes()},
            name="search",
            targets=targets,
        ),
    )


def poor(kernel: Kernel, machine: Machine) -> Schedule:
    """A schedule with no register tile to speak of: any other is several times faster."""
    return scheduled(kernel, machine, x0=1, y0=machine.lanes, r0=1)


MAKERS: dict[str, Callable[[Path], Compiled]] = {
    "linear": lambda _: compile_matmul(4, 24, 40),
    "shards": lambda _: compile_matmul(2, 1024, 1536),  # 6 MiB: two shards
    "poor": lambda _: compile_matmul(96, 256, 256, Options(schedule=by_machine(poor))),
    "busy": lambda _: compile_matmul(1024, 1024, 1024),  # some 50 ms a run
    "staged": lambda _: compile_graph(staged()),
    "mixed": lambda _: compile_graph(mixed()),
    "table": lambda _: compile_graph(table()),
    "narrow": lambda _: compile_graph(narrow()),
    "doubled": lambda _: compile_graph(doubled()),
    "difference": lambda _: compile_graph(difference()),
    "attention": lambda _: compile_graph(attention()),
    "outputs": lambda _: compile_model(
        load(outputs.model()), Options(buckets={"n": outputs.BUCKETS})
    ),
    "bert": _bert,
    "search": _search,
    "search on both": lambda folder: _search(folder, BOTH),
    "difference on both": lambda _: compile_graph(difference(), Options(targets=BOTH)),
}


class Library:
    """Bundles on demand, each made once for all workers of the run.

    root: of what they share; own: a folder of this process, for files that a bundle is made of.
    """

    def __init__(self, root: Path, own: Path) -> None:
        self.root = root
        self.own = own
        self._compiled: dict[str, Compiled] = {}

    def path(self, name: str) -> Path:
        return made_once(self.root / name, lambda to: write(self._made(name).contents, to))

    def graph(self, name: str) -> Graph:
        """What the bundle computes, for the graph interpreter."""
        return self._made(name).plans[0].graph

    def _made(self, name: str) -> Compiled:
        if name not in self._compiled:
            self._compiled[name] = MAKERS[name](self.own / name)
        return self._compiled[name]

    def copied(self, name: str, to: Path) -> Path:
        """A copy that a test may damage."""
        return shutil.copytree(self.path(name), to)


def shards(bundle: Path) -> list[str]:
    return [ref.file for ref in open_bundle(bundle).manifest.weights.shards]


def flip(path: Path, at: int | None = None) -> None:
    """Changes one bit, in the middle of the file if nothing else is said."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def edit_pointer(bundle: Path, **changes: Any) -> None:
    path = bundle / POINTER
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_manifest(bundle: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Changes the manifest; its digest is right again, so only its content can be wrong."""
    manifest = json.loads((bundle / open_bundle(bundle).pointer.manifest.file).read_text())
    edit(manifest)
    data = json.dumps(manifest).encode()
    digest = hashlib.sha256(data).hexdigest()
    file = f"blobs/{digest}.json"
    (bundle / file).write_bytes(data)
    edit_pointer(bundle, manifest={"file": file, "digest": digest, "bytes": len(data)})

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))
from tilewright.base.dtypes import F32
from tilewright.benchkernel import steps_of, weight_of
from tilewright.graph.node import Graph, contract, graph_input
from tilewright.hosts.browser_dawn import require_dawn
from tilewright.targets.gpu import rounded, thin
from tilewright.targets.gpu.rounded import RoundedSchedule as R
from tilewright.targets.gpu.target import group_of
from tilewright.targets.gpu.thin import ThinSchedule as T
from tilewright.targets.wgsl.api import Wgsl
from tilewright.targets.wgsl.emit import module

W = Wgsl()


def kernel(k, n, scales):
    x = graph_input("a", (1, k), F32)
    (s,) = steps_of(
        Graph("p", (("a", x),), (("y", contract("mk,kn->mn", x, weight_of((k, n), 0, 4, scales))),))
    )
    buffers = tuple(replace(b, loose="i8") if n > 2 else b for n, b in enumerate(s.kernel.buffers))
    return replace(s.kernel, buffers=buffers)


tiny = "--tiny" in sys.argv
shapes = (
    [(1024, 512), (4096, 11008)][: 1 + ("--mid" in sys.argv)]
    if tiny
    else [(4096, 11008), (11008, 4096), (4096, 4096), (4096, 12288)]
)
cases = []


def add(kern, shape, schedule, note="", apart=False, edit=None, fills=None, part=1):
    if schedule.objection(kern):
        print("skipped", shape, schedule, schedule.objection(kern))
        return
    code = W.code(kern, schedule)
    ap = frozenset({2, 3}) if apart else frozenset()
    text = module(code.loops, code.needs, ap)
    if edit:
        text = edit(text)
    cases.append(
        {
            "shape": shape,
            "name": f"{schedule} {note}{' bank' if apart else ''}".strip(),
            "text": text,
            "apart": apart,
            "groups": code.loops.tiles if code.loops.thread else -(-code.loops.tiles // 64),
            "invocations": code.loops.tiles * (group_of(code.loops) if code.loops.thread else 1),
            "threads": group_of(code.loops),
            "sizes": [b.size // (2 if b.halves else 1) for b in kern.buffers],
            "fills": fills or ["o", "x", "w", "h" if kern.buffers[3].halves else "f"],
            "part": part,
        }
    )


start = time.time()
def cut(t):
    return t[: t.index("  row0 = ")] + t[t.index("  workgroupBarrier();") :]


for shape in shapes:
    k, n = shape
    kern = kernel(k, n, "f16")
    d = rounded.default(kern)
    add(kern, shape, d)
    for y1, th, r0, unit in [(8, 256, 4, 8), (16, 128, 4, 8), (16, 128, 4, 16), (16, 256, 4, 8), (16, 256, 4, 16), (16, 256, 2, 16),
                             (32, 128, 4, 8), (32, 128, 4, 16), (32, 256, 2, 16), (32, 256, 2, 8), (32, 256, 4, 8), (32, 256, 8, 8), (32, 256, 4, 16), (64, 256, 4, 8), (64, 256, 4, 16)]:
        for parts in (1, 2, 3):
            r1 = 0 if parts == 1 else unit * -(-(k // unit) // parts)
            made = R(r0=r0, y1=y1, slices=th * 4 // y1, r1=r1, unit=unit)
            if not made.objection(kern):
                add(kern, shape, made)
                break
sys.path.insert(0, str(ROOT / "tests"))
from helpers.llama import Sizes, llama
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.targets.gpu import attention, reductions
from tilewright.targets.gpu.heads import HeadSchedule as H
from tilewright.targets.gpu.reductions import ReductionSchedule as Q
sizes = Sizes(layers=1, width=512 if tiny else 4096, heads=4 if tiny else 32, kv_heads=4 if tiny else 32, hidden=256, words=512 if tiny else 8192, room=1024, token="greedy")
program = compile_model(load(llama(sizes)), Options(targets=("wgsl",), buckets={"n": (1,)}, states=sizes.states)).program
for kern in program.kernels:
    if kern.name.startswith("attention"):
        fills, part = ["o", 575, "x", "k", "k"], 576 / 1024
        add(kern, kern.name, attention.default(kern), "default", fills=fills, part=part)
        for y1, th, ps in [(256, 256, 8), (128, 128, 8), (256, 256, 4), (512, 256, 1)]:
            add(kern, kern.name, H(x1=1, y1=y1, threads=th, parts=ps), fills=fills, part=part)
    elif False and kern.anchor == "rowwise":
        fills = ["o"] + ["x" if b.dtype == F32 else 7 for b in kern.buffers[1:]]
        add(kern, kern.name, reductions.default(kern), "default", fills=fills)
        for th, w in [(256, 0), (128, 0), (256, 32), (128, 32)]:
            add(kern, kern.name, Q(th, w), fills=fills)
    elif False and kern.name.startswith(("update", "add_")) and kern.buffers[0].size > 100:
        fills = ["o"] + ["x" if b.dtype == F32 else 7 for b in kern.buffers[1:]]
        add(kern, kern.name, W.default(kern, ""), "default", fills=fills)
print(f"{len(cases)} texts in {time.time() - start:.1f} s", flush=True)
dawn = require_dawn()
with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as f:
    json.dump({"cases": cases, "tiny": tiny}, f)
command = [
    str(dawn.path),
    "--no-warnings",
    str(ROOT / "exp_decode/exp.mjs"),
    str(dawn.package),
    " ".join(dawn.options),
    f.name,
]
done = subprocess.run(
    command,
    env={**os.environ, **dawn.environment},
    text=True,
    stderr=subprocess.STDOUT,
    check=False,
)
sys.exit(done.returncode)

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


def add(kern, shape, schedule, note="", apart=False, edit=None):
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
            "groups": code.loops.tiles,
            "threads": group_of(code.loops),
            "sizes": [b.size // (2 if b.halves else 1) for b in kern.buffers],
            "halves": kern.buffers[3].halves,
        }
    )


start = time.time()
def cut(t):
    return t[: t.index("  row0 = ")] + t[t.index("  workgroupBarrier();") :]


for shape in shapes:
    k, n = shape
    kern = kernel(k, n, "f16")
    add(kern, shape, thin.default(kern))
    d = rounded.default(kern)
    add(kern, shape, d)
    add(kern, shape, d, apart=True)
    for y1, th, r0 in [(8, 256, 1), (8, 256, 2), (16, 128, 1), (16, 128, 2), (16, 256, 1), (16, 256, 2), (24, 192, 2),
                       (32, 128, 2), (32, 128, 4), (32, 256, 1), (32, 256, 2), (32, 256, 3), (48, 192, 2), (64, 256, 2), (64, 256, 4)]:
        s = th * 4 // y1
        for parts in (1, 2):
            unit = 32
            r1 = 0 if parts == 1 else unit * -(-(k // unit) // parts)
            made = R(r0=r0, y1=y1, slices=s, r1=r1)
            if not made.objection(kern):
                add(kern, shape, made)
                break
    add(kern, shape, R(r0=2, y1=32, slices=32, r1=d.r1, ahead=False))
    add(kern, shape, R(r0=d.r0, y1=d.y1, slices=d.slices, r1=d.r1), "NO ROUNDING", edit=cut)
    add(kern, shape, R(r0=d.r0, y1=d.y1, slices=d.slices, r1=d.r1), "MIN CLAMP OFF? f32", edit=lambda t: t)
    kern = kernel(k, n, "")
    add(kern, shape, rounded.default(kern), "f32 scales")
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

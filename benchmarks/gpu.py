"""Kernels of the WGSL target on a real GPU, through Dawn in Node: TFLOP/s, beside cuBLAS.

Input: a GPU, Node, the npm package `webgpu`.  Output: results/gpu.json.  The engine's own backend
repeats a plan of one kernel in one submission, and its time is that of the GPU's own clock.  Beside
it: a WGSL kernel that copies memory and, where PyTorch sees the GPU, cuBLAS in f32 without TF32, by
turns with ours.  Random data; outputs are compared before anything is timed.

    python benchmarks/gpu.py [--only K0] [--rounds 5] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import numpy as np
from cublas import WARM_MS, Cublas, cuda
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.dtypes import F32
from tilewright.benchkernel import BLOCK, Subject, alone, product, product_step, steps_of
from tilewright.benchkernel import weight_of as random_weight
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.graph.node import Graph, Node, contract, evaluate, graph_input
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.browser_dawn import Dawn, require_dawn
from tilewright.kernel.spec import Kernel
from tilewright.targets.classes import CLASSES
from tilewright.targets.gpu import halves
from tilewright.targets.protocol import Variant
from tilewright.targets.schedule import Schedule

WGSL = Options(targets=("wgsl",))
#: Milliseconds that one submission should take: then its overhead does not count.
SUBMISSION_MS = 20.0
MOST_REPEATS = 4096
#: How many times as much is tried where the clock shows nothing.
STEP = 16
RUNS = 5
COPY_BYTES = 1 << 30
#: Rows of a product that are compared with float64.
CHECKED = 64


@dataclass(frozen=True)
class Case:
    """A product; `layers`: that many weights one after the other, else one kernel repeated.

    bits:   of a weight's elements; those of 4 have a scale in f32 for each block of 32 rows; 8 is a
            product of bytes in i32
    halves: both operands come to the product as f16, if the adapter has it: by "matrices" of
            subgroups, which is the target's own choice, or by "tiles"; scales are f16, too
    With one kernel repeated its operands stay in the caches, for cuBLAS as for us.
    """

    name: str
    equation: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    weight: bool = True
    layers: int = 0
    bits: int = 32
    halves: str = ""

    @property
    def tolerance(self) -> float:
        """Relative error of a product; of bytes there is none."""
        return 1e-3 if self.halves else 1e-5 if self.bits != 8 else 0.0

    @property
    def flops(self) -> int:
        """Of one product."""
        dims = dict(
            zip(self.equation.split("->")[0].replace(",", ""), self.a + self.b, strict=True)
        )
        return 2 * prod(dims.values())

    def subject(self, times: int) -> Subject:
        if self.bits == 8:
            return bytes_product(self.a, self.b)
        if self.halves:
            (step,) = steps_of(self.graph())
            options = replace(WGSL, schedule=by_tiles) if self.halves == "tiles" else WGSL
            return alone(step, options, times)
        if self.layers or self.bits < 32:
            return product(
                self.equation, self.a, self.b, weight=True, times=self.layers or times,
                bits=self.bits, options=WGSL,
            )  # fmt: skip
        step = product_step(self.equation, self.a, self.b, weight=self.weight)
        return alone(step, WGSL, times)

    def graph(self) -> Graph:
        """The product alone."""
        x = graph_input("a", self.a, F32)
        y = contract(self.equation, x, weight_node(self))
        return Graph("product", (("a", x),), (("y", y),))


def by_tiles(kernel: Kernel, variant: Variant) -> Schedule:
    """The first that is tried of tiles of halves."""
    del variant
    device = CLASSES["webgpu"]
    return halves.space(kernel, device.core, device.machine)[0][0]


def weight_node(case: Case) -> Node:
    return random_weight(case.b, 0, case.bits, scales="f16" if case.halves else "")


def bytes_product(a: Sequence[int], b: Sequence[int]) -> Subject:
    """u8 by i8 in i32, as ONNX has it."""
    weight = np.random.default_rng(0).integers(-128, 128, tuple(b), np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "bytes",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, a)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (a[0], b[1]))],
        [numpy_helper.from_array(weight, "b")],
    )
    opsets = [helper.make_opsetid("", 17)]
    compiled = compile_model(helper.make_model(graph, opset_imports=opsets, ir_version=9), WGSL)
    return Subject("bytes", compiled.contents, 2 * a[0] * a[1] * b[1])


def matmul(
    name: str, m: int, k: int, n: int, layers: int = 0, bits: int = 32, halves: str = ""
) -> Case:
    return Case(name, "mk,kn->mn", (m, k), (k, n), layers=layers, bits=bits, halves=halves)


def batched(name: str, batch: int, m: int, k: int, n: int) -> Case:
    return Case(name, "bmk,bkn->bmn", (batch, m, k), (batch, k, n), weight=False)


CASES = (
    matmul("K0", 384, 768, 768),
    matmul("K1", 640, 768, 3072),
    batched("K2", 12, 384, 384, 64),
    batched("K3", 120, 64, 64, 64),
    *(matmul(f"GEMM {n}", n, n, n) for n in (512, 1024, 2048, 4096)),
    matmul("GEMV 4096x4096", 1, 4096, 4096, layers=8),
    matmul("GEMV 4096x11008", 1, 4096, 11008, layers=3),
    matmul("GEMV 4096x11008, 16 bits", 1, 4096, 11008, layers=8, bits=16),
    matmul("GEMV 4096x11008, 4 bits", 1, 4096, 11008, layers=8, bits=4),
    matmul("GEMV 11008x4096, 4 bits", 1, 11008, 4096, layers=8, bits=4),
    matmul("GEMM 512x4096x11008", 512, 4096, 11008),
    matmul("GEMM 512x4096x11008, 4 bits", 512, 4096, 11008, bits=4),
    *(
        matmul(f"{name}, {bits} bits, halves by {way}", *sizes, bits=bits, halves=way)
        for name, sizes, bits in (
            ("GEMM 4096", (4096, 4096, 4096), 16),
            ("GEMM 512x4096x11008", (512, 4096, 11008), 4),
        )
        for way in ("matrices", "tiles")
    ),
    matmul("GEMM 4096, bytes", 4096, 4096, 4096, bits=8),
)

#: Runs something once per sample and gives the milliseconds of one product in each.
Sampler = Callable[[int], list[float]]


class Ours:
    """A case on Dawn: its plan repeated in one submission of about `SUBMISSION_MS`."""

    def __init__(self, host: BrowserHost, case: Case, folder: Path) -> None:
        write(case.subject(1).contents, folder)
        self.model = host.load(folder)
        self.layers, self.times = case.layers or 1, 1
        self.error = check(self.model, case)
        # the clock is rounded, and a card that is not yet warm is slow: each time more is known
        for _ in range(4):
            once = statistics.median(self._many(RUNS))
            wanted = ceil(SUBMISSION_MS / once) if once else STEP * self.times
            self.times = min(MOST_REPEATS, wanted)

    def sample(self, runs: int) -> list[float]:
        """Milliseconds of one product by the GPU's clock."""
        spent = 0.0
        while spent < WARM_MS:
            spent += self.times * sum(self._many(1))
        return [ms / self.layers for ms in self._many(runs)]

    def _many(self, runs: int) -> list[float]:
        return self.model.time(runs, 0, repeat=self.times).milliseconds

    def waited(self, runs: int) -> float:
        """Milliseconds from the page's submission of one plan until it knows the end."""
        return statistics.median(self.model.time(runs, 1).milliseconds)


def check(model: BrowserModel, case: Case) -> float:
    """Relative error of the first product against float64; raises if it is too large."""
    rng = np.random.default_rng(1)
    shapes = (case.a,) if case.weight else (case.a, case.b)
    named = [str(i["name"]) for i in model.info["inputs"]]
    inputs = {n: random_input(rng, s, case) for n, s in zip(named, shapes, strict=True)}
    got = model.run(inputs).outputs[model.info["outputs"][0]["name"]]
    a = inputs[named[0]].astype(np.float64)
    b = weight_of(case) if case.weight else inputs[named[1]]
    if a.ndim == 2:
        a, got = a[:CHECKED], got[:CHECKED]
    want = a @ b
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    if not error <= case.tolerance:
        raise SystemExit(f"{case.name}: relative error {error}")
    return error


def random_input(rng: np.random.Generator, shape: tuple[int, ...], case: Case) -> Any:
    if case.bits == 8:
        return rng.integers(0, 256, shape, np.uint8)
    return rng.standard_normal(shape, np.float32)


def weight_of(case: Case) -> np.ndarray[Any, Any]:
    """The first weight of a case."""
    if case.bits == 8:
        return np.random.default_rng(0).integers(-128, 128, case.b, np.int8)
    return evaluate([weight_node(case)])[0]


def measure(host: BrowserHost, torch: Any, case: Case, rounds: int, folder: Path) -> dict[str, Any]:
    ours = Ours(host, case, folder)
    theirs = None
    if torch and case.bits != 8:
        halves, times = bool(case.halves), ours.times * ours.layers
        theirs = Cublas(torch, case.a, case.b, ours.layers, halves, times)
    found: dict[str, list[float]] = {"": [], "cublas_": []}
    for _ in range(rounds):
        found[""] += ours.sample(RUNS)
        if theirs:
            found["cublas_"] += theirs.sample(RUNS)
    waited = ours.waited(RUNS)
    ours.model.dispose()
    row: dict[str, Any] = {
        "case": case.name, "shape": [*case.a, *case.b], "repeats": ours.times,
        "features": ours.model.info["variant"]["features"],
        "waited_ms": round(waited, 4),
    }  # fmt: skip
    for prefix, times in found.items():
        if times:
            row |= {prefix + key: value for key, value in figures(case, times).items()}
    if theirs:
        row["share_of_cublas"] = round(row["cublas_ms"] / row["ms"], 4)
    return row | {"relative_error": ours.error}


def figures(case: Case, times: Sequence[float]) -> dict[str, Any]:
    middle = statistics.median(times)
    found: dict[str, Any] = {"ms": round(middle, 6), "tflops": round(case.flops / middle / 1e9, 3)}
    if case.layers:
        scales = 32 / BLOCK if case.bits == 4 else 0
        found["gb_per_s"] = round((case.bits + scales) / 8 * prod(case.b) / middle / 1e6, 1)
    return found | {"spread": round(common.spread(times), 4), "n": len(times)}


def memory(dawn: Dawn, size: int) -> dict[str, Any]:
    """The adapter with its limits, and GB/s of a WGSL kernel that copies and one that reads."""
    script = Path(__file__).with_name("gpu_copy.mjs")
    command = [str(dawn.path), str(script), str(dawn.package), " ".join(dawn.options), str(size)]
    done = subprocess.run(
        command, env={**os.environ, **dawn.environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{script.name} failed:\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    moved = {"copy": 2 * found["bytes"], "read": found["bytes"]}
    rows = {
        kind: {
            "gb_per_s": round(moved[kind] / statistics.median(times) / 1e6, 1),
            "spread": round(common.spread(times), 4),
            "n": len(times),
        }
        for kind, times in found["milliseconds"].items()
    }
    return {"adapter": found["adapter"], "memory": rows | {"bytes": found["bytes"]}}


def driver() -> dict[str, str]:
    """Name and driver of an NVIDIA card, as its own tool says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    name, _, number = said.strip().splitlines()[0].partition(", ")
    return {"gpu": name, "driver": number}


def software(dawn: Dawn, torch: Any) -> dict[str, str]:
    package = json.loads((dawn.package / "package.json").read_text())
    node = subprocess.run(
        [str(dawn.path), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = {"webgpu": package["version"], "node": node}
    return found | ({"torch": torch.__version__, "cuda": torch.version.cuda} if torch else {})


def chosen(only: Sequence[str]) -> Iterator[Case]:
    return (c for c in CASES if not only or any(c.name.startswith(o) for o in only))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="cases that begin so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="K0 right, and nothing is written")
    parser.add_argument("--copy-bytes", type=int, default=COPY_BYTES)
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    dawn, torch = require_dawn(), cuda()
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder, BrowserHost(dawn) as host:
        if args.smoke:
            smoke(host, dawn, Path(folder))
            return
        facts = memory(dawn, args.copy_bytes)
        print(json.dumps(facts["memory"]), flush=True)
        rows = []
        for number, case in enumerate(chosen(args.only)):
            rows.append(measure(host, torch, case, args.rounds, Path(folder, str(number))))
            print(rows[-1], flush=True)
    if args.only:
        return
    facts |= {
        "machine": common.machine() | driver(),
        "versions": common.versions() | software(dawn, torch),
        "options": list(dawn.options),
        "commit": args.commit or common.commit(),
    }
    print(common.save("gpu", rows, **facts))


def smoke(host: BrowserHost, dawn: Dawn, folder: Path) -> None:
    print(json.dumps(dict(dawn.adapter)))
    print(json.dumps(host.info))
    write(CASES[0].subject(1).contents, folder)
    model = host.load(folder)
    print(model.info["variant"], model.info["lost"])
    print("relative error", check(model, CASES[0]), "ms", model.time(10, 3).milliseconds)


if __name__ == "__main__":
    main()

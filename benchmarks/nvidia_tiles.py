"""Tiles of products by NVIDIA's matrix units, a handful for each type, beside cuBLAS.

Input: a GPU with its driver, the extra `cuda`.  Output: a line for each tile, and
results/nvidia_tiles.json.  A type's product is built once; each tile is a kernel of its own on the
same memory, whose output is compared with that of the bundle's own kernel before it is timed.  It
shows which tiles the target should start with (targets/cuda/strategies.py).

    python benchmarks/nvidia_tiles.py [--only f16] [--size 4096] [--runs 5] [--smoke]

--smoke: a small product on the CPU, which checks the script and says nothing of speed
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import numpy as np
from cublas import Cublas, cuda
from products import RUN_MS, Case, matmul

from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_tasks import Launch, Zeroes
from tilewright.targets.cuda.api import Cuda
from tilewright.targets.cuda.emit import dynamic_of
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.cuda.strategies import WARPS
from tilewright.targets.gpu.matrix.schedule import TYPES, MatrixSchedule
from tilewright.tuning.catalogue import kernels_of

CUDA, OPTIONS = Cuda(), Options(targets=("cuda",))
#: A card that has begun to compute is soon at its full clock.
WARM_MS, COLD_MS = 60.0, 400.0

#: Results of a warp, and warps: rows, columns, down, along; bytes of the depth of a block; stages.
SHAPES = (
    (4, 4, 2, 4, 64, 3), (4, 4, 2, 4, 64, 4), (4, 4, 2, 4, 128, 2), (4, 4, 2, 4, 128, 3),
    (4, 4, 4, 2, 64, 4), (4, 4, 4, 2, 128, 3), (4, 4, 2, 2, 64, 4), (4, 4, 2, 2, 128, 2),
    (4, 4, 2, 2, 128, 3), (2, 4, 2, 4, 128, 3), (4, 4, 2, 2, 64, 1),
)  # fmt: skip
#: Results of a warp group of Hopper, and groups: columns of a result; rows, columns, down, along;
#: stages.  Halves alone.
GROUPS = (
    (128, 1, 2, 2, 1, 4), (128, 2, 1, 2, 1, 4), (128, 2, 1, 2, 1, 3), (128, 1, 1, 2, 1, 4),
    (128, 1, 1, 2, 1, 3), (256, 1, 1, 2, 1, 4), (256, 1, 1, 2, 1, 3), (256, 1, 1, 1, 1, 3),
    (128, 2, 1, 1, 2, 4),
)  # fmt: skip
#: Rows of tiles that are walked together; the first for all shapes, the others for the first one.
BANDS = (8, 4, 16)
#: Rows, steps and columns of a small product.
SMALL = (64, 128, 1024)
#: By type: the sizes of a matrix.
KINDS = {"f16": ("f16-f32", 16), "tf32": ("tf32-f32", 8), "i8": ("u8-i32", 32)}


def case_of(kind: str, m: int, k: int, n: int) -> Case:
    bits = {"f16": 16, "i8": 8}.get(kind, 32)
    halves = "matrices" if kind == "f16" else ""
    made = matmul(kind, m, k, n, bits=bits, halves=halves)
    return replace(made, tf32=kind == "tf32")


def schedules(kind: str) -> Iterator[MatrixSchedule]:
    types, k = KINDS[kind]
    for band in BANDS:
        for rows, columns, down, along, block, stages in SHAPES if band == BANDS[0] else SHAPES[:1]:
            r1 = block // (k * TYPES[types].operand.size)
            yield MatrixSchedule(
                types, 16, 16, k, 32, rows, columns, down, along, r1, band, stages=stages
            )
    for n, *shape, stages in GROUPS if kind == "f16" else ():
        yield MatrixSchedule(types, 64, n, k, 128, *shape, 4, BANDS[0], stages=stages)


class Product:
    """The last step of a bundle, by other kernels."""

    def __init__(self, device: CudaDevice, case: Case, folder: Path) -> None:
        subject = case.subject(1, OPTIONS)
        write(subject.contents, folder)
        self.device, self.case = device, case
        self.host = CudaHost(folder, device)
        manifest = self.host.bundle.manifest
        (self.input,), (self.output,) = manifest.inputs, manifest.outputs
        (x,) = case.inputs(np.random.default_rng(1))
        self.given = {self.input.name: x}
        self.want = self._output(self.host.run(self.given).outputs)
        exact = case.wanted([x])
        off = float(np.linalg.norm(self.want[: len(exact)] - exact) / np.linalg.norm(exact))
        if not off <= case.tolerance:
            raise SystemExit(f"{case.name}: the bundle's own kernel is off by {off}")
        _, self.launch = self.host.steps(-1, [])[-1]
        self.kernel = next(k for k in kernels_of(self.host.bundle) if WARPS.suits(k))

    def _output(self, outputs: Any) -> np.ndarray[Any, Any]:
        return np.asarray(outputs[self.output.name])

    def launch_of(self, schedule: MatrixSchedule) -> Launch:
        code = CUDA.code(self.kernel, schedule)
        shared = dynamic_of(code.loops)
        (made,) = self.device.compile(prelude(), [str(code.body)], [shared])
        return replace(
            self.launch, kernel=made, blocks=code.loops.tiles, group=code.loops.threads,
            shared=shared,
        )  # fmt: skip

    def check(self, launch: Launch) -> float:
        """The largest difference from the output of the bundle's own kernel, over its size."""
        self.device.start(Zeroes(self.launch.args[0].value, self.want.nbytes))
        self.device.start(launch)
        got = self._output(self.host.take(self.given).outputs)
        scale = float(np.abs(self.want).max())
        return float(np.abs(got.astype(np.float64) - self.want).max()) / scale

    def time(self, launch: Launch, runs: int, warm: float) -> list[float]:
        """Milliseconds of one product in each of `runs` runs."""
        once = self.device.milliseconds(self.device.record([launch]))
        times = max(1, ceil(RUN_MS / max(once, 1e-3)))
        run, spent = self.device.record([launch] * times), 0.0
        while spent < warm:
            spent += self.device.milliseconds(run)
        return [self.device.milliseconds(run) / times for _ in range(runs)]


def row_of(
    product: Product, kind: str, s: MatrixSchedule, runs: int, warm: float
) -> dict[str, Any]:
    """A tile: what it is, and how long it takes, or how wrong it is."""
    launch = product.launch_of(s)
    row: dict[str, Any] = {
        "kind": kind, "tile": [s.x1, s.y1], "unit": f"{s.m}x{s.n}x{s.k}",
        "warps": s.threads // 32, "depth": s.depth,
        "stages": s.stages, "band": s.band, "shared": launch.shared,
    }  # fmt: skip
    error = product.check(launch)
    limit = 0.0 if kind == "i8" else 1e-3
    if not error <= limit:
        return row | {"wrong": error}
    return row | figures(product.case, product.time(launch, runs, warm))


def figures(case: Case, times: list[float]) -> dict[str, Any]:
    middle = statistics.median(times)
    return {"ms": round(middle, 5), "tflops": round(case.flops / middle / 1e9, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(KINDS), default=[])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    torch, warm, sizes = cuda(), WARM_MS, (args.size,) * 3
    device: CudaDevice = CpuDevice() if args.smoke else NvidiaDevice()
    if args.smoke:
        torch, warm, sizes = None, 0.0, SMALL
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="nvidia-") as folder:
        for kind in args.only or KINDS:
            product = Product(device, case_of(kind, *sizes), Path(folder, kind))
            if torch:
                case = product.case
                theirs = Cublas(torch, case.a, case.b, 1, case.kind, 32)
                rows.append({"kind": kind, "cublas": True}
                            | figures(product.case, theirs.sample(args.runs)))  # fmt: skip
                print(rows[-1], flush=True)
            product.time(product.launch, 1, 0.0 if args.smoke else COLD_MS)
            tried = list(schedules(kind))
            for s in tried[:1] if args.smoke else tried:
                if objection := CUDA.objection(product.kernel, s):
                    print(kind, s, objection, flush=True)
                    continue
                rows.append(row_of(product, kind, s, args.runs, warm))
                print(rows[-1], flush=True)
    if args.smoke or args.only:
        return
    print(common.save("nvidia_tiles", rows, **common.nvidia_facts(args.commit)))


if __name__ == "__main__":
    main()

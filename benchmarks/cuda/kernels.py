"""Kernels of the CUDA target on an NVIDIA GPU, by the GPU's own clock, beside cuBLAS.

Input: a GPU with its driver, the extra `cuda`.  Output: results/cuda.kernels.json.  A plan of one
kernel is repeated in one CUDA graph, as cuBLAS's products are; both run by turns.  Random data;
outputs are compared before anything is timed.

    python -m benchmarks cuda.kernels [--only K0] [--rounds 5]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.common import Run, nvidia_machine, versions
from benchmarks.gpu.cublas import cuda
from benchmarks.gpu.products import (
    CASES,
    RUNS,
    Case,
    Runner,
    chosen_cases,
    matmul,
    measure,
)
from benchmarks.options import Only, Rounds
from benchmarks.records import Row
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, NvidiaDevice

CUDA = Options(targets=("cuda",))


class OnCuda(Runner):
    """A case on a CUDA device."""

    features = ()

    def __init__(self, device: CudaDevice, case: Case, folder: Path) -> None:
        write(case.subject(case.readers, CUDA).contents, folder)
        self.host = CudaHost(folder, device)
        manifest = self.host.bundle.manifest
        super().__init__(case, [x.name for x in (*manifest.inputs, manifest.outputs[0])])

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return self.host.run(inputs).outputs

    def many(self, runs: int) -> list[float]:
        return self.host.clock(runs, repeat=self.times)

    def waited(self) -> float:
        return statistics.median(self.host.time(RUNS))


#: What only this target has.
MORE = (replace(matmul("GEMM 4096, TF32", 4096, 4096, 4096), tf32=True),)


def cases(only: Iterable[str] | None = None) -> Iterator[Case]:
    """Tiles of halves are not among what the target has."""
    wanted = chosen_cases(only, (*CASES, *MORE))
    # halves are multiplied by matrix units alone, and attention is computed in f32
    return (c for c in wanted if not c.halves or (c.halves != "tiles" and c.on_cublas))


def main(run: Run, only: Only = None, rounds: Rounds = 5) -> None:
    torch, device = cuda(), NvidiaDevice()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="nvidia-") as folder:
        for number, case in enumerate(cases(only)):
            ours = OnCuda(device, case, Path(folder, str(number)))
            rows.append(measure(ours, torch, case, rounds))
            run.show(rows[-1])
    run.save(rows, facts={"machine": nvidia_machine(), "versions": versions(torch)})

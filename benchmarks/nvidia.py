"""Kernels of the CUDA target on an NVIDIA GPU, by the GPU's own clock, beside cuBLAS.

Input: a GPU with its driver, the extra `cuda`.  Output: results/nvidia.json.  A plan of one kernel
is repeated in one CUDA graph, as cuBLAS's products are; both run by turns.  Random data; outputs
are compared before anything is timed.

    python benchmarks/nvidia.py [--only K0] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
from cublas import cuda
from products import CASES, RUNS, Case, Runner, chosen, matmul, measure

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

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.host.run(inputs).outputs

    def many(self, runs: int) -> list[float]:
        return self.host.clock(runs, repeat=self.times)

    def waited(self) -> float:
        return statistics.median(self.host.time(RUNS))


#: What only this target has.
MORE = (replace(matmul("GEMM 4096, TF32", 4096, 4096, 4096), tf32=True),)


def cases(only: Sequence[str]) -> Iterator[Case]:
    """Tiles of halves are not among what the target has."""
    wanted = chosen(only, (*CASES, *MORE))
    # halves are multiplied by matrix units alone, and attention is computed in f32
    return (c for c in wanted if not c.halves or (c.halves != "tiles" and c.on_cublas))


def versions(torch: Any) -> dict[str, str]:
    found = common.versions()
    return found | ({"torch": torch.__version__, "cuda": torch.version.cuda} if torch else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], help="cases that begin so; other rows stay"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    torch, device = cuda(), NvidiaDevice()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="nvidia-") as folder:
        for number, case in enumerate(cases(args.only)):
            ours = OnCuda(device, case, Path(folder, str(number)))
            rows.append(measure(ours, torch, case, args.rounds))
            print(rows[-1], flush=True)
    facts = common.nvidia_facts(args.commit)
    print(common.merge("nvidia", rows, ("case",), versions=versions(torch), **facts))


if __name__ == "__main__":
    main()

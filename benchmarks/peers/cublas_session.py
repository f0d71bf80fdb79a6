"""cuBLAS as one more engine of the comparison on GPUs: a session without a page.

Input: the files of a product, PyTorch where it sees an NVIDIA GPU.  Output: what `Session` gives:
the answer, and times of many products in a row, captured as one CUDA graph, its best.  f32 is
without TF32.  It is no WebGPU: it shows what is left on the same card.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.gpu.cublas import cuda
from benchmarks.gpu.gpu_clock import RUN_MS
from benchmarks.peers.cases import Case, Matmul
from benchmarks.peers.engines import CUBLAS
from benchmarks.peers.files import Files
from benchmarks.peers.operands import Arrays, operands
from benchmarks.peers.session import Session
from benchmarks.peers.site import Site
from tilewright.hosts.browser_connection import Json

#: Products in a row, at most, as in page.js.
MOST_STREAM = 512


def suits(case: Case) -> bool:
    return isinstance(case.work, Matmul)


def version() -> str:
    """CUDA's, that PyTorch came with; "" where it sees no GPU."""
    torch = cuda()
    return str(torch.version.cuda) if torch else ""


class CublasSession(Session):
    """Products by `torch.matmul`; the session of one case after the other."""

    def __init__(self) -> None:
        self.engine, self.threads, self.site = CUBLAS.name, 1, Site()
        self.torch: Any = cuda()
        self._operands: list[Any] = []
        self._made: Any = None
        self._graphs: dict[int, Any] = {}

    def add(self, files: Files) -> None:
        pass

    def open(self, files: Files) -> Json:
        assert isinstance(files.case.work, Matmul)
        self.torch.backends.cuda.matmul.allow_tf32 = False
        inputs, constants = operands(files.case.work)
        given = inputs | constants
        self._operands = [self.torch.from_numpy(given[name]).cuda() for name in ("x", "w")]
        self._made = self.torch.matmul(*self._operands)
        return {"milliseconds": 0.0, "about": {}}

    def first(self) -> tuple[float, Arrays, Json]:
        start = time.perf_counter()
        answer = self.torch.matmul(*self._operands).float().cpu().numpy()
        return (time.perf_counter() - start) * 1e3, {"y": answer}, {}

    def warm_stream(self, milliseconds: float) -> tuple[float, int]:
        end, fastest, batch = time.perf_counter() + milliseconds / 1e3, float("inf"), 1
        while True:
            spent = self._run(batch)
            fastest = min(fastest, spent / batch)
            if time.perf_counter() >= end:
                return fastest, batch
            if spent < RUN_MS and batch < MOST_STREAM:
                batch *= 2

    def round(self, samples: int, batch: int, stream: bool = False, settle: float = 0.0) -> Json:
        end = time.perf_counter() + settle / 1e3
        while time.perf_counter() < end:
            self._run(batch)
        return {"times": [self._run(batch) / batch for _ in range(samples)], "inside": []}

    def close(self) -> None:
        self._operands, self._made, self._graphs = [], None, {}

    def _run(self, runs: int) -> float:
        """Milliseconds until the GPU has done that many products."""
        if runs not in self._graphs:
            self._graphs[runs] = self._captured(runs)
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        self._graphs[runs].replay()
        self.torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    def _captured(self, runs: int) -> Any:
        torch, graph = self.torch, self.torch.cuda.CUDAGraph()
        # cuBLAS takes its memory at the first product on a stream, which no capture may do
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.matmul(*self._operands, out=self._made)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(runs):
                torch.matmul(*self._operands, out=self._made)
        return graph

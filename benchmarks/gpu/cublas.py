"""Products by cuBLAS through PyTorch, where it sees a GPU, to be timed beside our own.

Input: the shapes of a product and the type that it is computed in.  Output: milliseconds by the
GPU's own events.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from benchmarks.gpu.gpu_clock import KEPT_MS, WARM_MS


class Cublas:
    """Products of a and b, `times` in one CUDA graph, of as many weights in turn.

    kind: "f32", "tf32", "f16", or "i8" with sums of 32 bits
    """

    def __init__(
        self,
        torch: ModuleType,
        a: Sequence[int],
        b: Sequence[int],
        weights: int,
        kind: str,
        times: int,
    ) -> None:
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        self.torch, self.times, self.warm = torch, times, 0.0
        make = torch.Generator(device="cuda").manual_seed(1)

        def random(shape: Sequence[int]) -> Any:
            if kind == "i8":
                given = {"dtype": torch.int8, "device": "cuda", "generator": make}
                return torch.randint(-128, 128, shape, **given)
            made = torch.randn(shape, device="cuda", generator=make)
            return made.half() if kind == "f16" else made

        multiply = torch._int_mm if kind == "i8" else torch.matmul
        left, rights = random(a), [random(b) for _ in range(weights)]
        if kind == "i8":  # cuBLAS is several times as fast if columns are contiguous
            rights = [right.t().contiguous().t() for right in rights]
        out = multiply(left, rights[0])
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            multiply(left, rights[0], out=out)
        stream.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for at in range(times):
                multiply(left, rights[at % weights], out=out)
        self.kept = left, rights, out

    def sample(self, runs: int) -> list[float]:
        spent, self.warm = 0.0, KEPT_MS if self.warm else WARM_MS
        while spent < self.warm:
            spent += self._once()
        return [self._once() / self.times for _ in range(runs)]

    def _once(self) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def cuda() -> ModuleType | None:
    """PyTorch, if it sees a GPU; else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None

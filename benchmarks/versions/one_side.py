"""One side of speed.py: builds, loads and times subjects with its own interpreter's Tilewright.

Input: commands as JSON lines.  Output: an answer per line.  It uses only what old versions have.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import NvidiaDevice

if TYPE_CHECKING:
    from lab.subjects import Subject, empty_steps, matmul, product
else:
    try:
        from lab.subjects import Subject, empty_steps, matmul, product
    except ImportError:
        # A checkout from before lab/ existed, as `speed.py --other` may name: these functions were
        # in the package then.  This checkout has no such module.
        from tilewright.benchkernel import Subject, empty_steps, matmul, product

Arrays = dict[str, NDArray[np.generic]]

#: Kernels by name: arguments of `matmul`, or an equation with its shapes.
MATMULS = {"K0": (384, 768, 768), "K1": (640, 768, 3072)}
#: Sizes that fill a GPU, and one row by the weights of Llama 2 7B.
LARGE = {"1024^3": (1024, 1024, 1024), "4096^3": (4096, 4096, 4096), "one row": (1, 4096, 11008)}
PRODUCTS = {
    "K2": ("bmk,bkn->bmn", (12, 384, 384), (12, 384, 64)),
    "K3": ("bmk,bkn->bmn", (120, 64, 64), (120, 64, 64)),
}
EMPTY = {"empty steps": 2}
STEPS = 100
#: What a host reads; all others read Wasm.
TARGETS = {"dawn": "wgsl", "cuda": "cuda"}


class Loaded(Protocol):
    """A bundle in a host."""

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs by their names."""

    def time(self, runs: int, warmup: int) -> list[float]:
        """Milliseconds of each run."""

    def dispose(self) -> None:
        """Gives back what it holds."""


class Paged:
    """In a browser, or in Dawn."""

    def __init__(self, host: BrowserHost, path: Path, threads: int) -> None:
        self.model = host.load(path, threads=threads)

    def run(self, inputs: Arrays) -> Arrays:
        return dict(self.model.run(inputs).outputs)

    def time(self, runs: int, warmup: int) -> list[float]:
        return list(self.model.time(runs, warmup).milliseconds)

    def dispose(self) -> None:
        self.model.dispose()


class OnCuda:
    """On the GPU of this machine, by its own clock."""

    def __init__(self, device: NvidiaDevice, path: Path) -> None:
        self.host = CudaHost(path, device)

    def run(self, inputs: Arrays) -> Arrays:
        return dict(self.host.run(inputs).outputs)

    def time(self, runs: int, warmup: int) -> list[float]:
        return self.host.clock(warmup + runs)[warmup:]

    def dispose(self) -> None:
        """The process ends after a subject."""


class Place(Protocol):
    """Where bundles are loaded."""

    def __call__(self, path: Path) -> Loaded:
        """The bundle in this folder, ready to run."""


@contextlib.contextmanager
def place(host: str, threads: int) -> Iterator[Place]:
    if host == "cuda":
        device = NvidiaDevice()
        yield lambda path: OnCuda(device, path)
        return
    with BrowserHost(host) as browser:
        yield lambda path: Paged(browser, path, threads)


def subject(name: str, model: str, dims: dict[str, int], target: str) -> Subject:
    options = Options(buckets={dim: (size,) for dim, size in dims.items()}, targets=(target,))
    if model:
        return Subject(name, compile_model(Path(model), options).contents, 0)
    if name in EMPTY:
        return empty_steps(STEPS, EMPTY[name])
    if sizes := (MATMULS | LARGE).get(name):
        return matmul(*sizes, options)
    equation, a, b = PRODUCTS[name]
    return product(equation, a, b, weight=False, options=options)


def outputs(model: Loaded, inputs: str) -> dict[str, list[float]]:
    """The run's outputs, each as its values at up to 4,096 places."""
    if not inputs:
        return {}
    with np.load(inputs) as given:
        found = model.run(dict(given))
    return {
        name: value.ravel()[:: max(1, value.size // 4096)].astype(float).tolist()
        for name, value in found.items()
    }


def main() -> None:
    host, threads = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder, place(host, threads) as loaded:
        model: Loaded | None = None
        for number, line in enumerate(sys.stdin):
            asked = json.loads(line)
            answer: object
            if "runs" in asked:
                assert model is not None
                answer = model.time(asked["runs"], asked["warmup"])
            else:
                if model is not None:
                    model.dispose()
                target = TARGETS.get(host, "wasm")
                made = subject(asked["name"], asked["model"], asked["dims"], target)
                path = Path(folder) / str(number)
                write(made.contents, path)
                model = loaded(path)
                answer = outputs(model, asked["inputs"])
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""One side of earlier.py: builds, loads and times subjects with its own interpreter's Tilewright.

Input: commands as JSON lines.  Output: an answer per line.  It uses only what old versions have.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.benchkernel import Subject, empty_steps, matmul, product
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.hosts.browser import BrowserHost, BrowserModel

#: Kernels by name: arguments of `matmul`, or an equation with its shapes.
MATMULS = {"K0": (384, 768, 768), "K1": (640, 768, 3072)}
PRODUCTS = {
    "K2": ("bmk,bkn->bmn", (12, 384, 384), (12, 384, 64)),
    "K3": ("bmk,bkn->bmn", (120, 64, 64), (120, 64, 64)),
}
EMPTY = {"empty steps": 2}
STEPS = 100


def subject(name: str, model: str, dims: dict[str, int]) -> Subject:
    if model:
        buckets = {dim: (size,) for dim, size in dims.items()}
        return Subject(name, compile_model(Path(model), Options(buckets=buckets)).contents, 0)
    if name in EMPTY:
        return empty_steps(STEPS, EMPTY[name])
    if name in MATMULS:
        return matmul(*MATMULS[name])
    equation, a, b = PRODUCTS[name]
    return product(equation, a, b, weight=False)


def outputs(model: BrowserModel, inputs: str) -> dict[str, Any]:
    """The run's outputs, each as its values at up to 4,096 places."""
    if not inputs:
        return {}
    with np.load(inputs) as given:
        found = model.run(dict(given)).outputs
    return {
        name: value.ravel()[:: max(1, value.size // 4096)].astype(float).tolist()
        for name, value in found.items()
    }


def main() -> None:
    browser, threads = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder, BrowserHost(browser) as host:
        model: BrowserModel | None = None
        for number, line in enumerate(sys.stdin):
            asked = json.loads(line)
            answer: Any
            if "runs" in asked:
                assert model is not None
                answer = model.time(asked["runs"], asked["warmup"]).milliseconds
            else:
                if model is not None:
                    model.dispose()
                made = subject(asked["name"], asked["model"], asked["dims"])
                path = Path(folder) / str(number)
                write(made.contents, path)
                model = host.load(path, threads=threads)
                answer = outputs(model, asked["inputs"])
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

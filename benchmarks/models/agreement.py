"""Agreement with onnxruntime on the same files, in every host.

Input: ONNX files.  Output: results/models.agreement.json: relative error of the output's norm and
cosine per model, host and output.

    python -m benchmarks models.agreement MODEL.onnx… [--buckets n=32,128] [--host wasmtime …]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import typer

from benchmarks.accuracy import relative_error
from benchmarks.common import Run
from benchmarks.options import Hosts
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Manifest, write
from tilewright.cli.options import Buckets
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load, parse_buckets
from tilewright.hosts.browser import Arrays, BrowserHost
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import FEATURES, WasmtimeHost

#: The largest relative error of an output's norm.
BOUND = 1e-4
HOSTS = ("reference", "wasmtime", "wasmtime-simd", "chromium", "firefox")
RunBundle = Callable[[Path, Arrays], Arrays]


@contextmanager
def opened(name: str) -> Iterator[RunBundle]:
    if name == "reference":
        yield lambda path, inputs: ReferenceHost(path).run(inputs).outputs
    elif name.startswith("wasmtime"):
        features = frozenset[str]() if name.endswith("simd") else FEATURES
        yield lambda path, inputs: WasmtimeHost(path, features).run(inputs).outputs
    else:
        with BrowserHost(name) as host:

            def run(path: Path, inputs: Arrays) -> Arrays:
                model = host.load(path)
                try:
                    return model.run(inputs).outputs
                finally:
                    model.dispose()

            yield run


def example(manifest: Manifest, vocabulary: int) -> Arrays:
    """Inputs that look like real ones: token ids, masks of ones, normally distributed images."""
    source = np.random.default_rng(7)
    made: Arrays = {}
    for info in manifest.inputs:
        buckets = manifest.dims
        # one short of the bucket, so that padding and cropping take part
        shape = tuple(max(buckets[d]) - 1 if isinstance(d, str) else d for d in info.shape)
        if info.dtype == "f32":
            made[info.name] = source.standard_normal(shape).astype(np.float32)
        elif "mask" in info.name:
            made[info.name] = np.ones(shape, np.int64)
        elif "type" in info.name:
            made[info.name] = np.zeros(shape, np.int64)
        else:
            made[info.name] = source.integers(3, vocabulary, shape)
    return made


@dataclass(frozen=True)
class Agreement:
    """Of one output of a model on a host.  elements: that were compared"""

    model: str
    host: str
    output: str
    relative_error: float
    cosine: float
    elements: int


def compare(model: str, host: str, name: str, got: Array, want: Array) -> Agreement:
    got, want = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    cosine = float(got @ want / (np.linalg.norm(got) * np.linalg.norm(want)))
    error = relative_error(got, want)
    return Agreement(model, host, name, error, round(cosine, 9), int(want.size))


def main(
    run: Run,
    models: Annotated[list[Path], typer.Argument(metavar="MODEL…", help="ONNX files.")],
    buckets: Buckets = None,
    host: Hosts = None,
    vocabulary: Annotated[int, typer.Option(help="Token ids are below this.")] = 1000,
) -> None:
    asked = parse_buckets(buckets or [])
    found = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        prepared = []
        for model in models:
            named = {k: v for k, v in asked.items() if k in load(model).dim_names}
            path = Path(folder) / model.stem
            manifest = write(compile_model(model, Options(buckets=named)).contents, path)
            inputs = example(manifest, vocabulary)
            session = onnxruntime.InferenceSession(str(model))
            names = [o.name for o in session.get_outputs()]
            expected = dict(zip(names, session.run(None, inputs), strict=True))
            prepared.append((model.stem, path, inputs, expected))
        for name in host or HOSTS:
            with opened(name) as outputs_of:
                for stem, path, inputs, expected in prepared:
                    outputs = outputs_of(path, inputs)
                    for output, want in expected.items():
                        found.append(compare(stem, name, output, outputs[output], want))
                        run.show(vars(found[-1]))
    run.save([vars(each) for each in found])
    wrong = [each for each in found if not each.relative_error <= BOUND]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(found)} outputs are further off than {BOUND}")

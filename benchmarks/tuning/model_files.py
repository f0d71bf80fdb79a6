"""The models of sessions on whole models: an ONNX file, or a published net with random weights.

Input: the options of a command.  Output: names and bundles in a folder that ends with the block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import onnx
import typer

from benchmarks.options import among
from benchmarks.peers.models import Text, bart
from benchmarks.tuning.sessions import model_bundle
from tilewright.base.errors import UsageError
from tilewright.cli.options import Shapes as Shapes
from tilewright.frontend import parse_shapes

#: Published sizes but for the vocabulary, whose table is looked up only.
NETS = {"bart-base-128": lambda: bart(Text(length=128, layers=6, words=1000))}

Model = Annotated[Path | None, typer.Option(help="An ONNX file.")]
Net = Annotated[str | None, among(NETS, "A model with random weights instead")]


@contextmanager
def bundles(
    model: Path | None, net: str | None, shape: Sequence[str] | None, starts: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Path]]]:
    """The model's name, and its bundle with the defaults of each of these starts."""
    if model is None and net is None:
        raise UsageError("This needs a model", hint="Give --model or --net")
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as place:
        folder = Path(place)
        source = model or made(net or "", folder)
        shapes = parse_shapes(shape or [])
        yield source.stem, {s: model_bundle(source, shapes, folder / s, s) for s in starts}


def made(name: str, folder: Path) -> Path:
    """A model of `NETS` as a file, whose name says that its weights are random."""
    path = folder / f"{name}-random.onnx"
    onnx.save(NETS[name](), path)
    return path

"""Damaged model files end as typed errors, or are models after all.

Input: a seed.  ONNX's own node cases, the files of tests/models and the crafted ones of
hostile_models.py, with structural mutations.  Output: import, report and, for some, the compiler
raise nothing but typed errors.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import onnx
import pytest
from google.protobuf.message import DecodeError
from helpers.bent_models import bent
from helpers.mutations import damaged
from helpers.node_cases import cases
from helpers.seeds import seeds
from helpers.vendor_nodes import models
from hostile_models import HOSTILE

from tilewright.base.errors import CompilerBug, TilewrightError
from tilewright.compiler import Options, compile_model
from tilewright.frontend import check, import_model, load
from tilewright.frontend.operator_table import supported

MODELS = Path(__file__).parents[1] / "models"

#: One test has as many cases, so that their number costs little.
BATCH = 25
#: This share of the cases is well-formed, and wrong in what it says.
BENT = 0.7
#: One case in as many is compiled as well.
COMPILED = 10


@cache
def sources() -> tuple[bytes, ...]:
    """Files to damage: most are operators' own cases, so each operator gets its share."""
    nodes = [case.model.SerializeToString() for case in cases()]
    vendor = [model.SerializeToString() for model in models()]
    return (*(data for data in nodes if len(data) < 4000), *vendor)


@cache
def files() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(MODELS.glob("*.onnx")))


def source(rng: Random, folder: Path) -> bytes:
    kind = rng.random()
    if kind < 0.03:
        return rng.choice(files())
    if kind < 0.25:
        return HOSTILE[rng.choice(sorted(HOSTILE))](folder).read_bytes()
    return rng.choice(sources())


def case(number: int, folder: Path) -> Path:
    """The damaged file."""
    rng = Random(number)
    data = source(rng, folder)
    proto = onnx.ModelProto()
    # what is no protobuf, or has nothing that can be changed so, stays as it is
    with suppress(DecodeError, ValueError, LookupError, TypeError):
        proto.ParseFromString(data)
        whole = rng.random() < BENT
        data = bent(proto, rng).SerializeToString() if whole else damaged(proto, rng)
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def attempt(number: int, path: Path) -> None:
    """Everything that a user could do with the file.  Raises what is not typed."""
    try:
        model = load(path)
        shapes = check(model).inputs
        import_model(model, shapes=shapes)
        if number % COMPILED == 0:
            compile_model(model, Options(shapes=shapes, variants=("x86",)))
    except CompilerBug:
        raise
    except TilewrightError:
        pass


@pytest.mark.parametrize("batch", seeds(500 // BATCH, nightly=9500 // BATCH))
def test_damaged_models_raise_typed_errors(batch: int, tmp_path: Path) -> None:
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        path = case(number, tmp_path)
        try:
            attempt(number, path)
        except BaseException as error:
            error.add_note(f"case {number}")
            raise


def test_the_files_to_damage_have_every_operator() -> None:
    nodes = [n for data in sources() for n in onnx.ModelProto.FromString(data).graph.node]
    found = {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in nodes}
    assert set(supported()) - found == set()

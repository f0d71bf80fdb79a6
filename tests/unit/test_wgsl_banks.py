"""Weights in several buffers (buffer_assignment.py): no overlaps, errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_call import Called
from helpers.llama import TINY, llama
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.abi import WORD_BYTES
from tilewright.base.errors import MemoryLimit
from tilewright.bundle import open_bundle
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.targets import target
from tilewright.targets.gpu.memory.buffer_assignment import assign_banks

SIZES = replace(TINY, layers=3, hidden=192, room=32)
BANK = 2**16


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks") / "llama.onnx"
    onnx.save(llama(SIZES), path)
    return path


def compiled(path: Path, bank: int) -> Compiled:
    options = Options(
        targets=("wgsl",), buckets={"n": (1, 4)}, states=SIZES.states, settings={"bank": bank}
    )
    return compile_model(path, options)


def test_one_buffer_has_no_banks(path: Path) -> None:
    section = compiled(path, 2**30).made["wgsl"].section
    assert "banks" not in section.facts
    texts = json.loads(section.builds[0].code.data)
    assert not any("weights" in text for text in texts)


def test_tensors_do_not_overlap(path: Path) -> None:
    made = compiled(path, BANK)
    section = made.made["wgsl"].section
    facts = section.facts
    sizes = [facts["memory"]["bytes"], *facts["banks"]["bytes"]]
    assert len(sizes) > 2
    placed = zip(facts["banks"]["of"], facts["tensors"], made.program.tensors, strict=True)
    ends: dict[int, int] = {}
    for bank, at, tensor in sorted(placed, key=lambda t: t[:2]):
        assert at >= ends.get(bank, 0)
        assert at % (64 * WORD_BYTES) == 0
        ends[bank] = at + tensor.bytes
        assert ends[bank] <= sizes[bank]
    assert max(sizes[1:]) <= BANK


def test_a_step_names_the_bank_of_its_weights(path: Path) -> None:
    made = compiled(path, BANK)
    section, plan = made.made["wgsl"].section, made.program.plans[0]
    of = section.facts["banks"]["of"]
    texts = json.loads(section.builds[0].code.data)
    calls = json.loads(section.builds[0].plans[0].data)
    named = set()
    for step, call in zip(plan.steps, calls, strict=True):
        values = [plan.values[a.value] for a in step.reads]
        banks = {of[v.tensor] for v in values if v.kind == "weight"} - {0}
        assert banks == ({call["bank"]} if "bank" in call else set())
        assert ("weights: array" in texts[call["slot"]]) == bool(banks)
        named |= banks
    assert named == set(range(1, 1 + len(section.facts["banks"]["bytes"])))


def test_an_exchange_keeps_the_banks(path: Path) -> None:
    made = compiled(path, BANK)
    whole = made.made["wgsl"]
    (variant,) = whole.codes
    again = target("wgsl").exchange(
        made.program, whole.section, variant, whole.codes[variant], frozenset(), {}
    )
    assert (again.facts, again.builds) == (whole.section.facts, whole.section.builds)


def test_the_command_line_names_the_bytes_of_a_buffer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of weights that no buffer of so many bytes has room for."""
    rng, info = np.random.default_rng(0), helper.make_tensor_value_info
    weights = [rng.standard_normal((400, 400), "f4") for _ in range(3)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [f"t{n}", f"w{n}"], [f"t{n + 1}"]) for n in range(3)], "g",
        [info("t0", TensorProto.FLOAT, (2, 400))], [info("t3", TensorProto.FLOAT, (2, 400))],
        [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    build = ("build", tmp_path / "model.onnx", "--target", "wgsl")
    for more, banks in (((), False), (("--bank", 2**20), True)):
        to = tmp_path / f"{banks}"
        assert Called(capsys, *build, *more, "-o", to).code == 0
        facts = open_bundle(to).manifest.section("wgsl").facts
        assert ("banks" in facts) == banks
    assert max(facts["banks"]["bytes"]) <= 2**20
    assert Called(capsys, *build, "--bank", 5, "-o", tmp_path / "none").code == 2


def test_what_one_step_reads_must_fit(path: Path) -> None:
    with pytest.raises(MemoryLimit, match="more than one GPU buffer"):
        compiled(path, 2**12)


def test_a_group_counts_once_however_many_steps_read_it() -> None:
    """Two tensors that two steps read take half a bank, so one more fits beside them."""
    quarter, most = 2**18, 2**20
    sizes, shapes = [quarter, quarter, 2 * quarter, quarter], [(1,)] * 4
    assigned, _ = assign_banks([[0, 1], [0, 1], [2]], [[0, 3]], sizes, shapes, 0, most, 4)
    assert assigned.buffers == (1, 1, 2, 1)

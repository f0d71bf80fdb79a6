"""Weights of 8 bits that lie as bytes on WebGPU: what sections, kernels and trials say of them."""

from __future__ import annotations

import pytest
from helpers.blocks import CASES, made
from helpers.graphs import steps_of
from node import run

from lab.subjects import compile_graph
from tilewright.compiler import Compiled, Options
from tilewright.graph.passes import optimise
from tilewright.kernel.form import QuantisedContraction, form_as
from tilewright.kernel.serialise import kernel_to_data
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import PACKING
from tilewright.targets.wgsl.packed_bytes import in_bytes
from tilewright.targets.wgsl.target import Wgsl

WGSL = Wgsl()
BYTES = ["long bytes", "long signed bytes", "many rows of bytes", "bytes in odd blocks"]


def kernel_of(name: str) -> Kernel:
    *_, step = steps_of(optimise(made(name)[0], PACKING))
    return step.kernel


def compiled(name: str) -> Compiled:
    return compile_graph(made(name)[0], Options(targets=("wgsl",)))


@pytest.mark.parametrize("name", [*BYTES, "one row"])
def test_a_section_names_them_and_a_word_has_four(name: str) -> None:
    """Of weights with 4 bits the zero points are bytes."""
    program, section = compiled(name).program, compiled(name).made["wgsl"].section
    narrow = [n for n, t in enumerate(program.tensors) if t.dtype.size == 1]
    assert section.facts["packed"] == narrow
    ends = sorted([*section.facts["tensors"], section.facts["memory"]["bytes"]])
    for n in narrow:
        begin = section.facts["tensors"][n]
        assert ends[ends.index(begin) + 1] - begin < program.tensors[n].bytes + 256


def test_no_section_names_what_is_none() -> None:
    assert "packed" not in compiled("signed, no zeros").made["wgsl"].section.facts


@pytest.mark.parametrize("name", BYTES)
def test_who_has_four_columns_reads_words(name: str) -> None:
    """Vectors of bytes are words until they become f32; where columns fill no vectors, bytes."""
    kernel = kernel_of(name)
    col = form_as(kernel, QuantisedContraction).operands.col
    assert in_bytes(kernel.buffers[col.buffer])
    text = WGSL.emit(kernel, WGSL.lower(kernel, WGSL.default(kernel, "")))
    kind, whole = col.dtype.name, CASES[name].columns % 4 == 0
    assert (f"{kind}_real(y0_0)" in text, f"{kind}_at(" in text) == (whole, not whole)
    assert "pack4x" not in text


def test_four_steps_share_a_scale() -> None:
    """Where blocks have whole fours; else each step has one of its own."""
    found = [form_as(kernel_of(name), QuantisedContraction).weights.together for name in BYTES]
    assert found == [4, 4, 4, 1]


SCRIPT = """
const { described } = await import('TUNE/trial/specs.js');
const { factsOf } = await import('TUNE/../engine/gpu_vet.js');
const packed = described(<data>).buffers.map((buffer) => buffer.packed);
console.log(JSON.stringify([packed, factsOf(<text>).lanes]));
"""


def test_a_trial_knows_them_and_what_must_begin_at_vectors() -> None:
    kernel = kernel_of("many rows of bytes")
    text = WGSL.emit(kernel, WGSL.lower(kernel, WGSL.default(kernel, "")))
    packed, lanes = run(SCRIPT, data=kernel_to_data(kernel), text=text)
    assert packed == [in_bytes(b) for b in kernel.buffers]
    assert lanes == 4
    # memory of words, of which vectors are put together
    kernel = kernel_of("many rows")
    text = WGSL.emit(kernel, WGSL.lower(kernel, WGSL.default(kernel, "")))
    assert "memory: array<u32>" in text
    assert run(SCRIPT, data=kernel_to_data(kernel), text=text)[1] == 4

"""Values and states in several buffers (buffer_assignment.py): no overlaps, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import onnx
import pytest
from helpers.skips import SIDE, skipping
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tilewright.base.abi import WORD_BYTES, align
from tilewright.base.errors import MemoryLimit
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.plan.arena import Lifetime, place_in_arenas
from tilewright.targets import target
from tilewright.targets.gpu.memory.memory_layout import Location, new_layout
from tilewright.targets.wgsl.target import MEMORY

#: Bytes of a buffer: two of the net's results do not fit.
BANK = 5 * 2**14


def compiled(path: Path, more: Mapping[str, Any]) -> Compiled:
    return compile_model(path, Options(targets=("wgsl",), settings=more))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skipping(tmp_path_factory.mktemp("annexes"))


def test_one_buffer_is_the_rule(path: Path) -> None:
    section = compiled(path, {}).made["wgsl"].section
    assert "annexes" not in section.facts
    assert not any("annex" in text for text in json.loads(section.builds[0].code.data))


def test_values_that_live_together_do_not_overlap(path: Path) -> None:
    made = compiled(path, {"bank": BANK})
    section, (plan,) = made.made["wgsl"].section, made.program.plans
    facts, calls = section.facts, json.loads(section.builds[0].plans[0].data)
    sizes = [facts["memory"]["bytes"], *facts["annexes"]["bytes"]]
    assert section.memory == sum(sizes)
    assert len(sizes) > 3
    assert max(sizes) <= BANK
    texts = json.loads(section.builds[0].code.data)
    places: dict[int, tuple[int, int]] = {}
    for call in calls:
        bound, text = call.get("annexes", []), texts[call["slot"]]
        assert [f"annex{n}: array" in text for n in range(7)] == [n < len(bound) for n in range(7)]
    for number, (value, (word, _, annex)) in enumerate(zip(plan.values, placed(made), strict=True)):
        if value.kind not in ("weight", "state"):
            places[number] = annex, word
            assert (word + MEMORY.size_of(value)) * WORD_BYTES <= sizes[annex]
    for a, b in combinations(places, 2):
        one, other = plan.values[a], plan.values[b]
        together = one.first <= other.last and other.first <= one.last
        if together and places[a][0] == places[b][0]:
            low, high = sorted((a, b), key=places.__getitem__)
            assert places[low][1] + MEMORY.size_of(plan.values[low]) <= places[high][1]
    moved = {n for call in calls for n in call.get("annexes", ())}
    assert moved == set(range(1, len(sizes)))


def placed(made: Compiled) -> list[Location]:
    layout = new_layout(made.program, MEMORY, [()], {"bank": BANK})
    return layout.places(layout.arenas[0])


@pytest.mark.parametrize("bank", [BANK, 2 * BANK])
def test_an_exchange_keeps_the_annexes(path: Path, bank: int) -> None:
    made = compiled(path, {"bank": bank})
    whole = made.made["wgsl"]
    assert "annexes" in whole.section.facts
    (variant,) = whole.codes
    again = target("wgsl").exchange(
        made.program, whole.section, variant, whole.codes[variant], frozenset(), {}
    )
    assert (again.facts, again.builds) == (whole.section.facts, whole.section.builds)


def test_what_is_larger_than_a_buffer_is_refused(path: Path) -> None:
    with pytest.raises(MemoryLimit, match=r"shape \[1, 66, 66, 4\] needs more") as caught:
        compiled(path, {"bank": 2**14})
    assert caught.value.facts == {"bytes": 4 * 66**2 * WORD_BYTES, "limit": 2**14}


def saved(folder: Path, nodes: list[onnx.NodeProto], inputs: int, side: int) -> Path:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info(f"x{n}", TensorProto.FLOAT, (side, side)) for n in range(inputs)],
        [info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def test_inputs_stay_in_the_first_buffer(tmp_path: Path) -> None:
    """Also where nothing else would lie in another one."""
    path = saved(tmp_path, [helper.make_node("Add", ["x0", "x1"], ["y"])], 2, SIDE)
    with pytest.raises(MemoryLimit, match="what inputs, outputs and small tensors share"):
        compiled(path, {"bank": 2**15})


def test_a_kernel_of_too_many_buffers_is_named(tmp_path: Path) -> None:
    """Eight results that are read together, of which no two fit one buffer."""
    nodes = [
        helper.make_node("MatMul", [f"t{n - 1}" if n else "x0", "x0"], [f"t{n}"]) for n in range(8)
    ]
    nodes = [*nodes, helper.make_node("Sum", [f"t{n}" for n in range(8)], ["s"], name="all")]
    nodes.append(helper.make_node("ReduceMean", ["s"], ["y"], axes=[0], keepdims=0))
    with pytest.raises(MemoryLimit, match="further GPU buffers, and 6 is the most") as caught:
        compiled(saved(tmp_path, nodes, 1, SIDE), {"bank": 6 * SIDE**2})
    assert caught.value.facts["limit"] == 6


LIVES = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 400),
        st.integers(-1, 12),
        st.integers(0, 6),
    ),
    max_size=30,
)


@settings(max_examples=200, derandomize=True)
@given(LIVES, st.integers(0, 700), st.sets(st.integers(0, 29), max_size=3))
def test_buffers_in_several_arenas(lifetimes: list[Lifetime], first: int, kept: set[int]) -> None:
    offsets, of, sizes = place_in_arenas(lifetimes, first, 512, kept)
    for n, (lifetime, at, arena) in enumerate(zip(lifetimes, offsets, of, strict=True)):
        assert at + align(lifetime.size) <= sizes[arena]
        assert arena == 0 or n not in kept
    for a, b in combinations(range(len(lifetimes)), 2):
        if (
            of[a] == of[b]
            and lifetimes[a].overlaps(lifetimes[b])
            and lifetimes[a].size
            and lifetimes[b].size
        ):
            low, high = sorted((a, b), key=offsets.__getitem__)
            assert offsets[low] + lifetimes[low].size <= offsets[high]
    assert all(size <= 512 for size in sizes[1:])
    if not kept:
        assert sizes[0] <= first

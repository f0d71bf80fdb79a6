"""The neutral plan: dependencies by what is read and written, states that outlive a run."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from helpers.seeds import seeds

from tilewright.compiler import Options, compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.plan import check, plan_from_data, plan_to_data
from tilewright.plan.dependencies import Range, dependencies

MODELS = Path(__file__).parents[1] / "models"
HOSTS = (ReferenceHost, WasmtimeHost)


# ---- dependencies --------------------------------------------------------------------------------


def conflicts(earlier: tuple[Range, list[Range]], later: tuple[Range, list[Range]]) -> bool:
    def meet(a: Range, b: Range) -> bool:
        return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]

    write, reads = later
    return any(meet(earlier[0], r) for r in (write, *reads)) or any(
        meet(r, write) for r in earlier[1]
    )


@pytest.mark.parametrize("seed", seeds(200))
def test_whoever_conflicts_is_waited_for(seed: int) -> None:
    """By any chain of steps; and nobody is waited for without a conflict."""
    rng = Random(seed)

    def some() -> Range:
        begin = rng.randrange(12)
        return rng.randrange(3), begin, begin + rng.randint(1, 6)

    steps = [(some(), [some() for _ in range(rng.randrange(4))]) for _ in range(rng.randint(1, 14))]
    found = dependencies(steps)
    reached: list[set[int]] = []
    for number, after in enumerate(found):
        assert all(conflicts(steps[other], steps[number]) for other in after)
        reached.append(set(after).union(*(reached[other] for other in after)))
        wanted = {o for o in range(number) if conflicts(steps[o], steps[number])}
        assert wanted <= reached[number]


def test_a_long_chain_is_no_work() -> None:
    """Each step reads what the one before wrote, in parts of one value."""
    steps = [((0, n, n + 1), [(0, n - 1, n)] if n else []) for n in range(30_000)]
    found = dependencies(steps)
    assert found[0] == ()
    assert all(after == (n,) for n, after in enumerate(found[1:]))


@pytest.mark.parametrize("name", ["bert-tiny-sdpa-dynamo", "resnet-tiny-dynamo", "gru-tiny-dynamo"])
def test_plans_of_models_hold_their_invariants(name: str) -> None:
    buckets = {"n": (8, 16)} if "bert" in name else {}
    compiled = compile_model(MODELS / f"{name}.onnx", Options(buckets=buckets, variants=("x86",)))
    check(compiled.program)
    for plan in compiled.program.plans:
        assert plan_from_data(plan_to_data(plan)) == plan
        assert any(step.after for step in plan.steps)


@pytest.mark.parametrize("name", ["resnet-tiny-dynamo", "lstm-tiny-dynamo"])
def test_values_of_one_time_have_places_of_their_own(name: str) -> None:
    compiled = compile_model(MODELS / f"{name}.onnx", Options(variants=("x86",)))
    (plan,) = compiled.program.plans
    memory = json.loads(compiled.made["wasm"].section.programs["map"].data)
    placed = [
        (at, at + value.bytes, value)
        for at, value in zip(memory["values"][0], plan.values, strict=True)
    ]
    for (a, b, one), (c, d, two) in combinations(placed, 2):
        if one.first <= two.last and two.first <= one.last:
            assert b <= c or d <= a

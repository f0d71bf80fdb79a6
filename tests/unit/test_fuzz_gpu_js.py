"""The engine's WebGPU backend takes damaged bundles as typed errors, or is right.

Input: seeds.  Bundles for WebGPU with structural damage (helpers/damaged_bundles.py), on a device
in Node that computes nothing but knows WebGPU's rules (fuzz/fake_gpu.mjs).  Output: nothing hangs,
throws what is not typed, asks the device for what it must refuse, or allocates what a file only
announces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from fuzz_node import outcomes
from helpers import halves
from helpers.damaged_bundles import Damaged, Whole
from helpers.seeds import seeds
from test_bundle_fuzz import whole
from test_fuzz_js import BUNDLES, as_case, problems, rich, tensor

from tilewright.compiler import Options, compile_model
from tilewright.frontend import load


def in_halves() -> Whole:
    options = Options(targets=("wgsl",))
    return Whole.of(compile_model(load(halves.model()), options).contents)


MAKERS = {
    "extents": partial(whole, "wgsl", "core"),
    "rich": partial(rich, "wgsl", "core"),
    "halves": in_halves,
}
HALVES = [{name: tensor(*value.shape) for name, value in halves.inputs().items()}] * 2


def gpu_case(name: str, bundle: Damaged | Whole) -> tuple[dict[str, Any], bool]:
    inputs = HALVES if name == "halves" else BUNDLES[name][1]
    return as_case(bundle, inputs, isolated=True) | {"device": "webgpu"}, False


def damaged_case(number: int) -> tuple[dict[str, Any], bool]:
    name = tuple(MAKERS)[number % len(MAKERS)]
    return gpu_case(name, MAKERS[name]().damaged(Random(f"gpu {number}")))


@pytest.mark.parametrize("name", MAKERS)
def test_whole_bundles_are_right_in_node(name: str) -> None:
    (found,) = outcomes("bundle", [gpu_case(name, MAKERS[name]())])
    assert problems(found) == []
    assert {word for word in found.values() if isinstance(word, str)} == {"right"}


@pytest.mark.seldom(4)
@pytest.mark.parametrize("batch", seeds(2, nightly=98))
def test_damaged_bundles_are_a_typed_error_or_right(batch: int) -> None:
    numbers = range(batch * 100, (batch + 1) * 100)
    cases = map(damaged_case, numbers)
    found = dict(zip(numbers, outcomes("bundle", list(cases)), strict=True))
    assert {number: bad for number, one in found.items() if (bad := problems(one))} == {}


def section(manifest: Any) -> Any:
    return manifest["targets"]["wgsl"]


def needs(manifest: Any) -> Any:
    """Of the first slot, a feature that the device has not."""
    return section(manifest)["builds"][0]["facts"].setdefault("needs", {"0": ["shader-f16"]})


def better(call: Any) -> Any:
    """A second kernel for the step."""
    call["better"] = [{k: v for k, v in call.items() if k != "words"}]
    return call["better"][0]


def banks(manifest: Any, sizes: Any, of: Any) -> None:
    section(manifest)["facts"]["banks"] = {"bytes": sizes, "of": of}


def annexes(manifest: Any, sizes: Any, of: Any) -> None:
    section(manifest)["facts"]["annexes"] = {"bytes": sizes, "of": of}


#: Files that the manifest refers to at these places.
CODE = ("targets", "wgsl", "builds", 0, "code")
PLAN = ("targets", "wgsl", "builds", 0, "plans", 0)
TENSORS = ("weights", "tensors")

#: What mutations found: the file that was edited (the manifest's own if none is named), and how.
FOUND: dict[str, tuple[tuple[Any, ...], Callable[[Any], object]]] = {
    "no build": ((), lambda m: section(m)["builds"].clear()),
    "fewer plans": ((), lambda m: section(m)["builds"][0]["plans"].clear()),
    "memory of half a word": ((), lambda m: section(m)["facts"]["memory"].update(bytes=4097.5)),
    "no memory": ((), lambda m: section(m)["facts"]["memory"].update(bytes=0)),
    "an input at an odd address": ((), lambda m: section(m)["plans"][0]["inputs"].insert(0, 2)),
    "an output beyond memory": ((), lambda m: section(m)["plans"][0]["outputs"].insert(0, 2**40)),
    "a tensor beyond memory": ((), lambda m: section(m)["facts"]["tensors"].insert(0, 2**40)),
    "fewer tensors": ((), lambda m: section(m)["facts"]["tensors"].clear()),
    "banks that are a number": ((), lambda m: banks(m, 5, [])),
    "a bank of half a word": ((), lambda m: banks(m, [64.5], [])),
    "a tensor in no bank": ((), lambda m: banks(m, [64], [2])),
    "a tensor in too small a bank": ((), lambda m: banks(m, [0], [1] * 99)),
    "a step of no bank": (PLAN, lambda calls: calls[0].update(bank=1)),
    "annexes that are a number": ((), lambda m: annexes(m, 5, [])),
    "an annex of half a word": ((), lambda m: annexes(m, [66], [])),
    "a state in no annex": ((), lambda m: annexes(m, [64], [2])),
    "a step of no annex": (PLAN, lambda calls: calls[0].update(annexes=[1])),
    "a step of no list of annexes": (PLAN, lambda calls: calls[0].update(annexes=1)),
    "more weights than memory": ((), lambda m: m["weights"].update(bytes=2**40, memory=0)),
    "fewer kernels than texts": ((), lambda m: section(m).update(slots=1)),
    "countless kernels": ((), lambda m: section(m).update(slots=2**40)),
    "a text that is a number": (CODE, lambda texts: texts.append(1)),
    "a table of tensors without types": (TENSORS, lambda t: t[0].pop("dtype")),
    "a tensor without end": (TENSORS, lambda t: t[0].update(shape=[2**20, 2**20])),
    "no step": (PLAN, lambda calls: calls.clear()),
    "one step more": (PLAN, lambda calls: calls.append(calls[0])),
    "a step that is null": (PLAN, lambda calls: calls.insert(0, None)),
    "needs that are a number": ((), lambda m: section(m)["builds"][0]["facts"].update(needs=1)),
    "a need that is a number": ((), lambda m: needs(m)["0"].append(1)),
    "a better way without a slot": (PLAN, lambda calls: better(calls[0]).pop("slot")),
    "a better way that is not there": (PLAN, lambda calls: better(calls[0]).update(slot=99)),
    "a better way of no threads": (PLAN, lambda calls: better(calls[0]).update(group=0)),
    "better ways that are a number": (PLAN, lambda calls: calls[0].update(better=1)),
    "a slot that is not there": (PLAN, lambda calls: calls[0].update(slot=99)),
    "a group of none": (PLAN, lambda calls: calls[0].update(group=0)),
    "invocations without end": (PLAN, lambda calls: calls[0].update(tiles=2**52)),
    "fewer invocations than none": (PLAN, lambda calls: calls[0].update(tiles=-1)),
    "an extent that is not there": (PLAN, lambda c: c[0].update(tiles=[9, 1, 0, 1, 8, 1])),
    "an extent that no plan has": ((), lambda m: m["extents"].__setitem__(0, "unknown")),
    "a number by none": (PLAN, lambda calls: calls[0].update(tiles=[0, 1, 0, 0, 8, 1])),
    "a buffer beyond memory": (PLAN, lambda calls: calls[0]["words"].insert(0, 2**40)),
    "a block without end": (PLAN, lambda calls: calls[0].update(scalars=[1] * 20_000)),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str) -> None:
    where, edit = FOUND[name]
    (found,) = outcomes("bundle", [gpu_case("extents", MAKERS["extents"]().edited(where, edit))])
    assert problems(found) == []
    assert found["load"] == "bundle-corrupt"


#: The same of weights that are halves.
HALVED: dict[str, tuple[tuple[Any, ...], Callable[[Any], object]]] = {
    "a tensor that is not there": ((), lambda m: section(m)["facts"]["halves"].append(99)),
    "a number that is none": ((), lambda m: section(m)["facts"].update(halves=[0.5])),
    "no list": ((), lambda m: section(m)["facts"].update(halves=1)),
    "stored as it is": (TENSORS, lambda t: t[0].update(stored="", bytes=2 * t[0]["bytes"])),
    "stored as another type": (TENSORS, lambda t: t[0].update(stored="bf16")),
    "beyond the files": (TENSORS, lambda t: t[-1].update(offset=2**30)),
    "before the files": (TENSORS, lambda t: t[0].update(offset=-64)),
    "longer than its shape": (TENSORS, lambda t: t[0].update(bytes=t[0]["bytes"] + 64)),
    "no memory to widen in": ((), lambda m: m["weights"].update(memory=0)),
    "more memory than weights": ((), lambda m: m["weights"].update(memory=2**40)),
}


@pytest.mark.parametrize("name", HALVED)
def test_what_is_wrong_with_halves(name: str) -> None:
    where, edit = HALVED[name]
    (found,) = outcomes("bundle", [gpu_case("halves", in_halves().edited(where, edit))])
    assert problems(found) == []
    assert found["load"] == "bundle-corrupt"


def test_a_step_without_a_kernel_for_the_device_is_a_typed_error() -> None:
    (found,) = outcomes("bundle", [gpu_case("extents", MAKERS["extents"]().edited((), needs))])
    assert problems(found) == []
    assert found["load"] == "unsupported-host"

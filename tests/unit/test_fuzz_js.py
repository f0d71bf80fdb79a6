"""Readers of the browser's engine and tuner take damaged data as typed errors, or are right.

Input: seeds.  Bundles, messages of a tuning server, static builds and records of a device, with
structural damage (helpers/mutations.py).  Output: nothing hangs, throws what is not typed, or makes
arrays as long as a file says.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from functools import cache, reduce
from random import Random
from typing import Any

import numpy as np
import pytest
from frontend_factory import model
from fuzz_node import Found, outcomes
from helpers.damaged_bundles import Damaged, Whole, damaged_bytes, json_text
from helpers.hostile import module
from helpers.mutations import damaged_json
from helpers.seeds import seeds
from onnx import TensorProto, helper
from test_bundle_fuzz import whole

from tilewright.bundle.format import digest
from tilewright.compiler import Options, compile_model

#: Seconds of processor time that a case may take.
MOST_SECONDS = 60.0

Inputs = dict[str, dict[str, Any]]


@cache
def rich(target: str = "wasm", variant: str = "x86-simd") -> Whole:
    """Buckets, a state, an asset, a gather, and weights that are narrower in files."""
    source = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "h"], ["hn"]),
        helper.make_node("Add", ["a", "hn"], ["y"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["rows"], axis=1),
        helper.make_node("Cast", ["i"], ["ids"], to=TensorProto.INT64),
        helper.make_node("Gather", ["rows", "ids"], ["g"]),
    ]
    weights = {
        "w": source.standard_normal((8, 8)).astype(np.float32),
        "q": source.integers(-128, 128, (300, 40)).astype(np.int8),
        "scale": np.full(40, 0.5, np.float32),
    }
    proto = model(nodes, {"x": ["n", 8], "i": [3], "h": [1, 1]}, ["y", "g", "hn"], weights)
    options = Options(
        buckets={"n": (4, 8)},
        states={"h": "hn"},
        assets={"words.txt": b"some words"},
        targets=(target,),
        variants=(variant,),
    )
    return Whole.of(compile_model(proto, options).contents)


def tensor(*shape: int) -> dict[str, Any]:
    return {"shape": shape, "data": [float(n % 7) for n in range(int(np.prod(shape)))]}


#: By name: a bundle, and inputs of two runs.
BUNDLES = {
    "extents": (whole, [{"x": tensor(5, 8)}, {"x": tensor(8, 8)}]),
    "rich": (rich, [{"x": tensor(3, 8), "i": tensor(3)}, {"x": tensor(8, 8), "i": tensor(3)}]),
}


def bundle_case(number: int) -> tuple[dict[str, Any], bool]:
    """Its code may run for ever, which no reader can know: pages end such a worker."""
    rng = Random(f"bundle {number}")
    make, inputs = BUNDLES[("extents", "rich")[number % 2]]
    damaged = make().damaged(rng)
    return as_case(damaged, inputs, isolated=rng.random() < 0.5), True


def as_case(bundle: Damaged | Whole, inputs: list[Inputs], *, isolated: bool) -> dict[str, Any]:
    files = {path: b64encode(data).decode() for path, data in bundle.files.items()}
    return {"files": files, "inputs": inputs, "isolated": isolated}


HELLO: dict[str, Any] = {
    "protocol": 1, "bundle": "m", "digest": "0" * 64, "device": "small", "browser": "firefox",
    "variant": "x86", "objective": "latency", "specs": [0, 1], "shares": [0.7, 0.3],
    "tried": {"0": [1], "1": []}, "share": True, "check": False,
}  # fmt: skip
CLASS = {
    "kind": "wasm", "vendor": "", "architecture": "x86", "features": [], "variant": "x86",
}  # fmt: skip
CLASSES: list[dict[str, Any]] = [
    {"id": "small", "least_l1": 32768, "fallback": "any"} | CLASS,
    {"id": "any", "least_l1": 0, "fallback": ""} | CLASS,
]
#: A public key, as `tilewright keygen` prints one; no candidate here has its signature.
KEY = "BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"
NEEDS = {"traffic": 10, "scratch": 0}


def frame(header: Any, payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "little") + text + payload


def offer(spec: int) -> dict[str, Any]:
    gold = {"a": 0, "b": 9} if spec else None
    facts = {"kind": "product", "shape": "8x8", "checksum": "c" * 16, "count": 9, "fixed": ""}
    return {"spec": spec, "default": 0, "needs": dict(NEEDS), "gold": gold} | facts


def candidate(spec: int, number: int) -> dict[str, Any]:
    code = module()
    facts = {"mark": "lite", "schedule": "s", "checksum": "c" * 16, "digest": digest(code)}
    sizes = {"tiles": 4, "grains": {"0": 1}, "scratch": 0, "needs": dict(NEEDS), "bytes": len(code)}
    return {"type": "kernel", "spec": spec, "candidate": number} | facts | sizes


def messages() -> list[list[tuple[dict[str, Any], bytes]]]:
    """Of a server: the welcome, then what comes for each frame of the page."""
    welcome = {"type": "welcome", "compiler": "c", "kernels": [offer(0), offer(1)]}
    kernels = [
        (candidate(0, 2), module()),
        (candidate(1, 9), module()),
        (candidate(0, 3), module()),
    ]
    done = [({"type": "done", "spec": n, "sent": 2, "milliseconds": 1.5}, b"") for n in (0, 1)]
    ack = {"type": "ack", "nonce": "n", "accepted": True, "reason": ""}
    error = {"type": "error", "code": "busy", "message": "m", "hint": "h", "facts": {"limit": 1}}
    return [[(welcome, b"")], kernels[:2], [kernels[2], *done], [(ack, b"")], [(error, b"")]]


def line_case(number: int) -> tuple[dict[str, Any], bool]:
    """Answers of a server with damaged messages or frames, or a static build's folder."""
    rng = Random(f"line {number}")
    files = {"api/classes": json.dumps(CLASSES).encode()}
    case: dict[str, Any] = {"hello": HELLO, "frames": [], "key": KEY if number % 8 == 7 else None}
    case["device"] = {"kind": "wasm", "vendor": "", "architecture": "x86", "features": []}
    case["device"] |= {"l1": 49152}
    if number % 2:
        files |= static_build(rng)
    elif rng.random() < 0.1:
        files["api/classes"] = json_text(damaged_json(deepcopy(CLASSES), rng), rng).encode()
    else:
        case["frames"] = damaged_frames(rng)
    case["frames"] = [[b64encode(f).decode() for f in some] for some in case["frames"]]
    case["frames"] = case["frames"] or ([] if number % 2 else [[]])
    return case | {"files": {path: b64encode(data).decode() for path, data in files.items()}}, False


def damaged_frames(rng: Random) -> list[list[bytes]]:
    sent = messages()
    if rng.random() < 0.7:
        some = rng.choice(sent)
        at = rng.randrange(len(some))
        some[at] = (damaged_json(some[at][0], rng), some[at][1])
        if rng.random() < 0.3:
            rng.choice(sent).append(rng.choice(rng.choice(sent)))
    frames = [[frame(header, payload) for header, payload in some] for some in sent]
    if rng.random() < 0.3:
        some_frames = rng.choice(frames)
        at = rng.randrange(len(some_frames))
        some_frames[at] = damaged_bytes(some_frames[at], rng)
    return frames


def static_build(rng: Random) -> dict[str, bytes]:
    """A folder with its index, a list and modules; one of the first two is damaged."""
    code = module()
    entries = [{**candidate(0, n)} if n else None for n in range(4)]
    kernels = [offer(spec) | {"order": [1, 2, 3], "candidates": entries} for spec in (0, 1)]
    listed: Any = {"class": "any", "kernels": kernels}
    bad = rng.random() < 0.7
    text = json_text(damaged_json(listed, rng) if bad else listed, rng).encode()
    name = digest(text)
    file = f"blobs/{name}.json"
    ref = {"file": file, "digest": name, "bytes": len(text)}
    index: Any = {"format": 1, "tool": "t", "bundle": HELLO["digest"], "objective": "latency"}
    index |= {"classes": deepcopy(CLASSES), "spaces": {"any": ref}}
    pointer = json_text(index if bad else damaged_json(index, rng), rng).encode()
    return {
        "tuning/index.json": pointer,
        f"tuning/{file}": text,
        f"tuning/blobs/{digest(code)}.wasm": code,
    }


def record_case(number: int) -> tuple[dict[str, Any], bool]:
    """What a device stored, with bytes changed or the end lost."""
    rng = Random(f"record {number}")
    make, inputs = BUNDLES["extents"]
    case = as_case(make(), inputs, isolated=rng.random() < 0.5)
    edits = [(rng.random(), rng.randrange(256)) for _ in range(rng.choice((0, 1, 1, 3)))]
    return case | {"edits": edits, "cut": rng.choice((1, 1, 1, rng.random()))}, False


def problems(found: Found) -> list[str]:
    """What must not be among the outcomes of a case."""
    said = [f"{use}: {word}" for use, word in found.items() if isinstance(word, str)]
    bad = [line for line in said if line.split(": ")[1].split()[0] in ("untyped", "hung", "died")]
    slow = ["slow"] if found.get("seconds", 0) > MOST_SECONDS else []
    return bad + slow + [f"lost: {word}" for word in found.get("lost", ())]


#: By kind of reader: its cases, and one process's share of them.
KINDS = {"bundle": (bundle_case, 120), "line": (line_case, 60), "record": (record_case, 20)}


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("isolated", [True, False])
def test_whole_bundles_are_right_in_node(name: str, isolated: bool) -> None:
    make, inputs = BUNDLES[name]
    (found,) = outcomes("bundle", [(as_case(make(), inputs, isolated=isolated), False)])
    assert problems(found) == []
    assert {word for word in found.values() if isinstance(word, str)} == {"right"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", seeds(1, nightly=49))
def test_damaged_data_is_a_typed_error_or_right(kind: str, batch: int) -> None:
    make, count = KINDS[kind]
    numbers = range(batch * count, (batch + 1) * count)
    found = dict(zip(numbers, outcomes(kind, [make(number) for number in numbers]), strict=True))
    assert {number: bad for number, one in found.items() if (bad := problems(one))} == {}


def section(manifest: Any) -> Any:
    return manifest["targets"]["wasm"]


def nested(levels: int) -> Any:
    return reduce(lambda inner, _: [inner], range(levels), [])


#: What mutations found: the use that failed, the file that was edited (the manifest's own if none
#: is named), and the edit.
FOUND: dict[str, tuple[str, tuple[str, ...], Callable[[Any], object]]] = {
    "a huge length": ("load", (), lambda m: m["weights"]["shards"][0].update(bytes=1e300)),
    "a build without features": ("load", (), lambda m: section(m)["builds"][0].pop("features")),
    "no driver": ("load", (), lambda m: section(m)["programs"].update(driver=None)),
    "no facts": ("load", (), lambda m: section(m).pop("facts")),
    "no memory": ("load", (), lambda m: section(m)["facts"]["memory"].update(bytes=0)),
    "no scratch": ("load", (), lambda m: section(m)["facts"]["memory"].pop("scratch")),
    "too many slots": ("load", (), lambda m: section(m).update(slots=2**40)),
    "weights beyond memory": (
        "load", (), lambda m: section(m)["facts"]["memory"].update(weights=-(2**40))
    ),
    "a plan beyond memory": ("load", (), lambda m: section(m)["plans"][0].update(address=2**40)),
    "a place at an odd address": (
        "load", (), lambda m: section(m)["plans"][0].update(inputs=[4097, 4098])
    ),
    "more steps than its image has": ("load", (), lambda m: m["plans"][0]["steps"].append({})),
    "no plans": ("load", (), lambda m: m["plans"].clear()),
    "a dimension below zero": ("load", (), lambda m: m["plans"][0]["dims"].update(n=-1)),
    "no table of tensors": ("load", (), lambda m: m["weights"].pop("tensors")),
    "a tensor beyond memory": (
        "load", ("weights", "tensors"), lambda t: t[0].update(shape=[2**40, 2**40])
    ),
    "a scale that comes later": (
        "load",
        ("weights", "tensors"),
        lambda t: [one.update(scale=len(t) - 1) for one in t if one["scale"] is not None],
    ),
    "a tensor of no axes with a scale": (
        "load",
        ("weights", "tensors"),
        lambda t: [one.update(shape=[]) for one in t if one["scale"] is not None],
    ),
    "a kernel without a specification": ("specs", ("kernels",), lambda k: k[0].pop("spec")),
    "buffers that are a number": ("specs", ("kernels",), lambda k: k[0]["spec"].update(buffers=1)),
    "a buffer that is a number": (
        "specs", ("kernels",), lambda k: k[0]["spec"]["buffers"].insert(0, 0)
    ),
    "an expression of many levels": (
        "about", ("kernels",), lambda k: k[0]["spec"].update(value=nested(600))
    ),
    "a missing kernel": ("specs", ("kernels",), lambda k: k.pop()),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str) -> None:
    use, where, edit = FOUND[name]
    _, inputs = BUNDLES["rich"]
    case = as_case(rich().edited(where, edit), inputs, isolated=True)
    (found,) = outcomes("bundle", [(case, False)])
    assert problems(found) == []
    assert found[use] == "bundle-corrupt"


def line_with(**parts: Any) -> str:
    """The outcome of a session with other parts of a case."""
    case, _ = line_case(0)
    files = {"api/classes": b64encode(json.dumps(parts.pop("classes", CLASSES)).encode()).decode()}
    frames = [
        [{"text": f} if isinstance(f, str) else b64encode(f).decode() for f in some]
        for some in parts.get("frames", [[]])
    ]
    (found,) = outcomes("line", [(case | {"files": files, "frames": frames, "key": None}, False)])
    assert problems(found) == []
    session: str = found["session"]
    return session


WELCOME = {"type": "welcome", "compiler": "c", "kernels": [offer(0)]}


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"classes": {}}, "input"),
        ({"classes": [None]}, "input"),
        ({"frames": [[frame(None)]]}, "network"),
        ({"frames": [[frame(WELCOME | {"kernels": None})]]}, "input"),
        ({"frames": [[frame(WELCOME | {"kernels": [None]})]]}, "input"),
        ({"frames": [["4000000000"]]}, "input"),
        ({"frames": [[frame(WELCOME)], [frame(candidate(0, 2) | {"grains": None})]]}, "input"),
    ],
    ids=[
        "no table of classes",
        "no class",
        "no header",
        "no offers",
        "no offer",
        "a text",
        "no grains",
    ],
)
def test_what_was_found_in_lines(parts: dict[str, Any], code: str) -> None:
    assert line_with(**parts) == code

"""Candidates that need a feature of the GPU come only where the device has it: from servers, from a
folder, from the compiler in the page.

Input: a product of bytes for WebGPU, whose candidates need packed dot products or matrix units.
Output: what devices with and without these are offered.
"""

from __future__ import annotations

import base64
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modes_factory import given
from node import run
from tuning_client import Client, hello

from lab.subjects import compile_graph
from tilewright.base.dtypes import I8, I16, U8
from tilewright.bundle import Bundle, open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.compiler import Options
from tilewright.graph import ops
from tilewright.graph.node import Graph, cast, contract, graph_input, node
from tilewright.server import BackgroundServer, Tuning, create_app
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.workgroup_limits import (
    MATRIX_FEATURE,
    PACKED_DOT_FEATURE,
    SUBGROUPS_FEATURE,
)
from tilewright.tuning.candidate_folder import write_candidates
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.page_compiler import PageCompiler
from tilewright.tuning.relink import relink

DEVICE = CLASSES["webgpu-nvidia-hopper"]
UNITS = (
    MATRIX_FEATURE,
    SUBGROUPS_FEATURE,
    PACKED_DOT_FEATURE,
    "subgroups-32",
    "subgroup-matrix-i8-i32-16x16x32",
)


def product(folder: Path) -> Bundle:
    x = graph_input("x", (48, 64), U8)
    w = node(ops.Weight("w", (64, 48), I8, lambda: np.ones((64, 48), "i1")))
    y = contract("mk,kn->mn", cast(x, I16), cast(w, I16))
    graph = Graph("bytes", (("x", x),), (("y", y),))
    write(compile_graph(graph, Options(targets=("wgsl",))).contents, folder)
    return open_bundle(folder)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return product(tmp_path / "made")


def space(bundle: Bundle) -> tuple[int, Space]:
    """The kernel with the most candidates, and these."""
    spaces = [space_of(kernel, DEVICE) for kernel in kernels_of(bundle)]
    spec = max(range(len(spaces)), key=lambda n: len(spaces[n].schedules))
    assert {s.tag for s in spaces[spec].schedules} == {"dot", "matrix"}
    return spec, spaces[spec]


def able(space: Space, features: tuple[str, ...]) -> list[int]:
    return [n for n in space.trial if space.schedules[n].features <= set(features)]


HAS: dict[str, tuple[str, ...]] = {
    "none": (),
    "packed dots": (PACKED_DOT_FEATURE,),
    "matrix units": UNITS,
}


def test_the_sets_differ(bundle: Bundle) -> None:
    _, found = space(bundle)
    counts = [len(able(found, features)) for features in HAS.values()]
    assert 0 == counts[0] < counts[1] < counts[2] < len(found.trial)


@pytest.mark.parametrize("has", HAS)
def test_a_server_sends_what_the_device_can_run(bundle: Bundle, has: str) -> None:
    spec, found = space(bundle)
    site = create_app({"m": bundle.folder}, tuning=Tuning(makers=makers(0)))
    with BackgroundServer(site) as server, Client(server.url) as client:
        welcome = client.start(
            hello(
                "m", bundle.pointer.manifest.digest, [spec], device=DEVICE.id, variant="core",
                features=HAS[has],
            )
        )  # fmt: skip
        assert welcome.kernels[0].default == 0
        sent = client.all_of(1)
    assert sorted(m.candidate for m in sent) == sorted(able(found, HAS[has]))
    for message in sent:
        assert message.features == tuple(sorted(found.schedules[message.candidate].features))


@pytest.mark.parametrize("has", HAS)
def test_so_does_the_compiler_in_the_page(bundle: Bundle, has: str) -> None:
    spec, found = space(bundle)
    page = PageCompiler(given(bundle, device=DEVICE.id, features=list(HAS[has])))
    (offer,) = page.offers([spec])
    assert offer["order"] == able(found, HAS[has])


FOLDER = """
const files = <files>;
globalThis.fetch = async (url) => {
  const found = files[new URL(url).pathname.slice(1)];
  return new Response(found === undefined ? 'none' : Buffer.from(found, 'base64'), { status: found === undefined ? 404 : 200 });
};
const { folderSource } = await import('TUNE/sources/folder.js');
const found = [];
for (const features of <sets>) {
  const source = folderSource('https://a.example/tuning/');
  const { kernels: [{ default: own, schedule, needs }] } = await source.open({ ...<hello>, features });
  const numbers = [];
  for (let sent; (sent = await source.next());) numbers.push(sent.header.candidate);
  found.push({ own, schedule, needs, numbers });
}
console.log(JSON.stringify(found));
"""  # noqa: E501


def in_folder(bundle: Bundle, spec: int) -> Any:
    """What pages whose devices have `HAS` take of the bundle's folder of candidates."""
    write_candidates(bundle, [DEVICE])
    files = {
        path.relative_to(bundle.folder).as_posix(): base64.b64encode(path.read_bytes()).decode()
        for path in (bundle.folder / "tuning").rglob("*")
        if path.is_file()
    }
    asked = {
        "digest": bundle.pointer.manifest.digest, "device": DEVICE.id, "variant": "core",
        "objective": "latency", "shares": [], "specs": [spec], "tried": {},
    }  # fmt: skip
    return run(FOLDER, files=files, sets=list(HAS.values()), hello=asked)


def test_and_a_page_with_a_folder(bundle: Bundle) -> None:
    spec, found = space(bundle)
    for features, taken in zip(HAS.values(), in_folder(bundle, spec), strict=True):
        assert (taken["own"], taken["numbers"]) == (0, able(found, features))
        assert taken["schedule"] == str(found.schedules[0])


def test_a_relinked_bundle_starts_with_the_winner_where_it_runs(
    bundle: Bundle, tmp_path: Path
) -> None:
    """Elsewhere with what the compiler chose."""
    spec, found = space(bundle)
    best = next(n for n in able(found, UNITS) if isinstance(found.schedules[n], MatrixGemmSchedule))
    write(relink(bundle, DEVICE, {spec: found.schedules[best]}), tmp_path / "again")
    again = open_bundle(tmp_path / "again")
    for features, own in zip(HAS.values(), (0, 0, best), strict=True):
        page = PageCompiler(given(again, device=DEVICE.id, features=list(features)))
        (offer,) = page.offers([spec])
        assert offer["default"] == own
        assert offer["schedule"] == str(found.schedules[own])
    taken = in_folder(again, spec)
    assert [of["own"] for of in taken] == [0, 0, best]
    assert [of["schedule"] for of in taken] == [str(found.schedules[n]) for n in (0, 0, best)]
    assert [of["needs"] for of in taken] == [asdict(found.needs[n]) for n in (0, 0, best)]
    build = again.manifest.section("wgsl").builds[0]
    assert sorted(map(sorted, build.facts["needs"].values())) == [
        sorted(UNITS),
        [PACKED_DOT_FEATURE],
    ]

"""Caches that grow by blocks of rows: which do, what memory is told and taken, and what is left if
there is no more memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from helpers.gguf_files import MODELS, Forward, Tiny, write_tiny
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import BundleCorrupt, KernelTrap, MemoryLimit
from tilewright.bundle import Bundle, GrowthEntry, open_bundle, write
from tilewright.bundle.linear_memory import facts_of, memory_at_start, memory_parts
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.frontend.gguf import GgufModel
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import PAGE, SharedBytes, WasmtimeHost
from tilewright.kernel.layout import RowBlocks
from tilewright.language.cache_session import CacheSession
from tilewright.plan import Growth, check
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.relink import relink

#: Caches that need more than a page of memory in each block of 16 rows.
TINY = Tiny(layers=2, width=512, heads=8, kv_heads=8, head=64, hidden=64, room=40)
GROWTH = Growth("seqlens_k", "n", 16)
IDS = tuple(int(i) for i in np.random.default_rng(0).integers(0, TINY.words, TINY.room))


def compiled(folder: Path, tiny: Tiny = TINY, growth: Growth | None = GROWTH) -> Compiled:
    model = GgufModel(write_tiny(folder / "model.gguf", tiny))
    options = Options(
        states=model.states, buckets={"n": (1, 8)}, variants=("x86",), compact_states=True,
        growth=growth,
    )  # fmt: skip
    return compile_model(model, options)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("grown")
    made = compiled(folder)
    check(made.program)
    write(made.contents, folder / "bundle")
    return open_bundle(folder / "bundle")


@pytest.fixture(scope="module")
def forward(bundle: Bundle) -> Forward:
    return Forward(bundle.folder.parent / "model.gguf")


Read = Callable[[int], np.ndarray]


def reader(host: WasmtimeHost | ReferenceHost) -> Read:
    """The logits after so many ids."""
    session = CacheSession(lambda inputs: host.run(inputs).outputs, host.bundle.manifest)

    def read(count: int) -> np.ndarray:
        found = session.read(IDS[:count])
        assert found is not None
        return found

    return read


def test_rows_of_all_states_lie_in_blocks(bundle: Bundle) -> None:
    """Each block has the same rows of all states, one state after the other."""
    program = compiled(bundle.folder.parent).program
    places, block = program.block_places
    each = TINY.kv_heads * 16 * TINY.head
    assert places == (0, 2 * each, 4 * each, 6 * each)
    assert (block, program.blocks) == (8 * each, 3)
    layouts = {
        b.layout for k in program.kernels for b in k.buffers if isinstance(b.layout, RowBlocks)
    }
    assert layouts == {RowBlocks(16, each, block // 2)}


@pytest.mark.parametrize("threads", [1, 3])
def test_memory_is_as_told_before_and_grows_with_the_text(
    bundle: Bundle, forward: Forward, threads: int
) -> None:
    section = bundle.manifest.section("wasm")
    facts, host = facts_of(section), WasmtimeHost(bundle.folder, threads=threads)
    further = (threads - 1) * facts.memory.scratch_bytes
    start, most = memory_at_start(bundle.manifest, section) + further, section.memory + further
    parts = memory_parts(bundle.manifest)
    assert parts["states"] == 3 * facts.block
    assert sum(parts.values()) == section.memory

    def pages() -> int:
        return host.memory.memory.data_len() // PAGE

    read = reader(host)
    assert pages() == -(-start // PAGE)
    for count, blocks in ((5, 1), (16, 1), (17, 2), (33, 3), (40, 3)):
        want = forward(IDS[:count])
        np.testing.assert_allclose(read(count), want, atol=4e-3 * np.abs(want).max())
        assert pages() == -(-(start + (blocks - 1) * facts.block) // PAGE)
    assert pages() == -(-most // PAGE)


def test_a_padded_prompt_has_room_for_its_padding(bundle: Bundle) -> None:
    """A plan for 8 rows writes 8, also of a shorter prompt."""
    host = WasmtimeHost(bundle.folder)
    given = {"input_ids": np.zeros((1, 3), "i8"), "seqlens_k": np.array([2], "i4")}
    host.run(given)
    assert host.state("past_key_values.0.key")[0, :, 3:8].any()


@pytest.mark.parametrize("open_host", [WasmtimeHost, ReferenceHost])
def test_states_are_read_written_and_reset_whole(
    bundle: Bundle, open_host: type[WasmtimeHost] | type[ReferenceHost]
) -> None:
    host, rng = open_host(bundle.folder), np.random.default_rng(1)
    names = [state.name for state in bundle.manifest.states]
    shape = bundle.manifest.states[0].shape
    given = {n: rng.standard_normal(shape).astype("f2").astype("f4") for n in names}
    for name, value in given.items():
        host.set_state(name, value)
    for name, value in given.items():
        np.testing.assert_array_equal(host.state(name), value)
    host.reset()
    assert not any(host.state(name).any() for name in names)


def test_states_of_zeros_take_no_memory(bundle: Bundle) -> None:
    host = WasmtimeHost(bundle.folder)
    before = host.memory.memory.data_len()
    name, shape = bundle.manifest.states[0].name, bundle.manifest.states[0].shape
    value = np.zeros(shape, "f4")
    value[0, 0, 15] = 1
    host.set_state(name, value)
    assert host.memory.memory.data_len() == before
    value[0, 7, 16] = 2
    host.set_state(name, value)
    assert host.memory.memory.data_len() > before
    np.testing.assert_array_equal(host.state(name), value)


def test_no_memory_for_a_longer_text_ends_the_run_alone(
    bundle: Bundle, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caches keep their rows, and shorter texts go on."""
    init = SharedBytes.__init__

    def small(self: SharedBytes, engine: object, pages: int, most: int) -> None:
        block = facts_of(bundle.manifest.section("wasm")).block // PAGE + 1
        init(self, engine, pages, min(most, pages + block))  # type: ignore[arg-type]

    monkeypatch.setattr(SharedBytes, "__init__", small)
    read = reader(WasmtimeHost(bundle.folder))
    read(32)
    for _ in range(2):
        with pytest.raises(MemoryLimit, match="no memory for a longer text"):
            read(33)
    for count in (32, 20):
        want = forward(IDS[:count])
        np.testing.assert_allclose(read(count), want, atol=4e-3 * np.abs(want).max())


def test_a_relinked_bundle_grows(bundle: Bundle, forward: Forward, tmp_path: Path) -> None:
    device = CLASSES["wasm-x86-relaxed-48k"]
    write(relink(bundle, device, {}), tmp_path)
    assert open_bundle(tmp_path).manifest.growth == bundle.manifest.growth
    want = forward(IDS)
    np.testing.assert_allclose(
        reader(WasmtimeHost(tmp_path))(40), want, atol=4e-3 * np.abs(want).max()
    )


@pytest.mark.parametrize("rows", [32, 40])
def test_a_single_block_is_a_fixed_size(tmp_path: Path, rows: int) -> None:
    made = compiled(tmp_path, replace(TINY, room=32), replace(GROWTH, rows=rows))
    assert made.program.growth is None
    assert not any(isinstance(b.layout, RowBlocks) for k in made.program.kernels for b in k.buffers)


def test_windows_and_groups_of_heads_grow(tmp_path: Path) -> None:
    made = compiled(tmp_path, MODELS["gemma3"], replace(GROWTH, rows=8))
    assert made.program.blocks == 4


def test_a_cache_that_is_read_in_another_way_has_a_fixed_size(tmp_path: Path) -> None:
    """Its readers would read rows for which there is no memory."""

    def info(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Cast", ["seqlens_k"], ["at"], to=TensorProto.INT64),
        helper.make_node("TensorScatter", ["h0", "x", "at"], ["n0"], axis=1),
        helper.make_node("ReduceSum", ["n0", "rows"], ["y"], keepdims=0),
    ]
    last = helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1])
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, 2, 4), last, info("h0", 1, 48, 4)],
        [info("y", 1, 4), info("n0", 1, 48, 4)], [numpy_helper.from_array(np.array([1]), "rows")],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    imports = [helper.make_opsetid("", 24)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    made = compile_model(path, Options(states={"h0": "n0"}, growth=GROWTH))
    assert made.program.growth is None
    assert made.manifest.blocks == 0


@pytest.mark.parametrize(
    "wrong",
    [{"rows": 0}, {"rows": -3}, {"rows": 10**9}, {"input": "nothing"}, {"dim": "m"}],
)
def test_a_hostile_bundle_is_refused(wrong: dict[str, object], tmp_path: Path) -> None:
    """Also one that needs more memory than it says: its kernels trap."""
    made = compiled(tmp_path)
    growth = GrowthEntry(**({"input": "seqlens_k", "dim": "n", "rows": 16} | wrong))
    manifest = msgspec.structs.replace(made.manifest, growth=growth)
    write(replace(made.contents, manifest=manifest), tmp_path / "bundle")
    with pytest.raises((BundleCorrupt, MemoryLimit, KernelTrap)):
        reader(WasmtimeHost(tmp_path / "bundle", seconds=60.0))(20)

"""The second form of CUDA kernels: sent away at any chunk, they compute the same bits.

Kernels run on the CPU; NVIDIA's compiler takes the text, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attention import VARIANTS
from helpers.graphs import bert_layer
from helpers.looks import growing
from test_cuda import CUDA, KERNELS
from test_cuda import nvrtc as nvrtc

from lab.naive import naive
from lab.subjects import compile_graph, product, product_kernel
from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, KERNEL_WORDS, UNLIMITED
from tilewright.base.dtypes import DTYPES, F32, I32
from tilewright.base.errors import BundleVersion, HostError
from tilewright.bundle import Contents, write
from tilewright.compiler import Options, compile_model
from tilewright.elastic.transform.cpu_trial import Turn
from tilewright.graph import ops
from tilewright.graph.node import Graph, elementwise, graph_input, node
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.kernel.expr import Bound, Call, Const, Load, Reg
from tilewright.kernel.index import Var, index
from tilewright.kernel.loops import Barrier, For, If, Set, Store, TileFn
from tilewright.kernel.spec import Buffer, Kernel
from tilewright.targets.cuda import clock_model
from tilewright.targets.cuda import elastic as elastic_form
from tilewright.targets.cuda.chunks import chunks_of
from tilewright.targets.cuda.elastic import FIELDS, Elastic, elastic
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.schedule import Schedule
from tilewright.targets.ticket_protocol import TURNS

OPTIONS = Options(targets=("cuda",))
NAIVE = Options(targets=("cuda",), schedule=naive(CUDA))
MODELS = Path(__file__).parents[1] / "models"
#: More rounds than any of these needs.
ROUNDS = 3000


def _model(name: str, options: Options = OPTIONS) -> Callable[[], Contents]:
    return lambda: compile_model(MODELS / f"{name}.onnx", options).contents


def _product(
    equation: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    times: int = 1,
    options: Options = OPTIONS,
) -> Any:
    return lambda: product(
        equation, a, b, weight=True, times=times, options=options
    ).contents  # fmt: skip


def _ordered() -> Graph:
    x = graph_input("x", (12, 90), I32)
    return Graph("order", (("x", x),), (("y", node(ops.Order(20), x)),))


SUBJECTS: dict[str, Callable[[], Contents]] = {
    "product": _product("mk,kn->mn", (20, 300), (300, 24)),
    "few rows, two layers": _product("mk,kn->mn", (2, 512), (512, 48), 2),
    "few rows, long": _product("mk,kn->mn", (1, 4096), (4096, 40)),
    "product, long chunks": _product("mk,kn->mn", (20, 1300), (1300, 24)),
    "few rows, long chunks": _product("mk,kn->mn", (1, 8704), (8704, 40)),
    "naive": _product("mk,kn->mn", (6, 400), (400, 40), options=NAIVE),
    "attention": lambda: compile_graph(VARIANTS["bert"](), OPTIONS).contents,
    "encoder": lambda: compile_graph(bert_layer(), OPTIONS).contents,
    "convolutions": _model("resnet-tiny-torchscript"),
    "naive convolutions": _model("resnet-tiny-torchscript", NAIVE),
    "recurrent": _model("lstm-tiny-dynamo"),
    "places in order": lambda: compile_graph(_ordered(), OPTIONS).contents,
}


class Case:
    """A bundle on a device, its plain outputs, and its elastic plan."""

    def __init__(self, folder: Path, device: CudaDevice) -> None:
        self.host = CudaHost(folder, device)
        manifest = self.host.bundle.manifest
        rng = np.random.default_rng(3)
        self.inputs: dict[str, Any] = {}
        for info in manifest.inputs:
            shape = tuple(manifest.dims[d][-1] if isinstance(d, str) else d for d in info.shape)
            self.inputs[info.name] = (
                rng.standard_normal(shape).astype(np.float32)
                if info.dtype == "f32"
                else rng.integers(1, 20, shape).astype(DTYPES[info.dtype].numpy)
            )
        self.want = self.host.run(self.inputs).outputs
        self.budget = Budget(self.host.device)
        self.plan = ElasticPlan(self.host, self.budget)

    def run(self, looks: Callable[[int], int]) -> int:
        """Rounds that it took, each with so many looks; outputs are compared bit by bit."""
        self.host.give({name: np.zeros_like(x) for name, x in self.inputs.items()})
        self.host.run({name: np.zeros_like(x) for name, x in self.inputs.items()})
        self.host.give(self.inputs)
        count = iter(range(ROUNDS + 1))
        rounds = self.plan.run(lambda: self.budget.set(UNLIMITED, looks(next(count))), ROUNDS)
        self.check()
        return rounds

    def check(self) -> None:
        """Outputs bit by bit, and that each tile was counted once."""
        for name, got in self.host.take(self.inputs).outputs.items():
            assert got.tobytes() == self.want[name].tobytes(), name
        device, words = self.host.device, self.plan.steps[0].launch.args[-11].value
        counted = device.read(self.budget.address + WORD_BYTES * ALIVE, WORD_BYTES)
        assert not any(counted), "workers that have left count as alive"
        for n, (slot, launch) in enumerate(self.host.steps(-1, self.extents)):
            _, done, left, claimed = np.frombuffer(
                device.read(words + WORD_BYTES * KERNEL_WORDS * n, WORD_BYTES * KERNEL_WORDS),
                np.uint32,
            )
            firsts = self.plan.steps[n].launch.blocks
            assert (done, left, claimed) == (self.host.tasks(slot, launch), 0, firsts), n

    @property
    def extents(self) -> list[int]:
        manifest = self.host.bundle.manifest
        return [manifest.dims[n][-1] for n in manifest.extents]

    @property
    def chunks(self) -> int:
        """The most looks of a run, and a few more: each worker of a kernel finds no tile once."""
        found = 0
        steps = zip(self.host.steps(-1, self.extents), self.plan.steps, strict=True)
        for (slot, launch), step in steps:
            found += launch.blocks * (1 + self.host.forms[slot].chunks) + step.launch.blocks
        return found


#: By day the others run only as they are recorded, and a few looks are tried.
BY_DAY = ("product", "few rows, long", "naive", "attention", "product, long chunks")
LOOKS, MORE_LOOKS = 8, 60
#: Clocks of a chunk: kernels are small here, and tiles that take less are not left.  Of these two a
#: chunk has several passes, with barriers and without.
CLOCKS = {"product, long chunks": 6000, "few rows, long chunks": 1300}


def _marked(name: str) -> Any:
    return pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly)


@pytest.fixture(params=[_marked(name) for name in SUBJECTS])
def subject(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    clocks = CLOCKS.get(request.param, 2 * clock_model.LATENCY)
    monkeypatch.setattr(clock_model, "CLOCKS", clocks)
    write(SUBJECTS[request.param](), tmp_path)
    return tmp_path


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tried", [LOOKS, pytest.param(MORE_LOOKS, marks=pytest.mark.nightly)])
def test_sent_away_at_any_look(subject: Path, tried: int) -> None:
    case = Case(subject, CpuDevice(1))
    assert case.run(lambda _: 0) == 1
    most = case.chunks
    # the first look of all is before the first tile: nothing is done where it is the last
    for look in range(2, most + 2, max(1, most // tried)):
        assert case.run(lambda n, look=look: 0 if n else look) <= 2


@pytest.mark.seldom(4)
def test_sent_away_again_and_again(subject: Path) -> None:
    case = Case(subject, CpuDevice(2))
    # two workers look for a tile; the third look is at a border or at the next tile
    rounds = [case.run(growing(looks)) for looks in (4, 7, 19)]
    assert rounds[0] > 1


@pytest.mark.parametrize("looks", [0, 5, 30])
def test_launches_of_fewer_workers(tmp_path: Path, looks: int) -> None:
    """Those that came take the first tiles of those that did not; undisturbed they leave none."""
    write(SUBJECTS["few rows, two layers"](), tmp_path)
    case = Case(tmp_path, CpuDevice(4))
    plan = case.plan
    assert max(step.launch.blocks for step in plan.steps) > 5
    for workers in ([1], [3], [5], [2, 7, 1], [UNLIMITED, 1]):
        case.host.give(case.inputs)
        plan.begin()
        rounds = 0
        while plan.complete < len(plan.steps):
            case.budget.set(UNLIMITED, growing(looks)(rounds))
            for step in plan.steps[plan.complete :]:
                plan.start(step.number, workers[rounds % len(workers)])
            rounds += 1
            assert rounds < ROUNDS
        assert looks or rounds == 1
        case.check()


@pytest.mark.seldom(4)
@pytest.mark.parametrize("looks", [2, 3])
def test_a_search_for_what_was_left_ends_when_the_worker_must_go(
    tmp_path: Path, looks: int
) -> None:
    """It asks at each slot.  Somebody may have taken what the count still tells of."""
    write(SUBJECTS["few rows, two layers"](), tmp_path)
    case = Case(tmp_path, CpuDevice(4))
    plan, device = case.plan, case.host.device
    assert plan.steps[0].launch.blocks > looks
    words = plan.steps[0].launch.args[-11].value
    plan.begin()
    device.write(words + 2 * WORD_BYTES, np.ones(1, np.uint32))
    case.budget.set(UNLIMITED, looks)
    plan.start(0)
    ticket, done, left, claimed = np.frombuffer(
        device.read(words, WORD_BYTES * KERNEL_WORDS), np.uint32
    )
    assert (ticket, done, left, claimed) == (0, 0, 1, 0)
    device.write(words + 2 * WORD_BYTES, np.zeros(1, np.uint32))
    assert case.run(lambda _: 0) == 1


def _form(kernel: Kernel, schedule: Schedule | None = None) -> Elastic:
    schedule = schedule or CUDA.default(kernel, CUDA.variant.name)
    return elastic(CUDA.code(kernel, schedule).loops)


@pytest.mark.parametrize("name", CLOCKS)
def test_chunks_of_several_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader asks once in several passes: in the first one where all can be told at the barrier
    of each, else in the middle of the chunk, which ends with a barrier of its own."""
    monkeypatch.setattr(clock_model, "CLOCKS", CLOCKS[name])
    write(SUBJECTS[name](), tmp_path)
    text = "".join(form.text for form in CudaHost(tmp_path, CpuDevice(1)).forms)
    (place,) = set(re.findall(r"threadIdx.x == 0 && \w+ % \d+ == (\d+)", text))
    # two words by turns, since some threads read late
    told = re.search(r"heard\[\w+ / \d+ & 1\]", text) is not None
    own_barrier = "__syncthreads_or" in text
    assert (place == "0") == told == (name[0] == "p") != own_barrier


def test_a_register_that_only_one_branch_writes_is_saved() -> None:
    """A later pass, and so another worker, may read what an earlier one wrote."""
    i = Var("i", 1 << 20)
    sum_, kept = Reg("sum", F32), Reg("kept", F32)
    begins = If((Bound(index(i), 1),), (Set("kept", Load(1, index(i), F32)),))
    add = Set("sum", Call("add", (sum_, kept), F32))
    loop = For(i, index(0), index(i.extent), 1, (begins, add, Barrier()))
    fn = TileFn(
        "f", (Buffer(F32, 1), Buffer(F32, i.extent)), (), (), Var("tile", 1), (),
        (Set("sum", Const(0.0, F32)), loop, Store(0, index(0), sum_)), 1, (), Var("thread", 32),
    )  # fmt: skip
    found = chunks_of(fn)
    assert found is not None
    assert {name for name, *_ in found.live} == {"sum", "kept"}


def test_long_tiles_ask_again_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS["product"]()
    assert ", false);" in _form(kernel).text
    monkeypatch.setattr(elastic_form, "chunks_of", lambda fn: None)
    monkeypatch.setattr(clock_model, "CLOCKS", 100)
    assert ", true);" in _form(kernel).text


def test_it_leaves_within_a_tile(nvrtc: Callable[[str, str], bytes]) -> None:
    """Large products do, with what their threads have in registers; tiles that are soon computed do
    not."""
    large = product_kernel("mk,kn->mn", (256, 1024), (1024, 256), weight=True)
    form = _form(large)
    assert form.saved > 0
    assert form.chunks > 3
    assert nvrtc(prelude() + TURNS + form.text, "sm_90")
    assert nvrtc(prelude() + TURNS + form.text, "compute_75")
    short = _form(KERNELS["product"]())
    assert (short.saved, short.chunks) == (0, 1)
    thin = product_kernel("mk,kn->mn", (1, 8192), (8192, 64), weight=True)
    long = product_kernel("mk,kn->mn", (40, 300), (300, 64), weight=True)
    kinds = CUDA.default(thin, CUDA.variant.name), CUDA.schedule({"form": "single"})
    for kernel, schedule in zip((thin, long), kinds, strict=True):
        form = elastic(CUDA.code(kernel, schedule).loops)
        assert form.saved > 0, schedule
        assert form.chunks > 3, schedule


def test_the_arguments_come_in_one_order() -> None:
    """Of our kernels, of foreign ones, and of the structure in their text."""
    ours = [field.split()[-1].lstrip("*") for field in FIELDS]
    assert ours == [name for name, *_ in Turn._fields_]
    text = TURNS.split("struct Turn {")[1].split("};")[0]
    named = re.findall(r"(\w+)(?=[,;])", re.sub(r"//.*", "", text))
    assert named == ours


@pytest.mark.parametrize("looks", [0, 3, 5])
def test_several_short_tiles_are_a_task(tmp_path: Path, looks: int) -> None:
    """Of more groups than workers; the last task has fewer."""
    x = graph_input("x", (3, 1000), F32)
    graph = Graph("short", (("x", x),), (("y", elementwise("exp", x)),))
    write(compile_graph(graph, OPTIONS).contents, tmp_path)
    case = Case(tmp_path, CpuDevice(2))
    ((slot, launch),) = case.host.steps(-1, [])
    each = -(-launch.blocks // case.host.residents(slot, launch))
    assert 1 < each < case.host.forms[slot].per_task
    assert case.host.tasks(slot, launch) == -(-launch.blocks // each) > 2
    assert launch.blocks % each
    rounds = case.run(growing(looks))
    assert (rounds > 1) == bool(looks)
    case.plan = ElasticPlan(case.host, case.budget, most=1)
    assert case.run(lambda _: 0) == 1


class Compiling(CpuDevice):
    """Its compiler is made up: second forms take more registers, unless they must have room."""

    def __init__(self, spilled: int, missing: int) -> None:
        super().__init__(1)
        self.spilled, self.missing, self.most = spilled, missing, 1

    def compile(self, prelude: str, texts: Any, shared: Any = ()) -> list[Any]:
        kinds = ("plain", "free", "tight")
        return [kinds[("budget" in text) + ("#define ROOM" in text)] for text in texts]

    def residents(self, kernel: Any, group: int, shared: int = 0) -> int:
        return self.most - (self.missing if kernel == "free" else 0)

    def local_bytes(self, kernel: Any) -> int:
        return self.spilled if kernel == "tight" else 8


@pytest.mark.parametrize(
    ("spilled", "missing", "found"), [(8, 1, "tight"), (9, 1, "free"), (8, 0, "free")]
)
def test_as_many_workers_as_blocks_unless_registers_are_spilled(
    tmp_path: Path, spilled: int, missing: int, found: str
) -> None:
    """Where fewer workers would take their tiles in more rounds."""
    write(SUBJECTS["product"](), tmp_path)
    device = Compiling(spilled, missing)
    host = CudaHost(tmp_path, device)
    ((slot, launch),) = host.steps(-1, [])
    device.most = launch.blocks
    assert launch.kernel == "plain"
    assert host.elastic_kernels == {slot: found}


def test_a_plan_that_cannot_end_is_an_error(tmp_path: Path) -> None:
    write(SUBJECTS["product"](), tmp_path)
    case = Case(tmp_path, CpuDevice(1))
    with pytest.raises(HostError, match="does not end"):
        case.plan.run(lambda: case.budget.set(0), 3)
    assert case.run(lambda _: 0) == 1


def test_a_bundle_with_another_protocol_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.targets.cuda.target.PROTOCOL", 1)
    write(SUBJECTS["product"](), tmp_path)
    with pytest.raises(BundleVersion, match="have protocol 1, this program has 2") as caught:
        Case(tmp_path, CpuDevice(1))
    assert "Build the bundle again" in caught.value.hint


def test_recorded_as_a_whole(subject: Path) -> None:
    case = Case(subject, CpuDevice(2))
    case.host.give(case.inputs)
    run = case.plan.recorded()
    for _ in range(2):
        run()
        case.check()


@pytest.mark.gpu
@pytest.mark.parametrize("name", SUBJECTS)
def test_sent_away_on_a_gpu(name: str, tmp_path: Path) -> None:
    """At their begin, since these kernels take microseconds, or while they run, if it comes so."""
    write(SUBJECTS[name](), tmp_path)
    case = Case(tmp_path, device := NvidiaDevice())
    other, rng = device.driver.stream(urgent=True), np.random.default_rng(7)
    rounds, inferences = 0, 60
    for _ in range(inferences):
        case.host.give(case.inputs)
        case.plan.begin()
        device.wait()
        while case.plan.complete < len(case.plan.steps):
            case.budget.set(int(rng.choice([0, 1, 2, UNLIMITED])))
            for step in case.plan.steps[case.plan.complete :]:
                case.plan.start(step.number)
            time.sleep(rng.uniform(0, 1e-4))
            stay = int(rng.choice([0, 1, 2, UNLIMITED]))
            device.driver.write_word(case.budget.address, stay, other)
            device.wait()
            rounds += 1
        for key, got in case.host.take(case.inputs).outputs.items():
            assert got.tobytes() == case.want[key].tobytes(), key
    assert rounds > inferences, "nobody was ever sent away"


@pytest.mark.parametrize("name", KERNELS)
def test_nvidias_compiler_takes_the_second_form(
    nvrtc: Callable[[str, str], bytes], name: str
) -> None:
    kernel = KERNELS[name]()
    code = CUDA.code(kernel, CUDA.default(kernel, CUDA.variant.name))
    text = prelude() + TURNS + elastic(code.loops).text
    assert nvrtc(text, "sm_90")
    # as scripts/gpu-sanitize has it compiled
    assert nvrtc("#define WAITED\n" + text, "sm_90")


def test_a_buffer_of_more_than_2_to_the_31_elements_compiles(
    nvrtc: Callable[[str, str], bytes],
) -> None:
    kernel = product_kernel("mk,kn->mn", (4, 300), (300, 1 << 24), weight=False)
    made = elastic(CUDA.code(kernel, naive(CUDA)(kernel, CUDA.variant)).loops)
    assert "int64_t" in made.text
    assert nvrtc(prelude() + TURNS + made.text, "sm_90")

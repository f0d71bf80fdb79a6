"""`tune --host cuda`: trials of CUDA kernels and whole sessions, computed by the CPU with made-up
times, and by a GPU where there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cli_call import Called
from helpers.timed_cuda import FATAL, TimedDevice
from test_cuda import KERNELS
from test_own_tuner import Server

from lab.subjects import matmul, product, steps_of
from tilewright.base.dtypes import F32, I64
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options
from tilewright.graph.node import Graph, gather, graph_input
from tilewright.hosts import cuda
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_tuning import CudaBench, CudaModel
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.tuned_plan import (
    MARK,
    ROOM,
    LaidBuffer,
    Storage,
    TrialMemory,
    TypedStorage,
    WordStorage,
)
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import find, of_capability
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.host_tuner import HostTuner
from tilewright.tuning.messages import Result
from tilewright.tuning.relink import relink
from tilewright.tuning.trial import TrialBuffer, Trials

Capture = pytest.CaptureFixture[str]
CUDA = Options(targets=("cuda",))
SIZE = 8

#: A product of two inputs of 8 x 8 that is right but for one statement.
PRODUCT = """\
KERNEL void __launch_bounds__(32) k(float *b0, const float *b1, const float *b2, int count, unsigned *trap) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sum = 0.f;
  for (int n = 0; n < 8; n++) sum += b1[i / 8 * 8 + n] * b2[n * 8 + i % 8];
  b0[i] = sum;
  STATEMENT
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product of two inputs."""
    made = tmp_path_factory.mktemp("bundle") / "product"
    shapes = (SIZE, SIZE), (SIZE, SIZE)
    subject = product("mk,kn->mn", *shapes, weight=False, options=CUDA)
    write(subject.contents, made)
    return made


def by_hand(statement: str = "", **more: Any) -> str:
    """A candidate as servers hand it out."""
    text = PRODUCT.replace("STATEMENT", statement)
    prelude = target("cuda").module(_code(), "sm-70").data
    module = json.loads(prelude) | {"text": text, "group": 32, "shared": 0, "scalars": 0}
    return json.dumps(module | more)


def _code() -> Any:
    kernel = KERNELS["product"]()
    chosen = target("cuda")
    return chosen.codes(kernel, {"sm-70": chosen.default(kernel, "sm-70")}, alone=True)["sm-70"]


#: By a statement of a text, its milliseconds: what is by hand is twice as fast as the bundle's own.
OWN, BY_HAND = 2.0, 1.0


def usual(text: str) -> float:
    return BY_HAND if "float sum = 0.f" in text else OWN


DEVICES: dict[str, Callable[[], CudaDevice]] = {
    "cpu": lambda: TimedDevice(usual, most_threads=512),
    "gpu": NvidiaDevice,
}
EACH_DEVICE = pytest.mark.parametrize("where", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])


def benched(folder: Path, device: CudaDevice) -> tuple[CudaBench, Trials[Any]]:
    host = CudaHost(folder, device)
    model = CudaModel(host)
    own = model.own(0)
    assert own is not None
    bench = model.bench()
    (kernel,) = kernels_of(host.bundle)
    return bench, Trials(bench, kernel, bench.runner(own.text, own.tiles), own.scalars)


def trials(folder: Path, device: CudaDevice) -> Trials[Any]:
    return benched(folder, device)[1]


@EACH_DEVICE
@pytest.mark.parametrize(
    ("statement", "more", "verdict", "why"),
    [
        ("b0[i] += 1;", {}, "wrong", "element"),
        ("b0[count] = 1;", {}, "wrong", "it wrote to byte"),
        ("b0[-1] = 1;", {}, "wrong", "it wrote to byte"),
        ("((float *)b2)[i] = 3;", {}, "wrong", "it wrote to byte"),
        ("*trap = 1;", {}, "trapped", "an index is out of range"),
        ("no such word", {}, "refused", "does not compile or load"),
        ("", {"scalars": 1}, "refused", "other arguments"),
        ("", {"group": 2048}, "refused", "a kernel for CUDA"),
        ("", {"group": 1024}, "refused", "does not"),
        ("", {"shared": 1 << 20}, "refused", "shared memory"),
        ("", {"text": None}, "refused", "a kernel for CUDA"),
    ],
)
def test_what_is_wrong_is_refused_however_fast(
    folder: Path, where: str, statement: str, more: dict[str, Any], verdict: str, why: str
) -> None:
    found = trials(folder, DEVICES[where]()).attempt(by_hand(statement, **more), SIZE * SIZE)
    assert (found.verdict, why in found.why) == (verdict, True), found


def test_a_barrier_that_some_never_reach_is_refused(folder: Path) -> None:
    """A GPU would hang, or go on with what it should not see."""
    barrier = "if (threadIdx.x) __syncthreads(); else sum = __shfl_sync(0xffffffffu, sum, 1);"
    found = trials(folder, DEVICES["cpu"]()).attempt(by_hand(barrier), SIZE * SIZE)
    assert found.verdict == "refused"
    assert "does not start" in found.why


@pytest.mark.parametrize(("slower", "verdict"), [(0.5, "faster"), (1.0, "same"), (1.5, "slower")])
def test_times_are_the_devices(folder: Path, slower: float, verdict: str) -> None:
    device = TimedDevice(lambda text: OWN * slower if "float sum" in text else OWN)
    found = trials(folder, device).attempt(by_hand(), SIZE * SIZE)
    assert found.verdict == verdict
    assert found.found.ratio == pytest.approx(1 / slower)


def test_recordings_are_bounded_and_runs_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, recorded = TimedDevice(usual), list[int]()
    record = device.record
    monkeypatch.setattr(device, "record", lambda tasks: recorded.append(1) or record(tasks))
    bench, _ = benched(folder, device)
    runner = bench.runner(by_hand(), SIZE * SIZE)
    for times in (1, 3, 31, 32, 33, 64, 100, 2048):
        assert bench.milliseconds(runner, times) == pytest.approx(BY_HAND)
    others = [bench.runner(by_hand(), SIZE * SIZE) for _ in range(9)]
    recorded.clear()
    for other in (*others, others[-1], others[0]):
        bench.milliseconds(other, 1)
    assert len(recorded) == len(others) + 1  # only the first was given up


# ---- sessions ------------------------------------------------------------------------------------


def tuned(
    folder: Path, device: CudaDevice, *texts: str
) -> tuple[HostTuner[Any], CudaHost, list[dict[str, Any]], Server]:
    """A session with these candidates, in their order, and what it told."""
    host = CudaHost(folder, device)
    model, server = CudaModel(host), Server({0: texts})
    following = server.next

    def wide() -> Any:
        found = following()
        if isinstance(found, tuple):
            return msgspec.structs.replace(found[0], tiles=SIZE * SIZE), found[1]
        return found

    server.next = wide  # type: ignore[method-assign]
    events: list[dict[str, Any]] = []
    tuner = HostTuner(
        model, model.bench(), kernels_of(host.bundle), "cuda", events.append, share_reports=True
    )
    line: Any = server
    hello: Any = dict
    tuner.run(line, hello, 600, None)
    return tuner, host, events, server


def inputs_of(host: CudaHost) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    names = [info.name for info in host.bundle.manifest.inputs]
    return {name: rng.standard_normal((SIZE, SIZE)).astype(np.float32) for name in names}


def test_the_fastest_right_candidate_is_adopted(folder: Path) -> None:
    device = TimedDevice(lambda text: 0.1 if "wrong" in text else usual(text))
    texts = by_hand("b0[i] += 1; // wrong"), by_hand(), by_hand("b0[count] = 1; // wrong")
    tuner, host, events, server = tuned(folder, device, *texts)
    verdicts = [event["verdict"] for event in events if event["type"] == "trial"]
    assert verdicts == ["wrong", "faster", "wrong"]
    summary = tuner.summary()
    (kernel,) = summary["kernels"]
    assert kernel["current"]["candidate"] == 2
    assert kernel["gain"] == pytest.approx(OWN / BY_HAND)
    assert kernel["default"]["milliseconds"] == pytest.approx(OWN)
    assert summary["gain"]["ratio"] == pytest.approx(OWN / BY_HAND)
    assert [s.verdict for s in server.sent if isinstance(s, Result)] == verdicts
    # and runs from now on
    given = inputs_of(host)
    wanted = ReferenceHost(folder).run(given).outputs
    ((_, launch),) = host.steps(-1, [])
    assert "float sum" in launch.kernel.text
    for name, found in host.run(given).outputs.items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-5, atol=1e-5)
    host.use({})
    ((_, launch),) = host.steps(-1, [])
    assert "float sum" not in launch.kernel.text


def test_what_is_right_by_itself_may_be_wrong_in_the_model(folder: Path) -> None:
    """Inputs of trials are 2 at most or 1000; those of a model are normal numbers."""
    greedy = by_hand(
        "for (int n = 0; n < 64; n++) if (fabsf(b1[n]) > 2.f && fabsf(b1[n]) < 3.f) b0[i] = 9;"
    )
    tuner, host, events, _ = tuned(folder, TimedDevice(usual), greedy)
    assert [e["type"] for e in events if e["type"] in ("trial", "rollback")] == [
        "rollback", "trial",
    ]  # fmt: skip
    (trial,) = (event for event in events if event["type"] == "trial")
    assert trial["verdict"] == "wrong"
    assert trial["why"].startswith("in the model")
    assert tuner.summary()["gain"]["verdict"] == "none"
    ((_, launch),) = host.steps(-1, [])
    assert "float sum" not in launch.kernel.text


def test_a_candidate_that_breaks_the_device_ends_the_session(folder: Path) -> None:
    """What won before stays."""
    tuner, _, events, server = tuned(
        folder, TimedDevice(usual), by_hand(), by_hand(FATAL), by_hand("// never tried")
    )
    assert tuner.fault is not None
    assert "ILLEGAL_ADDRESS" in tuner.fault.message
    assert [s.verdict for s in server.sent if isinstance(s, Result)] == ["faster", "trapped"]
    assert events[-1]["type"] == "fault"
    (kernel,) = tuner.summary()["kernels"]
    assert kernel["current"]["candidate"] == 1


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A product whose space is small."""
    write(matmul(SIZE, SIZE, SIZE, CUDA).contents, tmp_path / "bundle")
    return tmp_path / "bundle"


class Space:
    """The candidates of the bundle's only kernel, of which all but the default and one are refused
    by the compiler: compiling takes long here."""

    def __init__(self, bundle: Path, *, late: bool) -> None:
        """late: whether the winner is one of the last that are tried"""
        (self.kernel,) = kernels_of(open_bundle(bundle))
        self.space = space_of(self.kernel, find("cuda-sm-90"))
        texts = [self.text(number) for number in range(len(self.space.schedules))]
        # some schedules of a small kernel make the same text
        alone = [number for number in self.space.trial if texts.count(texts[number]) == 1]
        self.winner = alone[-1 if late else 0]
        self.own, self.fast = texts[0], texts[self.winner]

    def text(self, number: int) -> str:
        made = build(self.kernel, self.space.schedules[number], "cuda", "sm-70")
        text: str = json.loads(made.module)["text"]
        return text

    def time(self, text: str) -> float:
        return 1.0 if text == self.fast else 2.0

    def device(self, refused: Callable[[str], str] | None = None) -> TimedDevice:
        def usually(text: str) -> str:
            return "" if text in (self.own, self.fast) else "made up"

        return TimedDevice(self.time, refused or usually)


def use(device: CudaDevice, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuda, "NvidiaDevice", lambda: device)


def command(capsys: Capture, bundle: Path, *options: object) -> Called:
    return Called(capsys, "tune", bundle, "--host", "cuda", "--budget", 600, *options, "--json")


def test_winners_live_on(
    capsys: Capture, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store they come first in the next session; a relinked bundle starts with them."""
    made = Space(bundle, late=True)
    use(made.device(), monkeypatch)
    saved, report = tmp_path / "winners.json", tmp_path / "report.json"
    kept = ("--store", tmp_path / "votes.db", "--report", report)
    first = command(capsys, bundle, *kept, "--save", saved)
    assert first.code == 0, first.err
    assert (first.json["host"], first.json["class"]) == ("cuda", "cuda-sm-90")
    assert first.json["adapter"]["name"] == TimedDevice.name
    (kernel,) = first.json["kernels"]
    assert kernel["current"]["candidate"] == made.winner
    assert kernel["tried"] == len(made.space.schedules) - 1
    assert first.json["gain"]["ratio"] == pytest.approx(2)
    sent = json.loads(report.read_text())["sent"]
    assert {"hello", "result", "report", "bye"} <= {said["type"] for said in sent}
    assert json.loads(saved.read_text())["schedules"] == {
        "0": made.space.schedules[made.winner].to_json()
    }
    # the next session
    use(made.device(), monkeypatch)
    again = tmp_path / "again.json"
    second = command(capsys, bundle, "--store", tmp_path / "votes.db", "--report", again)
    assert second.code == 0, second.err
    trials = [e for e in json.loads(again.read_text())["events"] if e["type"] == "trial"]
    assert (trials[0]["candidate"], trials[0]["verdict"]) == (made.winner, "faster")
    # a bundle that starts with it
    relinked = Called(
        capsys, "relink", bundle, "--winners", saved, "-o", tmp_path / "tuned", "--json"
    )
    assert relinked.code == 0, relinked.err
    host = CudaHost(tmp_path / "tuned", device := made.device())
    assert device.compiled == [made.fast]
    x = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    wanted = ReferenceHost(bundle).run({"x": x}).outputs["y"]
    np.testing.assert_allclose(host.run({"x": x}).outputs["y"], wanted, rtol=1e-5, atol=1e-5)


def test_ctrl_c_gives_what_was_found(
    capsys: Capture, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Space(bundle, late=False)
    seen: list[str] = []

    def interrupted(text: str) -> str:
        if made.fast in seen and text not in (made.own, made.fast):
            raise KeyboardInterrupt
        seen.append(text)
        return "" if text in (made.own, made.fast) else "made up"

    use(made.device(interrupted), monkeypatch)
    saved = tmp_path / "winners.json"
    called = command(capsys, bundle, "--save", saved)
    assert called.code == 130
    assert called.json["cancelled"]
    assert called.json["fault"] is None
    assert called.json["gain"]["verdict"] == "unknown"
    assert list(json.loads(saved.read_text())["schedules"]) == ["0"]


def test_a_device_that_fails_is_told_with_what_was_found(
    capsys: Capture, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Space(bundle, late=False)

    def breaks(text: str) -> str:
        """What comes after the winner takes the device along."""
        if text in (made.own, made.fast):
            return ""
        device.broken = made.fast in device.compiled
        return "" if device.broken else "made up"

    device = made.device(breaks)
    use(device, monkeypatch)
    saved = tmp_path / "winners.json"
    called = command(capsys, bundle, "--save", saved)
    assert (called.code, called.json["cancelled"]) == (8, False)
    assert "ILLEGAL_ADDRESS" in called.json["fault"]["message"]
    assert list(json.loads(saved.read_text())["schedules"]) == ["0"]


def test_where_there_is_no_gpu_the_error_says_so(
    capsys: Capture, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    called = command(capsys, bundle)
    assert (called.code, called.json["error"]["code"]) == (8, "host")
    assert called.json["error"]["facts"]["host"] == "cuda"
    assert called.json["error"]["hint"]


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((7, 0), "cuda-sm-70"),
        ((7, 2), "cuda-sm-70"),
        ((8, 7), "cuda-sm-86"),
        ((9, 0), "cuda-sm-90"),
        ((10, 3), "cuda-sm-100"),
        ((11, 0), "cuda"),
        ((12, 1), "cuda-sm-120"),
    ],
)
def test_the_class_of_a_gpu(capability: tuple[int, int], name: str) -> None:
    """Its own, or the closest smaller one of its generation, whose candidates it can run."""
    device, features = of_capability(capability)
    assert device.id == name
    assert of_capability(device.machine.capability)[1] <= features


def test_a_bundle_without_the_section_says_how_to_build_it(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(matmul(SIZE, SIZE, SIZE).contents, tmp_path / "wasm")
    use(CpuDevice(), monkeypatch)
    called = command(capsys, tmp_path / "wasm")
    assert called.code == 6
    assert "--target cuda" in called.json["error"]["hint"]


@pytest.mark.gpu
def test_a_session_on_a_gpu(tmp_path: Path, capsys: Capture) -> None:
    """Whatever wins, every candidate was right, and the relinked bundle computes the same."""
    bundle, saved, report = tmp_path / "bundle", tmp_path / "winners.json", tmp_path / "report.json"
    write(matmul(64, 64, 96, CUDA).contents, bundle)
    files = ("--store", tmp_path / "votes.db", "--save", saved, "--report", report)
    called = Called(capsys, "tune", bundle, "--host", "cuda", "--budget", 20, *files, "--json")
    assert called.code == 0, called.err
    (kernel,) = called.json["kernels"]
    assert kernel["tried"] == called.json["rounds"] >= 1
    told = json.loads(report.read_text())
    verdicts = {event["verdict"] for event in told["events"] if event["type"] == "trial"}
    assert verdicts <= {"faster", "same", "slower"}
    winners = json.loads(saved.read_text())
    device = find(winners["class"])
    schedules = {int(n): target("cuda").schedule(of) for n, of in winners["schedules"].items()}
    write(relink(open_bundle(bundle), device, schedules), tmp_path / "again")
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    wanted = ReferenceHost(bundle).run({"x": x}).outputs["y"]
    found = CudaHost(tmp_path / "again").run({"x": x}).outputs["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# ---- kernels and memory --------------------------------------------------------------------------


def _lookup() -> Kernel:
    """Its steps tell their number, with which it says where an index was out of range."""
    table, index = graph_input("t", (50, 4), F32), graph_input("i", (600,), I64)
    made = Graph("g", (("t", table), ("i", index)), (("y", gather(table, index, 0)),))
    (step,) = steps_of(made)
    return step.kernel


EVERY_KIND = {**KERNELS, "lookup": _lookup}


@EACH_DEVICE
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", EVERY_KIND)
def test_candidates_of_every_kind_are_right(name: str, where: str) -> None:
    """In the memory of trials: floats, halves, bytes, packed weights."""
    device = TimedDevice(lambda _: OWN) if where == "cpu" else NvidiaDevice()
    kernel = EVERY_KIND[name]()
    space = space_of(kernel, find("cuda-sm-90"))
    bench = CudaBench(device)
    made = [build(kernel, s, "cuda", "sm-70") for s in (space.schedules[0], space.schedules[-1])]
    own = bench.runner(made[0].module.decode(), made[0].tiles)
    tried = Trials(bench, kernel, own, (0,) * own.module.scalars)
    assert tried.ready
    found = tried.attempt(made[1].module.decode(), made[1].tiles)
    assert found.verdict in ("faster", "same", "slower"), found


@pytest.mark.parametrize("storage", [WordStorage(), TypedStorage()], ids=["words", "natural"])
@pytest.mark.parametrize(
    ("dtype", "size", "dense"),
    [("f32", 5, ""), ("f32", 5, "halves"), ("i8", 7, "bytes"), ("u8", 3, ""), ("i64", 4, ""),
     ("bool", 6, ""), ("f32", 0, "")],
)  # fmt: skip
def test_memory_gives_back_what_is_put_in_and_sees_every_other_byte(
    storage: Storage, dtype: str, size: int, dense: str
) -> None:
    buffer: LaidBuffer = TrialBuffer(dtype, size, dense)
    memory = TrialMemory([buffer, buffer], storage)
    kind: Any = {"f32": np.float32, "i8": np.int8, "u8": np.uint8, "i64": np.int64, "bool": bool}
    data = np.arange(size).astype(kind[dtype])
    image = memory.image([data])
    assert not image[:ROOM].any()
    begin, of = memory.begins
    bytes_ = storage.bytes_of(buffer)
    assert set(image[begin : begin + ROOM - ROOM % 4].view(np.uint32)) <= {MARK}
    after = image.copy()
    after[begin : begin + bytes_] = image[of : of + bytes_]
    output, wrong = memory.judged(after.tobytes(), image)
    assert wrong == ""
    np.testing.assert_array_equal(output[:size], data)
    places = [n for n in range(4, memory.size) if not begin <= n < begin + bytes_]
    for place in places:
        spoilt = after.copy()
        spoilt[place] ^= 1
        assert (
            memory.judged(spoilt.tobytes(), image)[1] == f"it wrote to byte {place}, not its output"
        )
    after[0] = 1
    assert memory.judged(after.tobytes(), image)[1].startswith("it trapped")

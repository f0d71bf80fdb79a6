"""The benchmark beside engines on GPUs, without a GPU: cases, attention, the session of cuBLAS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module as module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest


def chosen(cases: Any, names: list[str]) -> Any:
    return module("benchmarks.peers.cases").chosen(cases, names)


def test_cases_on_gpus_are_distinct_and_have_small_forms() -> None:
    cases, models = module("benchmarks.peers.gpu_cases"), module("benchmarks.peers.models")
    kinds = module("benchmarks.peers.cases")
    names = [c.name for c in cases.CASES]
    assert len(names) == len(set(names))
    assert not set(names) & set(kinds.groups(cases.CASES))
    assert {c.work.stem for c in cases.CASES if isinstance(c.work, kinds.Model)} == {*models.MODELS}
    for case in cases.CASES:
        small = cases.small(case)
        assert small.name == f"{case.name}-small"
        assert small.flops < 1e8


@pytest.mark.parametrize("name", ["attention_512x12x64", "attention_512x32x128_f16"])
def test_both_forms_of_attention_agree(name: str) -> None:
    """With NumPy, too."""
    cases, attention = module("benchmarks.peers.gpu_cases"), module("benchmarks.peers.attention")
    (case,) = chosen(cases.CASES, [name])
    work = cases.small(case).work
    inputs, constants = module("benchmarks.peers.operands").operands(work)
    assert not constants
    q, k, v = (
        a.astype(np.float64).reshape(-1, work.heads, work.depth).swapaxes(0, 1)
        for a in inputs.values()
    )
    weights = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(work.depth))
    wanted = ((weights / weights.sum(-1, keepdims=True)) @ v).swapaxes(0, 1).reshape(work.y)
    for form in (attention.written_out, attention.as_one_node):
        session = onnxruntime.InferenceSession(form(work).SerializeToString())
        (y,) = session.run(None, inputs)
        np.testing.assert_allclose(y, wanted, atol=4e-3 if work.halves else 1e-5)


class OnCpu(np.ndarray):
    """A tensor of PyTorch, as far as the session of cuBLAS asks."""

    def cuda(self) -> OnCpu:
        return self

    def cpu(self) -> OnCpu:
        return self

    def float(self) -> OnCpu:
        return self.astype(np.float32)

    def numpy(self) -> np.ndarray:
        return np.asarray(self)


def fake_torch() -> Any:
    """Counts products, and replays of graphs in `replayed`."""
    replayed: list[int] = []

    class Graph:
        products = 0

        def replay(self) -> None:
            replayed.append(self.products)

    captured: list[Graph] = []

    def matmul(a: OnCpu, b: OnCpu, out: OnCpu | None = None) -> OnCpu:
        for graph in captured:
            graph.products += 1
        return np.matmul(a, b, out=out)

    @contextmanager
    def capture(graph: Graph, stream: Any) -> Iterator[None]:
        captured.append(graph)
        yield
        captured.remove(graph)

    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(
        synchronize=lambda: None, CUDAGraph=Graph, graph=capture, Stream=lambda: stream,
        stream=nullcontext,
    )  # fmt: skip
    backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)))
    return SimpleNamespace(
        matmul=matmul, cuda=cuda, backends=backends, replayed=replayed,
        from_numpy=lambda a: a.view(OnCpu), version=SimpleNamespace(cuda="13.0"),
    )  # fmt: skip


def test_cublas_is_a_session_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is that of the case's operands, and a round has as many products as was asked."""
    session_of = module("benchmarks.peers.cublas_session")
    torch = fake_torch()
    monkeypatch.setattr(session_of, "cuda", lambda: torch)
    cases, files = module("benchmarks.peers.gpu_cases"), module("benchmarks.peers.files").Files
    case = cases.small(chosen(cases.CASES, ["gemm_1024"])[0])
    made = files(case, Path(), Path(), {}, {}, {}, case.flops)
    inputs, constants = module("benchmarks.peers.operands").operands(case.work)
    session = session_of.CublasSession()
    session.add(made)
    session.open(made)
    assert not torch.backends.cuda.matmul.allow_tf32
    np.testing.assert_allclose(session.first()[1]["y"], inputs["x"] @ constants["w"], rtol=1e-6)
    fastest, batch = session.warm_stream(1.0)
    assert fastest > 0
    assert 1 <= batch <= session_of.MOST_STREAM
    torch.replayed.clear()
    assert len(session.round(3, 5)["times"]) == 3
    assert torch.replayed == [5, 5, 5]
    session.close()
    assert not session_of.suits(chosen(cases.CASES, ["gpt2"])[0])

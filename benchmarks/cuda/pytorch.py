"""Whole models on an NVIDIA GPU: Tilewright's CUDA kernels beside PyTorch, batch 1, f32.

Input: a GPU, PyTorch with torchvision and transformers.  Output: results/cuda.pytorch.json.
Models have random weights; PyTorch exports them to ONNX, so both compute the same numbers, which is
checked.  TF32 is off.  Timed by turns, from submission to the answer's end, inputs and outputs on
the GPU: ours is a CUDA graph, PyTorch's both eager, as most call it, and captured as a CUDA graph,
its best.

    python -m benchmarks cuda.pytorch [--only ResNet-50] [--rounds 5]
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from benchmarks.accuracy import require_close
from benchmarks.common import Run, nvidia_machine, versions
from benchmarks.cuda.kernels import CUDA
from benchmarks.models.nets import GROUPS, WIDTHS
from benchmarks.options import Only, Rounds, chosen
from benchmarks.records import Row
from lab.timing import by_turns, spread
from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import NvidiaDevice

RUNS, WARM_RUNS = 30, 30
#: Of the largest output.
TOLERANCE = 2e-3
IMAGE = (1, 3, 224, 224)


class Last(nn.Module):
    """The outputs of a recurrent net, without its states."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0]


class Hidden(nn.Module):
    """The last hidden states of an encoder."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Any) -> Any:
        return self.inner(input_ids=ids).last_hidden_state


def vision(name: str) -> tuple[nn.Module, Any]:
    import torchvision

    return torchvision.models.get_model(name, weights=None), torch.randn(IMAGE)


def bert() -> tuple[nn.Module, Any]:
    from transformers import BertConfig, BertModel

    config = BertConfig(attn_implementation="sdpa")
    return Hidden(BertModel(config, add_pooling_layer=False)), torch.randint(0, 30000, (1, 128))


def recurrent(kind: type[nn.Module]) -> tuple[nn.Module, Any]:
    return Last(kind(512, 512, num_layers=2)), torch.randn(100, 1, 512)


class Block(nn.Sequential):
    """Two convolutions, each with a group norm and SiLU."""

    def __init__(self, inside: int, outside: int) -> None:
        layers: list[nn.Module] = []
        for channels in (inside, outside):
            conv = nn.Conv2d(channels, outside, 3, padding=1)
            layers += [conv, nn.GroupNorm(GROUPS, outside), nn.SiLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """The U-Net of nets.py."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(pairwise(WIDTHS))
        self.first = Block(3, WIDTHS[0])
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, a, 3, 2, 1), Block(a, b)) for a, b in pairs
        )
        self.up = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(b, a, 3, padding=1))
            for a, b in reversed(pairs)
        )
        self.joined = nn.ModuleList(Block(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(WIDTHS[0], 3, 1)

    def forward(self, x: Any) -> Any:
        skips = [self.first(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat((up(x), skips.pop()), 1))
        return self.last(x)


MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "AlexNet": lambda: vision("alexnet"),
    "SqueezeNet": lambda: vision("squeezenet1_1"),
    "ResNet-50": lambda: vision("resnet50"),
    "MobileNetV2": lambda: vision("mobilenet_v2"),
    "GRU 512, 2 layers, 100 steps": lambda: recurrent(nn.GRU),
    "LSTM 512, 2 layers, 100 steps": lambda: recurrent(nn.LSTM),
    "BERT-base, 128 tokens": bert,
    "U-Net, group norms, 256x256": lambda: (UNet(), torch.randn(1, 3, 256, 256)),
}


def exported(model: nn.Module, x: Any) -> onnx.ModelProto:
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
    return onnx.load_from_string(file.getvalue())


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda: graph.replay()


def waited(run: Callable[[], Any]) -> Callable[[int], list[float]]:
    """Milliseconds from the start of each run until the GPU has done it."""

    def timer(runs: int) -> list[float]:
        found = []
        for _ in range(runs):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            found.append((time.perf_counter() - start) * 1e3)
        return found

    return timer


def measure(device: NvidiaDevice, name: str, rounds: int, folder: Path) -> Row:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    model.eval()
    start = time.perf_counter()
    compiled = compile_model(exported(model, x), CUDA)
    write(compiled.contents, folder)
    compile_s = time.perf_counter() - start
    start = time.perf_counter()
    host = CudaHost(folder, device)
    load_s = time.perf_counter() - start
    manifest = host.bundle.manifest
    (got,) = host.run({manifest.inputs[0].name: x.numpy()}).outputs.values()
    model, there = model.cuda(), x.cuda()
    with torch.inference_mode():
        want = model(there).cpu().numpy()
        error = require_close(name, float(np.abs(got - want).max() / np.abs(want).max()), TOLERANCE)
        timers = {
            "ours": host.time,
            "eager": waited(lambda: model(there)),
            "graph": waited(captured(lambda: model(there))),
        }
        for timer in timers.values():
            timer(WARM_RUNS)
        found = by_turns({key: partial(timer, RUNS) for key, timer in timers.items()}, rounds)
    row: Row = {"model": name, "kernels": len(manifest.plans[0].steps)}
    medians = {key: statistics.median(times) for key, times in found.items()}
    for key, times in found.items():
        row |= {f"{key}_ms": round(medians[key], 4), f"{key}_spread": round(spread(times), 4)}
    clock = statistics.median(host.clock(RUNS))
    return row | {
        "clock_ms": round(clock, 4),
        "n": rounds * RUNS,
        "over_eager": round(medians["eager"] / medians["ours"], 3),
        "over_graph": round(medians["graph"] / medians["ours"], 3),
        "relative_error": error,
        "compile_s": round(compile_s, 2),
        "load_s": round(load_s, 2),
    }


def main(run: Run, only: Only = None, rounds: Rounds = 5) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device, rows = NvidiaDevice(), []
    with tempfile.TemporaryDirectory(prefix="nvidia-") as folder:
        for number, name in enumerate(chosen(MODELS, only)):
            rows.append(measure(device, name, rounds, Path(folder, str(number))))
            run.show(rows[-1])
    run.save(rows, facts={"machine": nvidia_machine(), "versions": versions(torch)})

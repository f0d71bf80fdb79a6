"""The models of the workloads by name, as ONNX models with batch 1 and f32.

Output: `MODELS`.  Weights are random, since times do not depend on them; the same name always gives
the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import ModelProto

from lab.workloads.models.inception import inception
from lab.workloads.models.sequences import encoder, recurrent
from lab.workloads.models.vision import (
    alexnet,
    cifarnet,
    densenet,
    mobilenet,
    resnet,
    squeezenet,
    vgg,
)
from tilewright.base.errors import unknown_name

__all__ = ["MODELS", "ModelOf", "model"]


@dataclass(frozen=True)
class ModelOf:
    """How a model is made: a function, its arguments, and other arguments for a small version."""

    make: Callable[..., ModelProto]
    full: Mapping[str, object]
    small: Mapping[str, object]

    def build(self) -> ModelProto:
        return self.make(**self.full)

    def build_small(self) -> ModelProto:
        """A small version for tests: all kinds of layers, but narrow and with a small input."""
        return self.make(**{**self.full, **self.small})


def _image(size: int, shrink: int, **more: object) -> Mapping[str, object]:
    return {"size": size, "shrink": shrink, **more}


_RECURRENT = {"width": 16, "steps": 5}
_ENCODER = {"layers": 2, "width": 32, "heads": 2, "tokens": 8, "words": 50}
_VGG = _image(32, 16, blocks=(1, 1, 2, 1, 1))
_DENSE = _image(32, 8, blocks=(2, 2, 2, 2))
_RESIDUAL = _image(32, 16, blocks=(2, 2, 1, 1))

MODELS: Mapping[str, ModelOf] = {
    "AlexNet": ModelOf(alexnet, {}, _image(79, 16)),
    "CifarNet": ModelOf(cifarnet, {}, _image(20, 4)),
    "SqueezeNet": ModelOf(squeezenet, {}, _image(39, 8)),
    "VGG-16": ModelOf(vgg, {"blocks": (2, 2, 3, 3, 3)}, _VGG),
    "VGG-19": ModelOf(vgg, {"blocks": (2, 2, 4, 4, 4)}, _VGG),
    "ResNet-18": ModelOf(resnet, {"blocks": (2, 2, 2, 2), "bottleneck": False}, _RESIDUAL),
    "ResNet-50": ModelOf(resnet, {"blocks": (3, 4, 6, 3), "bottleneck": True}, _RESIDUAL),
    "ResNet-152": ModelOf(resnet, {"blocks": (3, 8, 36, 3), "bottleneck": True}, _RESIDUAL),
    "DenseNet-121": ModelOf(densenet, {"blocks": (6, 12, 24, 16)}, _DENSE),
    "DenseNet-201": ModelOf(densenet, {"blocks": (6, 12, 48, 32)}, _DENSE),
    "Inception-v3": ModelOf(inception, {}, _image(75, 16)),
    "MobileNetV2": ModelOf(mobilenet, {}, _image(32, 8)),
    "GRU": ModelOf(recurrent, {"cell": "GRU"}, _RECURRENT),
    "LSTM": ModelOf(recurrent, {"cell": "LSTM"}, _RECURRENT),
    "BERT-base": ModelOf(encoder, {"layers": 12}, _ENCODER),
    "DistilBERT": ModelOf(encoder, {"layers": 6}, _ENCODER),
}


def model(name: str) -> ModelProto:
    """The model of this name; `UsageError` if there is none."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name].build()

"""Image classifiers as PyTorch modules: ResNet-18 and -50, SqueezeNet 1.1, MobileNetV2, AlexNet.

Input: widths and the number of classes.  Output: modules in eval mode with seeded random weights.
Batch statistics are random for the shallow nets and measured for the deep ones, whose activations
would vanish or overflow otherwise.  Trained weights do not matter for what is measured here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.shortcut(x))


def resnet18(widths: Sequence[int] = (64, 128, 256, 512), classes: int = 1000) -> nn.Module:
    """Two blocks per width, after a 7x7 convolution and a max pool."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, widths[0], 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inside = widths[0]
    for i, width in enumerate(widths):
        layers += [Block(inside, width, 2 if i else 1), Block(width, width, 1)]
        inside = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
    return seeded(nn.Sequential(*layers))


class Fire(nn.Module):
    """A 1x1 squeeze, then 1x1 and 3x3 expansions side by side."""

    def __init__(self, inside: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inside, squeezed, 1)
        self.expand1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand1(x)), torch.relu(self.expand3(x))], 1)


def squeezenet(shrink: int = 1, classes: int = 1000) -> nn.Module:
    """SqueezeNet 1.1 with every width divided by `shrink`."""
    first = 64 // shrink
    layers: list[nn.Module] = [nn.Conv2d(3, first, 3, 2), nn.ReLU(), _pool()]
    inside = first
    plan = ((16, 64), (16, 64), None, (32, 128), (32, 128), None,
            (48, 192), (48, 192), (64, 256), (64, 256))  # fmt: skip
    for step in plan:
        if step is None:
            layers.append(_pool())
        else:
            squeezed, expanded = (n // shrink for n in step)
            layers.append(Fire(inside, squeezed, expanded))
            inside = 2 * expanded
    layers += [nn.Dropout(0.5), nn.Conv2d(inside, classes, 1), nn.ReLU()]
    return seeded(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()))


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def seeded(model: nn.Module) -> nn.Module:
    """Batch statistics of no special value, so that a wrong fold shows."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values, low, high in (
                (module.running_mean, -0.2, 0.2),
                (module.running_var, 0.5, 1.5),
                (module.weight, 0.5, 1.5),
                (module.bias, -0.2, 0.2),
            ):
                assert values is not None
                values.data.uniform_(low, high, generator=generator)
    return model.eval()


def measured(model: nn.Module, size: int) -> nn.Module:
    """Weights for ReLU networks; batch statistics from noise, so that activations stay near 1."""
    generator = torch.Generator().manual_seed(1)
    norms = []
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                module.bias.data.uniform_(-0.1, 0.1, generator=generator)
        elif isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.uniform_(-0.2, 0.2, generator=generator)
            module.momentum = 1.0  # the statistics of the last batch
            norms.append(module)
    if norms:
        model.train()
        with torch.no_grad():
            model(torch.randn((4, 3, size, size), generator=generator))
    return model.eval()


class Bottleneck(nn.Module):
    """1x1, 3x3 with the stride, 1x1 with four times the width, and a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.main = nn.Sequential(
            *_conv(inside, width, 1),
            nn.ReLU(),
            *_conv(width, width, 3, stride),
            nn.ReLU(),
            *_conv(width, outside, 1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(*_conv(inside, outside, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.shortcut(x))


def _conv(
    inside: int, outside: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution without bias that keeps the extent (over the stride), and its batch norm."""
    conv = nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outside)]


def resnet50(classes: int = 1000) -> nn.Module:
    """Bottlenecks 3, 4, 6, 3 (version 1.5: the stride is in the 3x3)."""
    layers = [*_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    inside = 64
    for i, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for j in range(count):
            layers.append(Bottleneck(inside, width, 2 if i and not j else 1))
            inside = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
    return measured(nn.Sequential(*layers), 224)


class Inverted(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 projection without activation; a shortcut where it fits."""

    def __init__(self, inside: int, outside: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inside * expand
        wide = [*_conv(inside, hidden, 1), nn.ReLU6()] if expand > 1 else []
        deep = [*_conv(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6()]
        self.main = nn.Sequential(*wide, *deep, *_conv(hidden, outside, 1))
        self.adds = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.main(x)
        return x + made if self.adds else made


#: Expansion, width, repeats and first stride of each stage of MobileNetV2.
MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
          (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip


def mobilenet_v2(classes: int = 1000) -> nn.Module:
    layers = [*_conv(3, 32, 3, 2), nn.ReLU6()]
    inside = 32
    for expand, width, count, stride in MOBILE:
        for j in range(count):
            layers.append(Inverted(inside, width, 1 if j else stride, expand))
            inside = width
    layers += [*_conv(inside, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.Dropout(0.2), nn.Linear(1280, classes)]
    return measured(nn.Sequential(*layers), 224)


def alexnet(classes: int = 1000) -> nn.Module:
    """The one-column variant with 61 million weights (Krizhevsky 2014, as torchvision has it)."""
    layers: list[nn.Module] = []
    inside = 3
    for outside, size, stride, pool in (
        (64, 11, 4, True), (192, 5, 1, True), (384, 3, 1, False), (256, 3, 1, False),
        (256, 3, 1, True),
    ):  # fmt: skip
        layers += [nn.Conv2d(inside, outside, size, stride, 2 if size > 3 else 1), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2)] if pool else []
        inside = outside
    layers += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]
    layers += [nn.Dropout(), nn.Linear(256 * 36, 4096), nn.ReLU()]
    layers += [nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, classes)]
    return measured(nn.Sequential(*layers), 224)

"""ResNet and SqueezeNet 1.1 as PyTorch modules, at full size or tiny.

Input: widths and the number of classes.  Output: modules in eval mode with seeded random weights
and random batch statistics.  Trained weights do not matter for what is measured here.
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

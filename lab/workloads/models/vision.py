"""Image classifiers as ONNX: those of MDTB, DISB and Miriam's figures.

Input: the size of the image, a divisor of the widths (for tests), numbers of blocks.  Output:
models with one input `image`, f32[1, 3, size, size], and scores of classes.  A batch normalization
after a convolution is folded into it, as exporters for inference do.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from lab.workloads.models.network import Activation, Network

CLASSES = 1000


def alexnet(size: int = 224, shrink: int = 1) -> ModelProto:
    """AlexNet in the variant with one column (Krizhevsky 2014): 61 million weights."""
    net = Network("AlexNet")
    x = net.image(size)
    for channels, kernel, stride, pad, pooled in (
        (64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False),
        (256, 3, 1, 1, False), (256, 3, 1, 1, True),
    ):  # fmt: skip
        x = net.relu(net.conv(x, channels // shrink, kernel, stride, pad))
        x = net.pool(x, 3, 2) if pooled else x
    return net.model(_classified(net, x, (4096 // shrink, 4096 // shrink)))


def _classified(
    net: Network, x: Activation, hidden: Sequence[int], classes: int = CLASSES
) -> Activation:
    """The classifier: dense layers over all positions, with `hidden` outputs each, then the
    classes."""
    x = net.flat(x)
    for width in hidden:
        x = net.relu(net.dense(x, width))
    return net.dense(x, classes)


def cifarnet(size: int = 224, shrink: int = 1) -> ModelProto:
    """CifarNet: three convolutions and two dense layers, made for 32x32; MDTB runs it on
    224x224."""
    net = Network("CifarNet")
    x = net.relu(net.pool(net.conv(net.image(size), 32 // shrink, 5), 3, 2, up=True))
    for channels in (32, 64):
        x = net.relu(net.conv(x, channels // shrink, 5))
        x = net.pool(x, 3, 2, "Average", up=True)
    x = net.dense(net.flat(x), 64)
    return net.model(net.dense(x, 10))


def squeezenet(size: int = 224, shrink: int = 1) -> ModelProto:
    """SqueezeNet, version 1.1."""
    net = Network("SqueezeNet")
    x = net.pool(net.relu(net.conv(net.image(size), 64 // shrink, 3, 2, pad=0)), 3, 2, up=True)
    for squeezed, expanded, pooled in (
        (16, 64, False), (16, 64, True), (32, 128, False), (32, 128, True),
        (48, 192, False), (48, 192, False), (64, 256, False), (64, 256, False),
    ):  # fmt: skip
        x = net.relu(net.conv(x, squeezed // shrink, 1))
        x = net.join(*(net.relu(net.conv(x, expanded // shrink, k)) for k in (1, 3)))
        x = net.pool(x, 3, 2, up=True) if pooled else x
    return net.model(net.mean(net.relu(net.conv(x, CLASSES, 1))))


def vgg(blocks: Sequence[int], size: int = 224, shrink: int = 1) -> ModelProto:
    """VGG.  blocks: number of 3x3 convolutions before each of the five pools"""
    net = Network("VGG")
    x = net.image(size)
    for count, channels in zip(blocks, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            x = net.relu(net.conv(x, channels // shrink, 3))
        x = net.pool(x, 2, 2)
    return net.model(_classified(net, x, (4096 // shrink, 4096 // shrink)))


#: The gain of a convolution whose result is added to another: sums over many blocks stay small.
ADDED = 0.3


def resnet(blocks: Sequence[int], bottleneck: bool, size: int = 224, shrink: int = 1) -> ModelProto:
    """ResNet, version 1.5, whose stride is in the 3x3.  blocks: number of blocks at each of the
    four widths"""
    net = Network("ResNet")
    x = net.relu(net.conv(net.image(size), 64 // shrink, 7, 2))
    x = net.pool(x, 3, 2, pad=1)
    for stage, count in enumerate(blocks):
        width = (64 << stage) // shrink
        for number in range(count):
            stride = 2 if stage and not number else 1
            outside = 4 * width if bottleneck else width
            shortcut = x
            if stride != 1 or x.shape[1] != outside:
                shortcut = net.conv(x, outside, 1, stride)
            if bottleneck:
                x = net.relu(net.conv(x, width, 1))
            x = net.relu(net.conv(x, width, 3, stride))
            last = net.conv(x, outside, 1 if bottleneck else 3, gain=ADDED)
            x = net.relu(net.add(last, shortcut))
    return net.model(net.dense(net.mean(x), CLASSES))


def densenet(blocks: Sequence[int], size: int = 224, shrink: int = 1) -> ModelProto:
    """DenseNet.  blocks: number of layers of each dense block; a layer adds 32 channels"""
    net = Network("DenseNet")
    growth = 32 // shrink
    x = net.pool(net.relu(net.conv(net.image(size), 2 * growth, 7, 2)), 3, 2, pad=1)
    for number, count in enumerate(blocks):
        if number:
            x = net.conv(net.relu(net.norm(x)), x.shape[1] // 2, 1)
            x = net.pool(x, 2, 2, "Average")
        for _ in range(count):
            new = net.relu(net.conv(net.relu(net.norm(x)), 4 * growth, 1))
            x = net.join(x, net.conv(new, growth, 3))
    return net.model(net.dense(net.mean(net.relu(net.norm(x))), CLASSES))


#: Expansion, width, repeats and first stride of each stage.
MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
          (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip


def mobilenet(size: int = 224, shrink: int = 1) -> ModelProto:
    """MobileNetV2."""
    net = Network("MobileNetV2")
    x = net.clipped(net.conv(net.image(size), 32 // shrink, 3, 2))
    for expansion, width, count, first in MOBILE:
        for number in range(count):
            stride, before = 1 if number else first, x
            hidden = expansion * x.shape[1]
            wide = net.clipped(net.conv(x, hidden, 1)) if expansion > 1 else x
            deep = net.clipped(net.conv(wide, hidden, 3, stride, groups=hidden))
            x = net.conv(deep, width // shrink, 1, gain=ADDED)
            x = net.add(x, before) if number else x
    x = net.clipped(net.conv(x, 1280 // shrink, 1))
    return net.model(net.dense(net.mean(x), CLASSES))

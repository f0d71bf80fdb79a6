"""The kernels that tuning is measured on, by name.

Output: `SUBJECTS`, of sweeps and sessions, and `ALL_SUBJECTS`; each makes the step of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.models import row_kernels
from benchmarks.models.layers import LAYERS
from lab.paper_spaces import PAPER
from lab.subjects import matmul_step, paper_step, steps_of, weight_of
from tilewright.compiler import Options, compile_model
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.graph.node import contract, elementwise


def layer(model: str, name: str) -> KernelStep:
    """The convolution of a layer of models/layers.py, with its bias and ReLU."""
    (found,) = (x for x in LAYERS if (x.model, x.name) == (model, name))
    compiled = compile_model(found.onnx(), Options(variants=("x86",)))
    return max(compiled.plans[0].steps, key=lambda s: s.kernel.flops)


def row_kernel(name: str) -> KernelStep:
    return max(steps_of(row_kernels.subject_graph(name)), key=lambda s: s.kernel.flops)


def activated(m: int, k: int, n: int) -> KernelStep:
    """A product with SiLU as its epilogue."""
    made = contract("mk,kn->mn", row_kernels.x(m, k), weight_of((k, n), 0))
    graph = row_kernels.graph_of("silu", elementwise("mul", made, row_kernels.sigmoid(made)))
    return max(steps_of(graph), key=lambda s: s.kernel.flops)


#: nnJIT's kernels; those of MiniLM at 128 tokens; convolutions; row-wise kernels; attention.
SUBJECTS: Mapping[str, Callable[[], KernelStep]] = {
    **{name: partial(paper_step, name) for name in PAPER},
    "MiniLM 384>384": partial(matmul_step, 128, 384, 384),
    "MiniLM 384>1536": partial(matmul_step, 128, 384, 1536),
    "MiniLM 1536>384": partial(matmul_step, 128, 1536, 384),
    "one row": partial(matmul_step, 1, 768, 3072),
    "conv 3x3": partial(layer, "ResNet-50", "3x3 64>64@56"),
    "conv 1x1": partial(layer, "ResNet-50", "1x1 64>256@56"),
    "depthwise 3x3": partial(layer, "MobileNetV2", "3x3 dw 144>144@56"),
    "attention": partial(row_kernel, "attention 128x32"),
    "softmax": partial(row_kernel, "softmax"),
    "layer norm": partial(row_kernel, "layer norm"),
}
#: The same and more of each kind: other shapes, costly epilogues, other reductions of rows.
ALL_SUBJECTS: Mapping[str, Callable[[], KernelStep]] = {
    **SUBJECTS,
    "SiLU 1600x576x64": partial(activated, 1600, 576, 64),
    "SiLU 240x384x768": partial(activated, 240, 384, 768),
    "3x3 128>128@28": partial(layer, "ResNet-50", "3x3 128>128@28"),
    "3x3 256>256@14": partial(layer, "ResNet-50", "3x3 256>256@14"),
    "1x1 1024>256@14": partial(layer, "ResNet-50", "1x1 1024>256@14"),
    "1x1 144>24@56": partial(layer, "MobileNetV2", "1x1 144>24@56"),
    "1x1 384>64@14": partial(layer, "MobileNetV2", "1x1 384>64@14"),
    "dw 576>576@14": partial(layer, "MobileNetV2", "3x3 dw 576>576@14"),
    "attention 384": partial(row_kernel, "attention 384"),
    "rms norm": partial(row_kernel, "rms norm"),
    "sum last": partial(row_kernel, "sum last"),
}

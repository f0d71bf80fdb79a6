"""Tables of what kernels reach on a real GPU.

Input: the record of results/gpu.json.  Output: Markdown for results/README.md.
"""

from __future__ import annotations

from typing import Any

from charts import table

Record = dict[str, Any]


def gpu(record: Record) -> str:
    """One line per product; without PyTorch the columns of cuBLAS are empty."""
    head = ["kernel", "operands", "µs", "TFLOP/s", "GB/s of weights", "cuBLAS: TFLOP/s"]
    head += ["speed over cuBLAS", "n", "spread"]
    rows = [
        [
            r["case"],
            "×".join(map(str, r["shape"])),
            f"{r['ms'] * 1e3:,.1f}",
            f"{r['tflops']:.2f}",
            f"{r['gb_per_s']:,.0f}" if "gb_per_s" in r else "–",
            f"{r['cublas_tflops']:.2f}" if "cublas_tflops" in r else "–",
            f"{r['share_of_cublas']:.3f}" if "share_of_cublas" in r else "–",
            str(r["n"]),
            f"{r['spread'] * 100:.1f} %",
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def llama(record: Record) -> str:
    """One line per model; by the GPU's clock a step of the model is without its way to the page."""
    head = ["layers", "width", "bits", "scales", "weights, GB", "prompt", "prompt, ms", "TFLOP/s"]
    head += ["tokens per s", "ms per token", "by the GPU's clock", "n", "spread"]
    rows = [
        [
            str(r["layers"]),
            str(r["width"]),
            str(r["bits"]),
            "f16" if r["halves"] else "f32",
            f"{r['weights_bytes'] / 1e9:.2f}",
            str(r["prompt"]),
            f"{r['prompt_ms']:.1f}",
            f"{r['prompt_tflops']:.1f}",
            f"{r['tokens_per_s']:.0f}",
            f"{r['token_ms']:.2f}",
            f"{r['token_clock_ms']:.2f}",
            str(r["n"]),
            f"{r['spread'] * 100:.1f} %",
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def where(record: Record) -> str:
    """The adapter, and what its memory does for a WGSL kernel."""
    memory, versions = record["memory"], record["versions"]
    known = [record["machine"][key] for key in ("gpu", "driver") if key in record["machine"]]
    name = ", driver ".join(known) or record["adapter"]["description"]
    options = " ".join(record["options"]) or "none: as in a stock page"
    return (
        f"{name}, webgpu {versions['webgpu']}, words for Dawn: {options}. A WGSL "
        f"kernel that copies {memory['bytes'] / 2**20:,.0f} MiB moves "
        f"{memory['copy']['gb_per_s']:,.0f} GB/s (read and written), one that only reads "
        f"{memory['read']['gb_per_s']:,.0f}."
    )

"""How fast the compiler is: milliseconds per kernel, seconds per model.

Input: the MiniLM model that scripts/demo writes.  Output: results/compile.json.  Per kernel: from
schedule to checked bytes, for the relaxed-SIMD build.  Per model: everything but reading the file
and packing weights, four buckets and all builds.

    uv run python benchmarks/compile_speed.py --model .demo/minilm.onnx
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import common

from tilewright.compiler import Options, compile_model
from tilewright.targets import wasm
from tilewright.targets.simd.table import lower

BUCKETS = {"n": (16, 32, 64, 128)}


def kernel_times(model: Path, repeats: int) -> list[float]:
    """Milliseconds from schedule to bytes, the median of each distinct kernel."""
    compiled = compile_model(model, Options(buckets=BUCKETS))
    target, found = wasm.TARGETS["x86"], []
    for entry in compiled.entries:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            loops = lower(entry.kernel, entry.first.schedule)
            wasm.link([wasm.compile_tile(loops, target)], target, 1)
            times.append((time.perf_counter() - start) * 1e3)
        found.append(statistics.median(times))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    per_kernel = kernel_times(args.model, args.repeats)
    whole, stages = [], {}
    for _ in range(args.repeats):
        compiled = compile_model(args.model, Options(buckets=BUCKETS))
        stages = {k: round(v, 3) for k, v in compiled.seconds.items()}
        whole.append(sum(v for k, v in compiled.seconds.items() if k != "read"))
    rows = [
        {
            "what": "kernel, schedule to bytes",
            "median_ms": round(statistics.median(per_kernel), 2),
            "max_ms": round(max(per_kernel), 2),
            "n": len(per_kernel),
        },
        {
            "what": f"{args.model.stem}, {len(BUCKETS['n'])} buckets, {len(wasm.TARGETS)} builds",
            "median_ms": round(statistics.median(whole) * 1e3),
            "max_ms": round(max(whole) * 1e3),
            "n": len(whole),
        },
    ]
    for row in rows:
        print(row)
    print(common.save("compile", rows, stages_seconds=stages, kernels=len(per_kernel)))


if __name__ == "__main__":
    main()

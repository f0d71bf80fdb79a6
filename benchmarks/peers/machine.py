"""The machine's limits, measured alternating with every case: multiply-adds, memory traffic.

Input: the sessions of a run.  Output: lanes whose figures become GFLOP/s of a kernel that only
multiplies and adds in registers, and GB/s of one that adds two arrays too large for any cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.cases import PEAK, STREAM, Case
from benchmarks.peers.files import MADE, Files, onnx_of
from benchmarks.peers.measure import EngineRow, Lane
from lab.subjects import peak
from tilewright.bundle import Contents, write
from tilewright.compiler import compile_model

ENGINE = "machine"


def limit_files() -> list[Files]:
    """The two kernels, as cases without an answer to compare."""
    subject = peak()
    stream = compile_model(onnx_of(STREAM.name, STREAM.work, {})).contents  # type: ignore[arg-type]
    return [
        _files(Case(PEAK, "machine", STREAM.work), subject.contents, subject.flops),
        _files(STREAM, stream, 0),
    ]


def _files(case: Case, contents: Contents, flops: int) -> Files:
    folder = MADE / case.name
    write(contents, folder / "bundle")
    return Files(case, folder, Path(), {}, {}, {"name": case.name}, flops)


def limits(lanes: Sequence[Lane], threads: int) -> EngineRow:
    """The fields of a row for that many threads, of the rounds that the lanes ran."""
    found = EngineRow()
    for lane in lanes:
        if lane.session.threads != threads or "median_ms" not in lane.row:
            continue
        if lane.files.case.name == PEAK:
            found["peak_gflops"] = lane.row["gflops_fastest"]
            found["peak_gflops_median"] = lane.row["gflops"]
        else:
            found["stream_gbps"] = round(STREAM.bytes / lane.row["fastest_ms"] / 1e6, 2)
    return found

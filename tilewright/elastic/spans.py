"""What was where when: one span for each block that was resident on a multiprocessor.

Made by the simulator and by instrumented kernels (watch.py); read by timeline.py and metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class BlockSpan:
    """Times in microseconds from any common start; threads of the block, where they are known."""

    sm: int
    begin: float
    end: float
    task: str
    critical: bool
    threads: int = 0


def in_lanes(spans: Iterable[BlockSpan]) -> list[tuple[int, BlockSpan]]:
    """Each span with a lane of its SM, such that spans of one lane do not overlap; by begin."""
    found: list[tuple[int, BlockSpan]] = []
    ends: dict[int, list[float]] = {}
    for span in sorted(spans, key=lambda s: (s.begin, s.sm, s.end)):
        lanes = ends.setdefault(span.sm, [])
        lane = next((n for n, end in enumerate(lanes) if end <= span.begin), len(lanes))
        if lane == len(lanes):
            lanes.append(span.end)
        else:
            lanes[lane] = span.end
        found.append((lane, span))
    return found

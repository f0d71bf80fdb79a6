"""Pictures of when each block was resident on a multiprocessor.

Input: spans, from the simulator or from traced kernels (block_trace.py).  Output: SMs over
time as SVG, and the same as a trace for Perfetto.  Critical blocks have one colour, each normal
task another.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tilewright import TOOL
from tilewright.base.errors import NotMeasured

WIDTH, ROW, GAP, LEFT, TOP, BOTTOM = 1200, 3, 4, 60, 30, 26
CRITICAL = "#c62828"
NORMAL = ("#1e88e5", "#43a047", "#fb8c00", "#8e24aa", "#00897b")
#: The most spans in a picture; more cannot be distinguished.
MOST_DRAWN = 20_000


@dataclass(frozen=True)
class BlockSpan:
    """The residence of one block: microseconds from any common start; its threads, if known."""

    sm: int
    begin: float
    end: float
    task: str
    critical: bool
    threads: int = 0


def in_lanes(spans: Iterable[BlockSpan]) -> list[tuple[int, BlockSpan]]:
    """Each span with a lane of its SM, ordered by start; spans of one lane do not overlap."""
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


def window(spans: Sequence[BlockSpan], microseconds: float) -> list[BlockSpan]:
    """The spans in a stretch of this length, with times from its start.

    It begins a tenth of its length before a critical request: the first one in whose stretch normal
    work begins, else the first request.  Without requests it begins before the first span.  Raises
    NotMeasured.
    """
    if not spans:
        raise NotMeasured(
            "no kernel recorded where it ran", hint="Run for longer, or with traced kernels"
        )
    ordered = sorted(spans, key=lambda s: s.begin)
    normal = [s.begin for s in ordered if not s.critical]
    requests = [s.begin for s in ordered if s.critical] or [ordered[0].begin]
    starts = [begin - microseconds / 10 for begin in requests]
    start = next((t for t in starts if _some(normal, t, t + microseconds)), starts[0])
    return [
        BlockSpan(s.sm, s.begin - start, s.end - start, s.task, s.critical, s.threads)
        for s in ordered
        if s.end > start and s.begin < start + microseconds
    ][:MOST_DRAWN]


def _some(ordered: Sequence[float], start: float, end: float) -> bool:
    """True if a time lies in [start, end)."""
    return bisect_left(ordered, start) < bisect_left(ordered, end)


def colours(spans: Sequence[BlockSpan]) -> dict[str, str]:
    """The colour of each task."""
    critical = sorted({s.task for s in spans if s.critical})
    normal = sorted({s.task for s in spans if not s.critical})
    found = dict.fromkeys(critical, CRITICAL)
    return found | {task: NORMAL[n % len(NORMAL)] for n, task in enumerate(normal)}


def svg(spans: Sequence[BlockSpan], title: str = "") -> str:
    """An SVG whose rows are SMs, with a lane for each resident block; time goes to the right."""
    placed = in_lanes(spans)
    lanes: dict[int, int] = {}
    for lane, span in placed:
        lanes[span.sm] = max(lanes.get(span.sm, 0), lane + 1)
    tops: dict[int, float] = {}
    height = float(TOP)
    for sm in sorted(lanes):
        tops[sm] = height
        height += ROW * lanes[sm] + GAP
    end = max((span.end for _, span in placed), default=0.0) or 1.0
    scale, colour = (WIDTH - LEFT - 10) / end, colours(spans)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height + BOTTOM:.0f}" '
        'font-family="sans-serif" font-size="11">',
        f"<!-- {TOOL} -->",
        f'<rect width="{WIDTH}" height="{height + BOTTOM:.0f}" fill="white"/>',
        f'<text x="{LEFT}" y="16">{escape(title)}</text>',
    ]
    for n, (task, fill) in enumerate(colour.items()):
        left = WIDTH - 10 - 150 * (len(colour) - n)
        parts.append(f'<rect x="{left}" y="8" width="10" height="10" fill="{fill}"/>')
        parts.append(f'<text x="{left + 14}" y="17">{escape(task)}</text>')
    for sm, top in tops.items():
        middle = top + ROW * lanes[sm] / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{middle:.1f}" text-anchor="end">SM {sm}</text>')
    for lane, span in placed:
        x, wide = LEFT + span.begin * scale, max(0.4, (span.end - span.begin) * scale)
        parts.append(
            f'<rect x="{max(LEFT, x):.2f}" y="{tops[span.sm] + lane * ROW:.1f}" '
            f'width="{wide:.2f}" height="{ROW - 0.5}" fill="{colour[span.task]}"/>'
        )
    for n in range(6):
        at = LEFT + n * end * scale / 5
        label = f"{n * end / 5:.0f} µs"
        parts.append(f'<text x="{at:.0f}" y="{height + 14:.0f}">{label}</text>')
    return "\n".join((*parts, "</svg>", ""))


def trace(spans: Sequence[BlockSpan]) -> str:
    """JSON in Chrome's trace event format: a process for each SM, a thread for each lane."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": sm, "args": {"name": f"SM {sm}"}}
        for sm in sorted({span.sm for span in spans})
    ]
    for lane, span in in_lanes(spans):
        events.append(
            {
                "ph": "X",
                "name": span.task,
                "cat": "critical" if span.critical else "normal",
                "pid": span.sm,
                "tid": lane,
                "ts": round(span.begin, 3),
                "dur": round(span.end - span.begin, 3),
                "args": {"threads": span.threads},
            }
        )
    return json.dumps({"otherData": {"tool": TOOL}, "traceEvents": events})

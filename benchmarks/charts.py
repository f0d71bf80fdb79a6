"""Tables and pictures as text: Markdown tables, SVG bars, bars in groups, rooflines.

Input: labels and numbers.  Output: text.  It knows nothing of what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, LEFT = 640, 190
INK, PAPER, OURS, PALE = "#2a2420", "#fbf8f4", "#b8481c", "#e9c4b0"
#: One colour per engine or policy, Tilewright's first.
COLOURS = (
    OURS, "#3f6c8c", "#7a9a58", "#c9a23a", "#8a7ca8", "#2f8f83", "#b0627f", "#6b5a48", "#8fa3b5",
)  # fmt: skip


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; all columns but the first are right-aligned."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def cell(value: Any) -> str:
    """Three decimals of a float; a dash for None."""
    if isinstance(value, float):
        value = round(value, 3)
    return "–" if value is None else str(value)


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    """A long title has smaller letters."""
    size = min(15, 930 / len(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="{PAPER}"/>\n'
        f'<text x="16" y="26" font-size="{size:.3g}" font-weight="600">{title}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def bars(title: str, rows: list[tuple[str, float, float]], unit: str) -> str:
    """Horizontal bars: (label, value, limit); the limit is drawn as a lighter bar behind."""
    top = max(max(value, limit) for _, value, limit in rows) or 1.0
    width, left, bar, gap = 640, 190, 22, 12
    scale = (width - left - 90) / top
    parts = []
    for i, (label, value, limit) in enumerate(rows):
        y = 44 + i * (bar + gap)
        parts.append(f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{label}</text>')
        parts.append(
            f'<rect x="{left}" y="{y}" width="{limit * scale:.1f}" height="{bar}" rx="3" '
            'fill="#e9c4b0"/>'
        )
        parts.append(
            f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="{bar}" rx="3" '
            'fill="#b8481c"/>'
        )
        end = left + max(value, limit) * scale + 8
        parts.append(f'<text x="{end:.1f}" y="{y + 15}">{value:.1f} {unit}</text>')
    height = 44 + len(rows) * (bar + gap) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#2a2420">\n'
        f'<rect width="{width}" height="{height}" fill="#fbf8f4"/>\n'
        f'<text x="16" y="26" font-size="15" font-weight="600">{title}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def grouped(
    title: str, engines: Sequence[str], rows: Sequence[tuple[str, Sequence[float | None]]]
) -> str:
    """Horizontal bars in groups: a label, then a value per engine, None where there is none."""
    top = max((v for _, values in rows for v in values if v is not None), default=1.0)
    bar, gap, start = 11, 12, 64
    scale = (WIDTH - LEFT - 70) / top
    parts = []
    x = 16
    for i, engine in enumerate(engines):
        parts.append(f'<rect x="{x}" y="40" width="11" height="11" rx="2" fill="{COLOURS[i]}"/>')
        parts.append(f'<text x="{x + 16}" y="50" font-size="12">{engine}</text>')
        x += 40 + 7 * len(engine)
    y = float(start)
    for label, values in rows:
        shown = [(i, value) for i, value in enumerate(values) if value is not None]
        height = bar * max(len(shown), 1)
        middle = y + height / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{label}</text>')
        for at, (i, value) in enumerate(shown):
            top_edge = y + at * bar
            width = max(value * scale, 1.0)
            parts.append(
                f'<rect x="{LEFT}" y="{top_edge:.0f}" width="{width:.1f}" height="{bar - 1}" '
                f'rx="2" fill="{COLOURS[i]}"/>'
            )
            parts.append(
                f'<text x="{LEFT + width + 5:.1f}" y="{top_edge + 9:.0f}" font-size="10">'
                f"{figure(value)}</text>"
            )
        y += height + gap
    return _svg(y + 4, title, parts)


def curve(title: str, points: Sequence[tuple[float, float]], units: tuple[str, str]) -> str:
    """Values over a quantity, both from 0, beside the straight line to the last point."""
    x0, x1, y0, y1 = 60.0, WIDTH - 60.0, 60.0, 320.0
    wide, tall = (max(p[axis] for p in points) for axis in (0, 1))

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return x0 + point[0] / wide * (x1 - x0), y1 - point[1] / tall * (y1 - y0)

    placed = [at(p) for p in points]
    line = " L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
    parts = [
        f'<path d="M{x0} {y0 - 12} V{y1} H{x1 + 12}" fill="none" stroke="{INK}"/>',
        f'<path d="M{x0} {y1} L{placed[-1][0]:.1f} {placed[-1][1]:.1f}" stroke="{PALE}" '
        'stroke-width="6"/>',
        f'<path d="M{line}" fill="none" stroke="{OURS}" stroke-width="2"/>',
    ]
    for (amount, value), (x, y) in zip(points, placed, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{OURS}"/>')
        if amount >= wide / 8:
            parts.append(
                f'<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="end" font-size="11">'
                f"{figure(value)} {units[1]}</text>"
            )
            parts.append(
                f'<text x="{x:.1f}" y="{y1 + 18:.0f}" text-anchor="middle" font-size="11">'
                f"{amount:,.0f}</text>"
            )
    parts.append(f'<text x="{x1 + 12:.0f}" y="{y1 + 36:.0f}" text-anchor="end">{units[0]}</text>')
    return _svg(y1 + 48, title, parts)


#: A ratio and its interval.
Mark = tuple[float, float, float]


def ratios(
    title: str, engines: Sequence[str], rows: Sequence[tuple[str, Sequence[Mark | None]]]
) -> str:
    """Bars from 1 to a ratio on a logarithmic scale, with their intervals; one per engine."""
    found = [m for _, marks in rows for m in marks if m is not None]
    low = min(0.9, *(m[1] for m in found)) / 1.05
    high = max(1.1, *(m[2] for m in found)) * 1.05
    left, bar, gap, y = LEFT + 90.0, 11, 12, 64.0
    scale = (WIDTH - left - 60) / math.log(high / low)

    def x(value: float) -> float:
        return left + math.log(value / low) * scale

    parts = []
    for i, engine in enumerate(engines):
        at = 16 + i * 120
        parts.append(f'<rect x="{at}" y="40" width="11" height="11" rx="2" fill="{COLOURS[i]}"/>')
        parts.append(f'<text x="{at + 16}" y="50" font-size="12">{engine}</text>')
    for label, marks in rows:
        height = bar * len(marks)
        parts.append(
            f'<text x="{left - 10:.0f}" y="{y + height / 2 + 4:.0f}" text-anchor="end" '
            f'font-size="12">{label}</text>'
        )
        for i, mark in enumerate(marks):
            if mark is None:
                continue
            ratio, least, most = mark
            edge, start = y + i * bar, min(x(1.0), x(ratio))
            middle = edge + (bar - 1) / 2
            parts.append(
                f'<rect x="{start:.1f}" y="{edge:.0f}" width="{abs(x(ratio) - x(1.0)):.1f}" '
                f'height="{bar - 1}" fill="{COLOURS[i]}"/>'
            )
            parts.append(
                f'<path d="M{x(least):.1f} {middle:.1f} H{x(most):.1f}" stroke="{INK}"/>'
                f'<text x="{max(x(most), x(1.0)) + 5:.1f}" y="{edge + 9:.0f}" font-size="10">'
                f"{figure(ratio)}</text>"
            )
        y += height + gap
    parts.append(f'<path d="M{x(1.0):.1f} 58 V{y - gap + 4:.0f}" stroke="{INK}" fill="none"/>')
    return _svg(y + 4, title, parts)


@dataclass(frozen=True)
class Point:
    """A kernel in a roofline: operations per byte, GFLOP/s, its engine, whether it is labelled."""

    label: str
    intensity: float
    gflops: float
    series: int
    named: bool = False


def roofline(
    title: str, peak: float, bandwidth: float, series: Sequence[str], points: Sequence[Point]
) -> str:
    """GFLOP/s over operations per byte, both logarithmic, under the machine's two limits."""
    x0, x1, y0, y1, height = 60.0, WIDTH - 20.0, 70.0, 370.0, 420
    knee = peak / bandwidth
    low = math.floor(math.log2(min(knee / 2, *(p.intensity for p in points))))
    high = math.ceil(math.log2(max(2 * knee, *(p.intensity for p in points))))
    floor_, roof = -1, math.ceil(math.log2(peak)) + 0.3

    def x(value: float) -> float:
        return x0 + (math.log2(value) - low) / (high - low) * (x1 - x0)

    def y(value: float) -> float:
        clipped = max(math.log2(value), floor_)
        return y1 - (clipped - floor_) / (roof - floor_) * (y1 - y0)

    parts = [
        f'<path d="M{x(2.0**low):.1f} {y(bandwidth * 2.0**low):.1f} L{x(knee):.1f} {y(peak):.1f} '
        f'L{x1:.1f} {y(peak):.1f}" fill="none" stroke="{INK}" stroke-width="1.5"/>',
        f'<text x="{x1:.0f}" y="{y(peak) - 6:.0f}" text-anchor="end" font-size="11">'
        f"multiply-add peak {peak:.1f} GFLOP/s</text>",
        f'<text x="{x(2.0**low) + 6:.0f}" y="{y1 - 8:.0f}" font-size="11">'
        f"memory {bandwidth:.1f} GB/s</text>",
    ]
    for power in range(low, high + 1):
        at = x(2.0**power)
        text = f"{2**power}" if power >= 0 else f"1/{2**-power}"
        parts.append(
            f'<text x="{at:.0f}" y="{y1 + 16:.0f}" text-anchor="middle" font-size="10">'
            f"{text}</text>"
        )
    for power in range(math.ceil(roof)):
        at = y(2.0**power)
        parts.append(
            f'<text x="{x0 - 8:.0f}" y="{at + 4:.0f}" text-anchor="end" font-size="10">'
            f"{2**power}</text>"
        )
        parts.append(f'<path d="M{x0:.0f} {at:.1f} H{x1:.0f}" stroke="{PALE}" stroke-width="0.5"/>')
    for i, name in enumerate(series):
        at = 16 + i * 140
        parts.append(f'<circle cx="{at + 5}" cy="46" r="4.5" fill="{COLOURS[i]}"/>')
        parts.append(f'<text x="{at + 16}" y="50" font-size="12">{name}</text>')
    for p in sorted(points, key=lambda p: -p.series):
        parts.append(
            f'<circle cx="{x(p.intensity):.1f}" cy="{y(p.gflops):.1f}" r="4" '
            f'fill="{COLOURS[p.series]}" fill-opacity="0.8"><title>{p.label}: '
            f"{figure(p.gflops)} GFLOP/s</title></circle>"
        )
        if p.named:
            parts.append(
                f'<text x="{x(p.intensity):.1f}" y="{y(p.gflops) + 15:.1f}" text-anchor="middle" '
                f'font-size="10">{p.label}</text>'
            )
    parts.append(
        f'<text x="{(x0 + x1) / 2:.0f}" y="{y1 + 34:.0f}" text-anchor="middle" font-size="11">'
        "operations per byte that must move; left axis GFLOP/s</text>"
    )
    return _svg(height, title, parts)


#: Ratios that an axis may be marked at.
RATIOS = (1, 1.05, 1.1, 1.2, 1.4, 1.6, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)

#: Width of the label of a ratio.
LABEL = 26

#: Points of one series: what is to be small, what is to be large.
Points = Sequence[tuple[float, float]]


def best(points: Points) -> list[tuple[float, float]]:
    """Those that no other point beats or equals in both, by the first number."""
    found: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not found or point[1] > found[-1][1]:
            found.append(point)
    return found


def frontier(
    title: str, series: Sequence[tuple[str, Points]], axes: tuple[str, str], colours: Sequence[int]
) -> str:
    """Every point of each series, and a line through its best ones.

    The first numbers are ratios, from 1 on a logarithmic scale; the second are shares from 0.
    colours: which of COLOURS each series has
    """
    x0, x1, y1, apart = 60.0, WIDTH - 24.0, 360.0, 4
    y0 = 64.0 + 18 * math.ceil(len(series) / apart)
    found = [p for _, points in series for p in points]
    low, high = min(1.0, *(x for x, _ in found)), max(2.0, *(x for x, _ in found)) * 1.05
    top = max(1.0, *(y for _, y in found)) * 1.03

    def x(value: float) -> float:
        return x0 + math.log(value / low) / math.log(high / low) * (x1 - x0)

    def y(value: float) -> float:
        return y1 - value / top * (y1 - y0)

    parts = [f'<path d="M{x0} {y0:.0f} V{y1} H{x1}" fill="none" stroke="{INK}"/>']
    shown = 0.0
    for tick in (t for t in RATIOS if low <= t <= high):
        if x(tick) < shown:
            continue
        shown = x(tick) + LABEL
        parts.append(
            f'<path d="M{x(tick):.1f} {y0:.0f} V{y1:.0f}" stroke="{PALE}" stroke-width="0.5"/>'
            f'<text x="{x(tick):.1f}" y="{y1 + 16:.0f}" text-anchor="middle" font-size="10">'
            f"{tick:g}</text>"
        )
    step = 0.25 if top < 1.5 else 0.5
    for share in (step * n for n in range(int(top / step) + 1)):
        parts.append(
            f'<path d="M{x0:.0f} {y(share):.1f} H{x1:.0f}" stroke="{PALE}" stroke-width="0.5"/>'
            f'<text x="{x0 - 8:.0f}" y="{y(share) + 4:.1f}" text-anchor="end" font-size="10">'
            f"{share:g}</text>"
        )
    for n, ((name, points), colour) in enumerate(zip(series, colours, strict=True)):
        ink, left, down = COLOURS[colour], 16 + n % apart * 154, 46 + n // apart * 18
        parts.append(
            f'<circle cx="{left + 5}" cy="{down}" r="4.5" fill="{ink}"/>'
            f'<text x="{left + 16}" y="{down + 4}" font-size="12">{name}</text>'
        )
        line = " L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in best(points))
        parts.append(f'<path d="M{line}" fill="none" stroke="{ink}" stroke-width="1.5"/>')
        for a, b in points:
            parts.append(
                f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4" fill="{ink}" fill-opacity="0.8">'
                f"<title>{name}: {figure(a)}, {figure(b)}</title></circle>"
            )
    parts.append(
        f'<text x="{(x0 + x1) / 2:.0f}" y="{y1 + 34:.0f}" text-anchor="middle" font-size="11">'
        f"{axes[0]}; left axis: {axes[1]}</text>"
    )
    return _svg(y1 + 46, title, parts)


def figure(value: float) -> str:
    """Three significant figures, no exponents."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"

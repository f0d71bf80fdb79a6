"""Pictures as text: SVG bars, bars in groups, rooflines, frontiers.

Input: labels and numbers.  Output: SVG.  It knows nothing of what was measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.report.tables import figure

WIDTH, LEFT = 640, 190
INK, PAPER, OURS, PALE = "#2a2420", "#fbf8f4", "#b8481c", "#e9c4b0"
#: One colour per engine or policy, Tilewright's first.
COLOURS = (
    OURS, "#3f6c8c", "#7a9a58", "#c9a23a", "#8a7ca8", "#2f8f83", "#b0627f", "#6b5a48", "#8fa3b5",
)  # fmt: skip
#: Height of a bar in a group, and what is between two groups.
BAR, GAP = 11, 12


# ---- parts ---------------------------------------------------------------------------------------


def title_of(picture: str) -> str:
    found = re.search("<title>(.*?)</title>", picture)
    if found is None:
        raise ValueError("a picture without a title")
    return found.group(1)


def _svg(height: float, title: str, parts: Iterable[str]) -> str:
    """A long title has smaller letters."""
    size = min(15, 930 / len(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="{PAPER}"/>\n'
        f'<text x="16" y="26" font-size="{size:.3g}" font-weight="600">{title}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, words: str, size: int = 13, anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{where} font-size="{size}">{words}</text>'


def _bar(x: float, y: float, width: float, height: float, fill: str) -> str:
    size = f'width="{width:.1f}" height="{height}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="2" fill="{fill}"/>'


def _line(path: str, stroke: str = INK, width: float = 1) -> str:
    return f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="{width:g}"/>'


def _dot(x: float, y: float, fill: str, tip: str = "") -> str:
    said = f"<title>{tip}</title>" if tip else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" fill-opacity="0.8">{said}</circle>'
    )


def _through(points: Iterable[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _legend(names: Sequence[str], colours: Sequence[str] = COLOURS) -> Iterator[str]:
    """As many names in a row as there is place for; a row is 18 high."""
    x, y = 16.0, 46.0
    for name, colour in zip(names, colours, strict=False):
        wide = 34 + 7 * len(name)
        if x + wide > WIDTH and x > 16:
            x, y = 16.0, y + 18
        yield _dot(x + 5, y, colour)
        yield _text(x + 16, y + 4, name, 12)
        x += wide


def _below(names: Sequence[str]) -> float:
    """Where a picture begins under its legend."""
    return 64 + 18 * sum('cx="21.0"' in part for part in _legend(names)) - 18


# ---- bars ----------------------------------------------------------------------------------------


def bars(title: str, rows: Sequence[tuple[str, float, float]], unit: str) -> str:
    """Horizontal bars: (label, value, limit); the limit is drawn as a lighter bar behind."""
    top = max(max(value, limit) for _, value, limit in rows) or 1.0
    scale, parts, y = (WIDTH - LEFT - 90) / top, [], 44
    for label, value, limit in rows:
        parts += [
            _text(LEFT - 10, y + 15, label, anchor="end"),
            _bar(LEFT, y, limit * scale, 22, PALE),
            _bar(LEFT, y, value * scale, 22, OURS),
            _text(LEFT + max(value, limit) * scale + 8, y + 15, f"{value:.1f} {unit}"),
        ]
        y += 22 + GAP
    return _svg(y + 8, title, parts)


def grouped(
    title: str, engines: Sequence[str], rows: Sequence[tuple[str, Sequence[float | None]]]
) -> str:
    """Horizontal bars in groups: a label, then a value per engine, None where there is none."""
    top = max((v for _, values in rows for v in values if v is not None), default=1.0)
    scale, parts, y = (WIDTH - LEFT - 70) / top, [*_legend(engines)], _below(engines)
    for label, values in rows:
        shown = [(i, value) for i, value in enumerate(values) if value is not None]
        height = BAR * max(len(shown), 1)
        parts.append(_text(LEFT - 10, y + height / 2 + 4, label, anchor="end"))
        for at, (i, value) in enumerate(shown):
            width = max(value * scale, 1.0)
            parts.append(_bar(LEFT, y + at * BAR, width, BAR - 1, COLOURS[i]))
            parts.append(_text(LEFT + width + 5, y + at * BAR + 9, figure(value), 10))
        y += height + GAP
    return _svg(y + 4, title, parts)


# ---- points --------------------------------------------------------------------------------------


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
    x0, x1, y0, y1 = 60.0, WIDTH - 20.0, 70.0, 370.0
    knee = peak / bandwidth
    low = math.floor(math.log2(min(knee / 2, *(p.intensity for p in points))))
    high = math.ceil(math.log2(max(2 * knee, *(p.intensity for p in points))))
    floor_, roof = -1, math.ceil(math.log2(peak)) + 0.3

    def x(value: float) -> float:
        return x0 + (math.log2(value) - low) / (high - low) * (x1 - x0)

    def y(value: float) -> float:
        clipped = max(math.log2(value), floor_)
        return y1 - (clipped - floor_) / (roof - floor_) * (y1 - y0)

    corners = [(x(2.0**low), y(bandwidth * 2.0**low)), (x(knee), y(peak)), (x1, y(peak))]
    parts = [
        *_legend(series),
        _line(_through(corners), width=1.5),
        _text(x1, y(peak) - 6, f"multiply-add peak {peak:.1f} GFLOP/s", 11, "end"),
        _text(x(2.0**low) + 6, y1 - 8, f"memory {bandwidth:.1f} GB/s", 11),
    ]
    for power in range(low, high + 1):
        said = f"{2**power}" if power >= 0 else f"1/{2**-power}"
        parts.append(_text(x(2.0**power), y1 + 16, said, 10, "middle"))
    for power in range(math.ceil(roof)):
        at = y(2.0**power)
        parts.append(_text(x0 - 8, at + 4, f"{2**power}", 10, "end"))
        parts.append(_line(f"M{x0:.0f} {at:.1f} H{x1:.0f}", PALE, 0.5))
    for p in sorted(points, key=lambda p: -p.series):
        tip = f"{p.label}: {figure(p.gflops)} GFLOP/s"
        parts.append(_dot(x(p.intensity), y(p.gflops), COLOURS[p.series], tip))
        if p.named:
            parts.append(_text(x(p.intensity), y(p.gflops) + 15, p.label, 10, "middle"))
    axes = "operations per byte that must move; left axis GFLOP/s"
    return _svg(420, title, [*parts, _text((x0 + x1) / 2, y1 + 34, axes, 11, "middle")])


#: Ratios that an axis may be marked at, and the width of such a mark.
RATIOS = (1, 1.05, 1.1, 1.2, 1.4, 1.6, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
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
    names, inks = [name for name, _ in series], [COLOURS[colour] for colour in colours]
    x0, x1, y0, y1 = 60.0, WIDTH - 24.0, _below(names) + 12, 360.0
    found = [p for _, points in series for p in points]
    low, high = min(1.0, *(x for x, _ in found)), max(2.0, *(x for x, _ in found)) * 1.05
    top = max(1.0, *(y for _, y in found)) * 1.03

    def at(point: tuple[float, float]) -> tuple[float, float]:
        across = math.log(point[0] / low) / math.log(high / low)
        return x0 + across * (x1 - x0), y1 - point[1] / top * (y1 - y0)

    parts = [*_legend(names, inks), _line(f"M{x0} {y0:.0f} V{y1} H{x1}")]
    free = 0.0
    for tick in (t for t in RATIOS if low <= t <= high):
        x, _ = at((tick, 0))
        if x >= free:
            free = x + LABEL
            parts.append(_line(f"M{x:.1f} {y0:.0f} V{y1:.0f}", PALE, 0.5))
            parts.append(_text(x, y1 + 16, f"{tick:g}", 10, "middle"))
    step = 0.25 if top < 1.5 else 0.5
    for share in (step * n for n in range(int(top / step) + 1)):
        _, y = at((1, share))
        parts.append(_line(f"M{x0:.0f} {y:.1f} H{x1:.0f}", PALE, 0.5))
        parts.append(_text(x0 - 8, y + 4, f"{share:g}", 10, "end"))
    for (name, points), ink in zip(series, inks, strict=True):
        parts.append(_line(_through(map(at, best(points))), ink, 1.5))
        parts += (_dot(*at(p), ink, f"{name}: {figure(p[0])}, {figure(p[1])}") for p in points)
    said = f"{axes[0]}; left axis: {axes[1]}"
    return _svg(y1 + 46, title, [*parts, _text((x0 + x1) / 2, y1 + 34, said, 11, "middle")])

"""Markdown tables of the rows of records, by columns that are written down.

Input: rows as the JSON files have them.  Output: text.  It knows nothing of what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from benchmarks.records import Stored

#: A key with a format, such as `ms*1000:,.1f`, `share:.0%` or `gain:.2f×`; or what makes the cell.
Column = str | Callable[[Stored], str]
#: By their heads.
Columns = Mapping[str, Column]

DASH = "–"
#: With more columns, a table of one or two rows is turned: a line per column.
MOST_COLUMNS = 8
#: What a number looks like in a cell: a column of these is right-aligned.
NUMBER = re.compile(r"[*≥≤±+-]*[\d.]|never|refused|inf")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Without columns in which no row says anything."""
    kept = [n for n in range(len(head)) if any(row[n] not in ("", DASH) for row in rows)]
    lines = [[head[n] for n in kept], [_rule([row[n] for row in rows]) for n in kept]]
    lines += [[row[n] for n in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rule(cells: Sequence[str]) -> str:
    said = [cell for cell in cells if cell not in ("", DASH)]
    return "---:" if all(NUMBER.match(cell) for cell in said) else "---"


def listed(rows: Iterable[Stored], columns: Columns, *below: Sequence[str]) -> str:
    """A line per row, then those `below`; a line per column where few rows have many."""
    lines = [[shown(row, column) for column in columns.values()] for row in rows]
    if below or len(lines) > 2 or len(columns) <= MOST_COLUMNS:
        return table([*columns], [*lines, *below])
    head, *turned = zip(columns, *lines, strict=True)
    return table(head, [line for line in turned if any(cell != DASH for cell in line[1:])])


def crossed(
    rows: Sequence[Stored], line: str, column: str, cell: Column, *below: Sequence[str]
) -> str:
    """A line per value of a key, a column per value of another; of equals the last row counts."""
    heads = list(dict.fromkeys(str(row[column]) for row in rows))
    found = {(row[line], str(row[column])): shown(row, cell) for row in rows}
    names = dict.fromkeys(row[line] for row in rows)
    lines = [[str(name), *(found.get((name, head), DASH) for head in heads)] for name in names]
    return table([line, *heads], [*lines, *below])


def shown(row: Stored, column: Column) -> str:
    """The cell of a column; a dash where the row does not have it."""
    if not isinstance(column, str):
        return column(row)
    path, _, form = column.partition(":")
    path, _, factor = path.partition("*")
    value: Any = row
    for key in path.split("."):
        value = None if value is None else value.get(key)
    return told(value if value is None or not factor else value * float(factor), form)


def told(value: Any, form: str = "") -> str:
    """A value in a format with its unit behind; three decimals of a float without one."""
    if value is None:
        return DASH
    if not form:
        return str(round(value, 3) if isinstance(value, float) else value)
    spec = re.match(r"[+,.\d]*[a-z%]?", form)[0]  # type: ignore[index]  # it always matches
    exponent = spec.endswith("g") and abs(value) >= 1000
    return format(value, ",.0f" if exponent else spec).replace("%", " %") + form[len(spec) :]


def figure(value: float) -> str:
    """Three significant figures, no exponents."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def mean(found: Iterable[float | None], form: str = ".2f×") -> str:
    """The geometric mean and of how many."""
    known = [value for value in found if value is not None]
    return f"{told(geometric_mean(known), form)} ({len(known)})" if known else DASH

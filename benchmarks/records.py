"""Records of benchmarks: their rows chosen and grouped, and their text, a line a row.

Input: records, as `common.save` makes them.  Output: rows and values; JSON whose changes can be
read by row.  It changes no value, and it measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: A measurement as a benchmark makes it: names, and values as JSON has them.  No field is read
#: again: what is computed with has a type of its own.
Row = dict[str, object]
#: The same as a report reads it from a file, a line each: of any version, so without types.
Stored = dict[str, Any]
#: A whole file: date, commit, machine, versions, and the rows.
Record = Mapping[str, Any]
Records = Mapping[str, Record]


def rows(record: Record, **where: Any) -> list[Stored]:
    """Those with these values; a tuple stands for any of its own."""
    wanted = {key: v if isinstance(v, tuple) else (v,) for key, v in where.items()}
    return [r for r in record["rows"] if all(r.get(key) in v for key, v in wanted.items())]


def values(record: Record, key: str, **where: Any) -> list[Any]:
    """What those rows have under a key, where they have it."""
    return [r[key] for r in rows(record, **where) if r.get(key) is not None]


def by(found: Iterable[Stored], *keys: str) -> dict[tuple[Any, ...], list[Stored]]:
    """Rows in groups of equal values of these keys, in order."""
    groups: dict[tuple[Any, ...], list[Stored]] = {}
    for row in found:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


# ---- text ----------------------------------------------------------------------------------------


def text(record: Record) -> str:
    """A list of objects has one on each line; everything else lies on the line of its key."""
    facts = (f"{json.dumps(key)}: {_value(value)}" for key, value in record.items())
    return "{" + ",\n".join(facts) + "}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def write(path: Path, record: Record) -> None:
    """At once: whoever reads meanwhile has the old record or the new one."""
    part = path.with_suffix(".part")
    part.write_text(text(record))
    part.replace(path)

"""Records of benchmarks as text: JSON with a line for each fact and one for each row.

Input: a record, as `common.save` makes it.  Output: its text, whose changes can be read by row.  It
changes no value, and it measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def text(record: Mapping[str, object]) -> str:
    """A list of objects has one on each line; everything else lies on the line of its key."""
    facts = (f"{json.dumps(key)}: {_value(value)}" for key, value in record.items())
    return "{" + ",\n".join(facts) + "}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def write(path: Path, record: Mapping[str, object]) -> None:
    """At once: whoever reads meanwhile has the old record or the new one."""
    part = path.with_suffix(".part")
    part.write_text(text(record))
    part.replace(path)

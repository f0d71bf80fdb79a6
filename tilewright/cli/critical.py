"""Critical models of `corun` as its arguments name them, and what a run found of each.

Input: text of options, results of a session.  Output: `CriticalChoice`s, records for JSON and
tables.  It runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tilewright.base.errors import UsageError
from tilewright.cli.output import pairs, table

if TYPE_CHECKING:
    from tilewright.elastic.result import CorunResult, CriticalResult

#: What may follow a further model, and how it is read.
OWN: dict[str, Callable[[str], Any]] = {
    "max_slowdown": float,
    "deadline": float,
    "rate": float,
    "priority": int,
}


@dataclass(frozen=True)
class CriticalChoice:
    """deadline: milliseconds;  rate: requests per second, 0: one after the other"""

    path: Path
    max_slowdown: float
    deadline: float | None
    rate: float
    priority: int = 0

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if not self.max_slowdown > 1:
            raise UsageError(
                f"max_slowdown cannot be {self.max_slowdown}",
                hint="Give a number above 1", model=self.path,
            )  # fmt: skip
        if self.deadline is not None and not self.deadline > 0:
            raise UsageError(
                f"A deadline cannot be {self.deadline} milliseconds",
                hint="Give a number above 0", model=self.path,
            )  # fmt: skip
        if not self.rate >= 0:
            raise UsageError(
                f"The rate cannot be {self.rate} requests per second",
                hint="Give 0 or more", model=self.path,
            )  # fmt: skip


def further(text: str, usual: CriticalChoice) -> CriticalChoice:
    """FILE[,NAME=VALUE...]; what is not named is as of the first model.  Raises UsageError."""
    path, *parts = text.split(",")
    own = {}
    for part in parts:
        name, _, value = part.partition("=")
        try:
            own[name] = OWN[name](value)
        except (KeyError, ValueError) as error:
            raise UsageError(
                f"{part!r} is not an option of a critical model",
                hint=f"Give FILE,NAME=VALUE,...; names are {', '.join(OWN)}",
                model=path,
            ) from error
    return replace(usual, path=Path(path), **own)


def facts(result: CorunResult, models: Sequence[Path]) -> dict[str, object]:
    """What a run came to; times in microseconds, the rest are ratios.

    One critical model's facts stand beside the others; of several each has a record of its own.
    """
    normal = result.normal_share
    each = [_facts(one) for one in result.critical]
    own: dict[str, object] = each[0] if len(each) == 1 else {
        "critical": [{"model": path.name, **one} for path, one in zip(models, each, strict=True)]
    }  # fmt: skip
    return own | {
        "normal_inferences": sum(result.inferences),
        "normal_share": round(normal, 4),
        "normal_share_of_possible": round(normal / max(1e-9, 1 - result.duty), 4),
        "decision_us": round(result.decision_us, 1),
        "seconds": round(result.seconds, 2),
    }


def _facts(one: CriticalResult) -> dict[str, object]:
    service, waited = one.service, one.waited
    return {
        "requests": len(one.answered),
        "solo_us": round(one.solo_us, 1),
        "max_slowdown": one.max_slowdown,
        "p50": round(service.p50, 4),
        "p99": round(service.p99, 4),
        "p999": round(service.p999, 4),
        "p50_with_waiting": round(waited.p50, 4),
        "p99_with_waiting": round(waited.p99, 4),
        "p999_with_waiting": round(waited.p999, 4),
        "over_bound": one.over_bound,
        "over_by_waiting": one.over_by_waiting,
        "misses": one.missed,
        "overdue": one.overdue,
        "bound_kept": one.bound_kept,
        "normal_ended": one.gave_up,
        "curves_corrected": [
            {
                "budgets": notice.budgets,
                "requests": notice.requests,
                "over_bound": notice.over,
                "predicted": round(notice.predicted, 4),
                "found": round(notice.found, 4),
            }
            for notice in one.noticed
        ],
        "solo_changed": [
            {"was_us": round(found.was_us, 1), "now_us": round(found.now_us, 1)}
            for found in one.recalibrated
        ],
    }


def view(found: dict[str, Any]) -> Table:
    """The same for people: several critical models side by side, each in a column."""
    several = found.get("critical")
    if several is None:
        return pairs({**found, **{name: said(found) for name, said in SAID.items()}})
    rows = [(name, *(one[name] for one in several)) for name in several[0] if name != "model"]
    rows = [
        (name, *map(SAID[name], several)) if name in SAID else (name, *cells)
        for name, *cells in rows
    ]
    shared = [(name, value) for name, value in found.items() if name != "critical"]
    blank = [""] * (len(several) - 1)
    return table(
        ("", *(one["model"] for one in several)), [*rows, *((n, v, *blank) for n, v in shared)]
    )


def _corrected(one: dict[str, Any]) -> str:
    """Of curves that promised too much; one that nothing helps is the last."""
    corrected = one["curves_corrected"]
    if not corrected:
        return "none"
    last = corrected[-1]
    said = f"{len(corrected)}, at last {last['predicted']} to {last['found']}"
    ended = ": the bound cannot be kept, normal work has ended"
    return said + ended if one["normal_ended"] else said


def _changed(one: dict[str, Any]) -> str:
    """Of the time alone, which changes with a device's clock."""
    changes = one["solo_changed"]
    if not changes:
        return "never"
    last = changes[-1]
    return f"{len(changes)} times, at last {last['was_us']} to {last['now_us']}"


#: Lists that people read as a sentence.
SAID = {"curves_corrected": _corrected, "solo_changed": _changed}

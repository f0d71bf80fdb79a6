"""A CUDA source with elastic forms beside each kernel that can have them.

Input: text of a file.  Output: the same text with more in it, and a report of each kernel.  The
source is not run, not preprocessed, and its own kernels stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import NotElastic
from tilewright.elastic.transform.device import device_part
from tilewright.elastic.transform.forms import PRELUDE, forms
from tilewright.elastic.transform.module import Module, module
from tilewright.elastic.transform.padding import Padding, padding
from tilewright.elastic.transform.rewrite import Rewriter
from tilewright.elastic.transform.rules import Plan, Reason, Rules
from tilewright.elastic.transform.source import Edit, Place, read

_ATOMIC = re.compile(r"\batomic[A-Z]\w*")
_CLOCK = re.compile(r"\bclock(?:64)?\b|%+(?:globaltimer|smid|clock)|__nv_isClusterLaunch")


@dataclass(frozen=True)
class Options:
    """fold:   one thread may do the work of several of a tile: blocks of any size
    pad:    rows of shared arrays that threads read by columns get one element more
    device: only what a GPU's compiler needs is written, without the code of the host
    """

    fold: bool = False
    pad: bool = False
    device: bool = False


@dataclass(frozen=True)
class KernelReport:
    """reasons: why it has no elastic forms; none where it has;  notes: what to know of them"""

    name: str
    place: Place
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()

    @property
    def elastic(self) -> bool:
        return not self.reasons

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.name,
            "file": self.place.file,
            "line": self.place.line,
            "elastic": self.elastic,
            "forms": [f"{self.name}_elastic", f"{self.name}_slice"] if self.elastic else [],
            "reasons": [
                {"file": r.place.file, "line": r.place.line, "why": r.why} for r in self.reasons
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Transformed:
    """plain: the same text without the elastic forms"""

    text: str
    plain: str
    kernels: tuple[KernelReport, ...]

    def require(self) -> None:
        """Raises NotElastic if no kernel has elastic forms."""
        if any(k.elastic for k in self.kernels):
            return
        if not self.kernels:
            raise NotElastic("there is no kernel in the source", hint="Give a file with __global__")
        first = self.kernels[0]
        reason = first.reasons[0]
        raise NotElastic(
            f"no kernel can be made elastic; {first.name}: {reason.why}",
            hint="docs/elastic-transform.md tells what is accepted; --json lists all kernels",
            file=reason.place.file,
            line=reason.place.line,
            kernels=len(self.kernels),
        )


def transform(
    text: str, name: str, folders: Sequence[Path] = (), options: Options | None = None
) -> Transformed:
    """Elastic forms for the kernels of a source.

    name: of the file, for reports;  folders: where headers are looked for; others stay includes
    Raises UsageError if the parser is not installed.
    """
    chosen = options or Options()
    source = read(text, name, folders, chosen.device)
    found = module(source)
    rules = Rules(found, chosen.fold)
    plans = [rules.plan(kernel) for kernel in found.kernels]
    kept = [plan for plan in plans if not plan.reasons]
    rewriter = Rewriter(rules, kept)
    added: list[tuple[int, str]] = list(rewriter.copies()) if kept else []
    reports = []
    for plan in plans:
        padded = padding(found, plan.function) if chosen.pad and not plan.reasons else Padding()
        if not plan.reasons:
            body = rewriter.body(plan, list(padded.edits))
            added.append((plan.function.whole.end_byte, forms(source, plan, body, chosen.fold)))
        reports.append(_report(found, plan, padded))
    edits = [Edit(at, at, more) for at, more in sorted(added, key=lambda a: a[0])]
    taken = device_part(found) if chosen.device else []
    size = len(source.text)
    made = source.edited(0, size, edits + taken)
    plain = source.edited(0, size, taken)
    return Transformed((PRELUDE if kept else "") + made, plain, tuple(reports))


def _report(found: Module, plan: Plan, padded: Padding) -> KernelReport:
    kernel = plan.function
    place = found.source.place(kernel.node)
    if plan.reasons:
        return KernelReport(kernel.name, place, plan.reasons)
    return KernelReport(kernel.name, place, (), (*_notes(found, plan), *padded.notes))


def _notes(found: Module, plan: Plan) -> list[str]:
    text = "".join(found.source.of(f.body) for f in found.bodies(plan.function))
    notes = []
    if _ATOMIC.search(text):
        notes.append("atomics: their order may change")
    if plan.waits:
        notes.append("threads that return early meet the barriers of the others")
    if plan.live:
        notes.append("masks of lanes leave out those that returned")
    if _CLOCK.search(text):
        notes.append("clocks and the number of the multiprocessor are the worker's")
    return notes


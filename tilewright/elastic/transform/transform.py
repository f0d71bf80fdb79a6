"""A CUDA source with elastic forms beside each kernel that can have them.

Input: text of a file.  Output: the same text with more in it, and a report of each kernel.  The
source is not run, not preprocessed, and its own kernels stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.errors import NotElastic, UsageError
from tilewright.elastic.transform.device import device_part
from tilewright.elastic.transform.forms import MARK, PRELUDE, forms
from tilewright.elastic.transform.module import CudaSource, module
from tilewright.elastic.transform.padding import Padding, padding
from tilewright.elastic.transform.rewrite import Copier
from tilewright.elastic.transform.rules import Reason, Rulebook, Verdict
from tilewright.elastic.transform.source import Edit, SourceLine, read

#: Of a block, on every device.
MOST_THREADS = 1024
_ATOMIC = re.compile(r"\batomic[A-Z]\w*")
_CLOCK = re.compile(r"\bclock(?:64)?\b|%+(?:globaltimer|smid|clock)|__nv_isClusterLaunch")


@dataclass(frozen=True)
class ElasticOptions:
    """fold:   one thread may do the work of several of a tile: blocks of any size
    pad:    rows of shared arrays that threads read by columns get one element more
    device: only what a GPU's compiler needs is written, without the code of the host
    threads: of kernels by name, the most threads of a block: the compiler gives a form whose blocks
            are small more registers.  A kernel's own `__launch_bounds__` comes first
    """

    fold: bool = False
    pad: bool = False
    device: bool = False
    threads: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelReport:
    """reasons: why it has no elastic forms; none where it has;  notes: what to know of them"""

    name: str
    place: SourceLine
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


def is_ours(path: Path) -> bool:
    """Whether `transform` made the file."""
    with path.open(errors="replace") as file:
        return file.read(len(MARK)) == MARK


def transform(
    text: str, name: str, folders: Sequence[Path] = (), options: ElasticOptions | None = None
) -> Transformed:
    """Elastic forms for the kernels of a source.

    name: of the file, for reports;  folders: where headers are looked for; others stay includes
    Raises UsageError if the parser is not installed, the source has elastic forms already, or has
    no kernel with a name in `options.threads`.
    """
    if text.startswith(MARK):
        raise UsageError(f"{name} has elastic forms already", hint="Give the source of it")
    chosen = options or ElasticOptions()
    source = read(text, name, folders, chosen.device)
    found = module(source)
    _check(found, chosen.threads)
    rules = Rulebook(found, chosen.fold)
    verdicts = [rules.verdict(kernel) for kernel in found.kernels]
    kept = [verdict for verdict in verdicts if not verdict.reasons]
    rewriter = Copier(rules, kept)
    added: list[tuple[int, str]] = list(rewriter.copies()) if kept else []
    reports = []
    for verdict in verdicts:
        padded = (
            padding(found, verdict.function) if chosen.pad and not verdict.reasons else Padding()
        )
        if not verdict.reasons:
            body = rewriter.body(verdict, list(padded.edits))
            threads = chosen.threads.get(verdict.function.name)
            made_forms = forms(source, verdict, body, chosen.fold, threads)
            added.append((verdict.function.whole.end_byte, made_forms))
        reports.append(_report(found, verdict, padded))
    reports += _unseen(found)
    edits = [Edit(at, at, more) for at, more in sorted(added, key=lambda a: a[0])]
    taken = device_part(found) if chosen.device else []
    size = len(source.text)
    made = source.edited(0, size, edits + taken)
    plain = source.edited(0, size, taken)
    return Transformed((PRELUDE if kept else "") + made, plain, tuple(reports))


def _check(found: CudaSource, threads: Mapping[str, int]) -> None:
    names = sorted({kernel.name for kernel in found.kernels})
    for name, count in threads.items():
        if name not in names:
            raise UsageError(
                f"the source has no kernel {name}", hint="Name one of its kernels",
                kernels=names,
            )  # fmt: skip
        if not 1 <= count <= MOST_THREADS:
            raise UsageError(
                f"a block cannot have {count} threads", hint=f"It has 1 to {MOST_THREADS}",
                kernel=name,
            )  # fmt: skip


def _report(found: CudaSource, verdict: Verdict, padded: Padding) -> KernelReport:
    kernel = verdict.function
    place = found.source.place(kernel.node)
    if verdict.reasons:
        return KernelReport(kernel.name, place, verdict.reasons)
    return KernelReport(kernel.name, place, (), (*_notes(found, verdict), *padded.notes))


def _unseen(found: CudaSource) -> Iterator[KernelReport]:
    """Kernels that have no definition of their own in the tree."""
    source = found.source
    for node in found.lost:
        after = source.between(node.end_byte, node.end_byte + 400)
        name = re.search(r"(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", "", after))
        place = source.place(node)
        why = "the text of this kernel is not understood"
        yield KernelReport(name[1] if name else "?", place, (Reason(place, why),))
    for name_, macros in found.macros.items():
        for macro in macros:
            if "__global__" in macro.words:
                place = source.place(macro.node)
                why = "kernels that a macro marks or makes are not seen"
                yield KernelReport(name_, place, (Reason(place, why),))


def _notes(found: CudaSource, verdict: Verdict) -> list[str]:
    text = "".join(found.source.of(f.body) for f in found.bodies(verdict.function))
    notes = []
    if _ATOMIC.search(text):
        notes.append("atomics: their order may change")
    if verdict.live:
        notes.append("masks of lanes leave out those that returned")
    if _CLOCK.search(text):
        notes.append("clocks and the number of the multiprocessor are the worker's")
    return notes

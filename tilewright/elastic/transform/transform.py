"""Adds elastic forms to a CUDA source, next to each kernel that can have them.

Input: text of a file.  Output: the same text with additions, and a report on each kernel.  The
source is not run or preprocessed, and its own kernels are not changed.  What only the host's
compiler needs is removed for NVRTC and for kernels on the CPU (`device_part`); headers that were
not found are included where they exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import NotElastic, UsageError
from tilewright.elastic.transform.copies import Copier
from tilewright.elastic.transform.cuda_source import (
    Edit,
    Headers,
    Source,
    SourceLine,
    headers,
    included,
    inside,
    read,
)
from tilewright.elastic.transform.definitions import whole
from tilewright.elastic.transform.eligibility import Reason, Verdict, rulebooks
from tilewright.elastic.transform.forms import MARK, PRELUDE, forms
from tilewright.elastic.transform.identity import Identity
from tilewright.elastic.transform.modules import SourceModule, modules
from tilewright.elastic.transform.padding import Padding, padding
from tilewright.elastic.transform.pasting import units_from
from tilewright.elastic.transform.proof import RewriteCheck
from tilewright.elastic.transform.refusals import WITHIN_WHY, Refusals
from tilewright.elastic.transform.unknown_code import missing_names
from tilewright.elastic.transform.word_index import COPIED, SourceUnit, index

if TYPE_CHECKING:
    from tree_sitter import Node

#: The most threads of a block, on every device.
MOST_THREADS = 1024
_IN_HEADER = "a kernel in a header, which stays as it is: give tilewright elastic this file"
_ATOMIC = re.compile(r"\batomic[A-Z]\w*")
_CLOCK = re.compile(r"\bclock(?:64)?\b|%+(?:globaltimer|smid|clock)|__nv_isClusterLaunch")


@dataclass(frozen=True)
class ElasticOptions:
    """fold:   one thread may do the work of several threads of a tile, so blocks may have any size
    pad:    rows of shared arrays whose columns threads read get one more element
    device: write only the code for the GPU's compiler, without host code
    threads: the most threads of a block, by kernel name.  With small blocks the compiler gives a
             form more registers.  A kernel's own `__launch_bounds__` takes precedence.
    """

    fold: bool = False
    pad: bool = False
    device: bool = False
    threads: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelReport:
    """reasons: why it has no elastic forms; () if it has;  notes: remarks on its forms"""

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
            hint="See docs/elastic-transform.md for what is accepted; --json lists all kernels",
            file=reason.place.file,
            line=reason.place.line,
            kernels=len(self.kernels),
        )


def is_ours(path: Path) -> bool:
    """True if `transform` made the file."""
    with path.open(errors="replace") as file:
        return file.read(len(MARK)) == MARK


def transform(
    text: str, name: str, folders: Sequence[Path] = (), options: ElasticOptions | None = None
) -> Transformed:
    """Adds elastic forms to the kernels of a source.

    name: of the file, for reports;  folders: with headers, which are only read

    Raises UsageError if the parser is not installed, or if the source is not text, already has
    elastic forms, or has no kernel with a name in `options.threads`.
    """
    if text.startswith(MARK):
        raise UsageError(f"{name} has elastic forms already", hint="Give the source of it")
    chosen = options or ElasticOptions()
    source = read(text, name)
    if (why := unread(source)) is not None:
        return Transformed(text, text, tuple(_by_words(source, why)))
    around = headers(source, folders)
    read_ones = (source, *(header for header in around.found if unread(header) is None))
    every = modules(read_ones, lacking=bool(missing_names(around)))
    found = every[0]
    _check(found, chosen.threads)
    verdicts, copier, units = _judged(every, around, chosen.fold)
    kept = [verdict for verdict in verdicts if not verdict.reasons]
    added: list[tuple[int, str]] = list(copier.copies(units)) if kept else []
    reports = []
    for verdict in verdicts:
        padded = (
            padding(found, verdict.function) if chosen.pad and not verdict.reasons else Padding()
        )
        if not verdict.reasons:
            body = copier.body(verdict, list(padded.edits))
            threads = chosen.threads.get(verdict.function.name)
            made_forms = forms(source, verdict, body, chosen.fold, threads)
            added.append((verdict.function.whole.end_byte, made_forms))
        reports.append(_report(found, verdict, padded))
    reports += _unseen(found)
    reports += (
        KernelReport(kernel, place, (Reason(place, _IN_HEADER),))
        for header in around.found
        for place, kernel in named_kernels(header)
    )
    edits = [Edit(at, at, more) for at, more in sorted(added, key=lambda a: a[0])]
    taken = device_part(found, around) if chosen.device else []
    size = len(source.text)
    made = source.edited(0, size, edits + taken)
    plain = source.edited(0, size, taken)
    return Transformed((PRELUDE if kept else "") + made, plain, tuple(reports))


def _judged(
    every: Sequence[SourceModule], around: Headers, fold: bool
) -> tuple[list[Verdict], Copier, list[SourceUnit]]:
    """Verdicts on all kernels, and the units to copy for the accepted ones."""
    found = every[0]
    books = rulebooks(every, fold)
    rules = books[found.source]
    verdicts = [rules.verdict(kernel) for kernel in found.own.kernels]
    known = index(every)
    live = frozenset(v.function.whole.start_byte for v in verdicts if v.live)
    identity = Identity(known, rules.identities, live)
    copier = Copier(found, identity, fold)
    proof = RewriteCheck(identity, copier)
    refusals = Refusals((found.source, *around.found), books, around, identity, proof)
    units = {unit.start: unit for unit in known.units
             if unit.kind == "kernel" and unit.source is found.source}  # fmt: skip
    reached = {start: units_from(known, unit) for start, unit in units.items()}
    made = []
    copied: dict[SourceUnit, None] = {}
    for verdict in verdicts:
        start = verdict.function.whole.start_byte
        unit = units.get(start)
        reasons = list(verdict.reasons)
        if unit is None:
            place = found.source.place(verdict.function.node)
            reasons.append(Reason(place, WITHIN_WHY))
        else:
            reasons += refusals.reasons(unit, reached[start])
        made.append(replace(verdict, reasons=tuple(dict.fromkeys(reasons))))
    refused = {v.function.name: v.reasons[0] for v in made if v.reasons}
    made = [_with_namesakes(verdict, refused) for verdict in made]
    for verdict in made:
        if not verdict.reasons:
            led = reached[verdict.function.whole.start_byte]
            copied |= dict.fromkeys(u for u in led if u in identity.units and u.kind in COPIED)
    return made, copier, sorted(copied, key=lambda unit: unit.start)


def _with_namesakes(verdict: Verdict, refused: Mapping[str, Reason]) -> Verdict:
    """The verdict with the reasons of its namesakes: a template and its specialisations get forms
    together or not at all."""
    reason = refused.get(verdict.function.name)
    if reason is None or verdict.reasons:
        return verdict
    why = Reason(reason.place, "a kernel of the same name is refused")
    return replace(verdict, reasons=(why,))


def unread(source: Source) -> Reason | None:
    """Why a source is not parsed; None if it is."""
    found = source.problem
    return None if found is None else Reason(source.line(found.at), found.why)


def _by_words(source: Source, why: Reason) -> Iterator[KernelReport]:
    """The kernels of a source that is not parsed, all refused."""
    for place, name in named_kernels(source):
        yield KernelReport(name, place, (why,))


def _check(found: SourceModule, threads: Mapping[str, int]) -> None:
    names = sorted({kernel.name for kernel in found.own.kernels})
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


def _report(found: SourceModule, verdict: Verdict, padded: Padding) -> KernelReport:
    kernel = verdict.function
    place = found.source.place(kernel.node)
    if verdict.reasons:
        return KernelReport(kernel.name, place, verdict.reasons)
    return KernelReport(kernel.name, place, (), (*_notes(found, verdict), *padded.notes))


def _unseen(found: SourceModule) -> Iterator[KernelReport]:
    """Kernels that have no definition of their own in the tree."""
    source = found.source
    names = dict(named_kernels(source))
    marks = {node.start_byte for node in inside(source.root, tokens=True)
             if node.type == "__global__"}  # fmt: skip
    starts = [token.start for token in source.lexed.tokens
              if token.text == "__global__" and token.start not in marks]  # fmt: skip
    places = [*map(source.place, found.own.lost), *map(source.line, starts)]
    for place in places:
        why = "the parser could not read this kernel"
        yield KernelReport(names.get(place, "?"), place, (Reason(place, why),))
    for directive in source.lexed.directives:
        words = [token.text for token in directive.tokens]
        if directive.name == "define" and "__global__" in words[1:]:
            place = source.line(directive.start)
            why = "kernels that a macro marks or makes are not seen"
            yield KernelReport(words[0], place, (Reason(place, why),))


def named_kernels(source: Source) -> Iterator[tuple[SourceLine, str]]:
    """The line and name of each marked kernel, found by words only."""
    tokens = source.lexed.tokens
    for at, token in enumerate(tokens):
        if token.text != "__global__":
            continue
        name = "?"
        for before, after in pairwise(tokens[at : at + 40]):
            if after.text == "(" and before.kind == "word" and not before.text.startswith("__"):
                name = before.text
                break
            if after.text in (";", "{", "}"):
                break
        yield source.line(token.start), name


def _notes(found: SourceModule, verdict: Verdict) -> list[str]:
    text = "".join(found.source.of(f.body) for f in found.bodies(verdict.function))
    notes = []
    if _ATOMIC.search(text):
        notes.append("atomics: their order may change")
    if verdict.live:
        notes.append("masks of lanes leave out those that returned")
    if _CLOCK.search(text):
        notes.append("clocks and the number of the multiprocessor are the worker's")
    return notes


#: Headers that device code needs and that its compiler has.
_KEPT = re.compile(r"cuda_fp16|cuda_bf16|cooperative_groups|mma\.h|cuda/|cub/|crt/|cuda_pipeline")
_SCOPES = frozenset({"function_definition", "lambda_expression", "compound_statement"})
#: Definitions other than functions, and the places where they may be removed.
_OTHERS = ("declaration", "expression_statement", "using_declaration", "struct_specifier",
           "class_specifier", "type_definition", "alias_declaration",
           "template_instantiation")  # fmt: skip
_PLACES = ("translation_unit", "preproc_if", "preproc_ifdef", "preproc_else", "declaration_list",
           "namespace_definition", "linkage_specification")  # fmt: skip
#: Text of declarations that the device may need.
_NEEDED = re.compile(
    r"__device__|__constant__|__managed__|__global__|__shared__|\bconst\b|\bconstexpr\b"
    r"|\bstruct\b|\bclass\b|\benum\b|\bunion\b|\btypedef\b|\busing \w+\s*=|cooperative_groups"
    r"|nvcuda"
)
#: Text of declarations that only the host's library has.
_HOST = re.compile(r"\bstd::(?!(?:numeric_limits|is_|enable_if|conditional)\b)")


def device_part(module: SourceModule, headers: Headers) -> list[Edit]:
    edits = [Edit(node.start_byte, node.end_byte, _lines(module, node)) for node in _hosts(module)]
    for source, directive in headers.missing:
        name = included(directive.tokens)
        if source is module.source and name and not _KEPT.search(name):
            text = module.source.between(directive.start, directive.end)
            quoted = (
                directive.tokens[0].text if directive.tokens[0].kind == "string" else f"<{name}>"
            )
            guard = f"#if __has_include({quoted})"
            edits.append(Edit(directive.start, directive.end, f"{guard}\n{text}\n#endif"))
    return edits


def _lines(module: SourceModule, node: Node) -> str:
    """The line breaks of a removed part, so that line numbers stay the same."""
    return "\n" * module.source.of(node).count("\n")


def _hosts(module: SourceModule) -> Iterator[Node]:
    of = module.source.of
    for node in inside(module.source.root, skip=_SCOPES):
        if node.type == "function_definition" and not _inside_type(node):
            if not (module.marks.is_marked(node) or module.marks.is_made(node)):
                yield whole(node)
        elif node.type in _OTHERS:
            outer = whole(node)
            parent = outer.parent
            if parent is not None and parent.type in _PLACES and not _needed(of(outer)):
                yield outer


def _needed(text: str) -> bool:
    """True if the device may need a declaration; it does not need those of the host's library."""
    return bool(_NEEDED.search(text)) and not _HOST.search(text)


def _inside_type(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type == "field_declaration_list":
            return True
        parent = parent.parent
    return False

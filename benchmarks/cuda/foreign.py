"""Kernels that others wrote, made elastic: how many, whether both compile, and the same bits.

Input: folders with CUDA sources, which stay where they are.  Output: results/cuda.foreign.json, a
row for each kernel with counts and reasons, none of its text.

* text: `transform` gives elastic forms, or a reason;
* NVRTC: the device's part of the file compiles before and after (no GPU is needed);
* bits: kernels with parameters of plain pointers and numbers run on the CPU on random data, plain
  and elastic, with workers sent away at each look.

    python -m benchmarks cuda.foreign FOLDER… [--include HEADERS] [--only NAME]
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from benchmarks.common import Run
from benchmarks.cuda.foreign_trial import Outcome, Parameter, judge, parameter
from benchmarks.records import Row
from tilewright.base.errors import HostError
from tilewright.elastic.transform import (
    ElasticOptions,
    KernelReport,
    Transformed,
    text_of,
    transform,
)
from tilewright.elastic.transform.cpu_trial import Trial
from tilewright.elastic.transform.cuda_source import headers as headers_of
from tilewright.elastic.transform.cuda_source import read
from tilewright.hosts.cuda_driver import compiled_kernels

#: What the host's headers would have defined.
SHIM = """
#ifndef __CUDACC_RTC__
#include <cooperative_groups.h>
#include <cstdint>
#include <cfloat>
#include <climits>
#include <cstdio>
#include <cassert>
#else
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;
typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t;
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
#define FLT_EPSILON 1.1920928955e-07f
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffu
#define M_PI 3.14159265358979323846
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define NULL 0
#endif
typedef unsigned char uchar;
typedef unsigned int uint;
typedef unsigned short ushort;
#define MINI_DATASET
"""
ARCHITECTURE = ("--gpu-architecture=sm_90", "-std=c++17", "--device-as-default-execution-space")
#: Template arguments that are tried, by kind of parameter.
TYPES, NUMBERS = ("float", "int"), ("32", "16", "256", "128", "8", "64", "4")


class File:
    """A source, transformed."""

    def __init__(
        self, path: Path, folder: Path, include: Sequence[str], headers: Sequence[Path]
    ) -> None:
        self.path, self.name = path, path.relative_to(folder).as_posix()
        text = text_of(path)
        self.places = [path.parent, *headers]
        self.made: Transformed = transform(
            text, path.name, self.places, ElasticOptions(device=True)
        )
        folders = (*include, *self.places)
        self.options = [*ARCHITECTURE, *(f"--include-path={i}" for i in folders)]
        around = headers_of(read(text, path.name), self.places).found
        texts = [header.text.decode(errors="replace") for header in around]
        self.names = _names_of_types("\n".join([*texts, self.made.plain]))
        self.kernels = [k for k in self.made.kernels if k.place.file == path.name]

    def compiles(self, text: str, names: Sequence[str] = ()) -> str:
        """ "" or NVRTC's first error."""
        try:
            compiled_kernels(SHIM + text, self.options, names)
        except HostError as error:
            return error.message
        return ""

    @staticmethod
    def label(instance: str) -> str:
        """A name for what C++ calls so."""
        return re.sub(r"\W+", "_", instance).strip("_")

    @cached_property
    def together(self) -> Trial | None:
        """All kernels that are no templates, for the CPU; None: they do not compile together."""
        kernels = [k for k in self.kernels if k.elastic]
        names = [k.name for k in kernels if list(self.instances(k)) == [k.name]]
        try:
            return Trial(SHIM + self.made.text, {name: name for name in names}, folders=self.places)
        except HostError:
            return None

    def trial(self, instance: str) -> Trial:
        """Raises HostError if it does not compile for the CPU."""
        if "<" not in instance and self.together is not None:
            return self.together
        return Trial(SHIM + self.made.text, {self.label(instance): instance}, folders=self.places)

    def instances(self, kernel: KernelReport) -> Iterator[str]:
        """How C++ may call a kernel, with some template arguments."""
        found = re.search(
            rf"template\s*<([^>]*)>[^;{{}}]*?\b{re.escape(kernel.name)}\s*\(", self.made.plain
        )
        if not found or not found[1].strip():
            yield kernel.name
            return
        kinds = [part.split("=")[0].split() for part in found[1].split(",")]
        for kind in TYPES:
            for number in NUMBERS:
                given = [
                    kind if words[0] in ("class", "typename")
                    else "true" if words[0] == "bool" else number
                    for words in kinds
                ]  # fmt: skip
                yield f"{kernel.name}<{', '.join(given)}>"
                if number != NUMBERS[0] and all(w[0] in ("class", "typename") for w in kinds):
                    break

    def parameters(self, kernel: KernelReport, instance: str) -> list[Parameter] | None:
        """None: there are others than pointers and numbers."""
        found = re.search(rf"\b{re.escape(kernel.name)}\s*\(([^()]*)\)\s*\{{", self.made.plain)
        if not found:
            return None
        inner = re.sub(r"//[^\n]*|/\*.*?\*/", "", found[1], flags=re.DOTALL)
        names = dict(self.names)
        if "<" in instance:
            first = instance.partition("<")[2].split(",")[0].strip("> ")
            names |= dict.fromkeys(("T", "Real", "real", "DATA_TYPE", "T1", "REAL"), first)
        parts = [p for p in inner.split(",") if p.strip() and p.strip() != "void"]
        made = [parameter(p.split("=")[0], names) for p in parts]
        return None if None in made else [p for p in made if p is not None]


def _names_of_types(text: str) -> dict[str, str]:
    found = {m[2]: m[1].strip() for m in re.finditer(r"typedef\s+([\w\s]+?)\s*\b(\w+)\s*;", text)}
    for m in re.finditer(r"^[ \t]*#\s*define\s+(\w+)\s+([a-z][\w ]*?)\s*$", text, re.MULTILINE):
        found.setdefault(m[1], m[2])
    return found


class ForeignRow(TypedDict, total=False):
    """A kernel: whether it takes the elastic form, what NVRTC says before and after, and whether
    both forms gave equal bits on the CPU; fields that do not apply are absent."""

    suite: str
    file: str
    kernel: str
    elastic: bool
    notes: Sequence[str]
    reasons: Sequence[str]
    nvrtc_before: bool
    nvrtc_after: bool | None
    nvrtc_error: str
    instance: str
    equal: bool | None
    order: bool | None
    runs: int
    shape: object
    why: str


def measure(suite: str, file: File, only: str) -> Iterator[ForeignRow]:
    kernels = [k for k in file.kernels if not only or k.name == only]
    # a broken function elsewhere in the file must not be held against a kernel
    before = file.compiles(file.made.plain) if kernels else ""
    after = file.compiles(file.made.text) if kernels and not before else ""
    for kernel in kernels:
        row: ForeignRow = {
            "suite": suite, "file": file.name, "kernel": kernel.name, "elastic": kernel.elastic,
        }  # fmt: skip
        row["notes"] = list(kernel.notes)
        row["reasons"] = [r.why for r in kernel.reasons]
        row["nvrtc_before"], row["nvrtc_after"] = not before, None if before else not after
        if before or after:
            row["nvrtc_error"] = before or after
        if kernel.elastic and not before:
            row |= _bits(file, kernel)
        yield row


def _bits(file: File, kernel: KernelReport) -> ForeignRow:
    """What became of it, plain and elastic, on the CPU."""
    why = "no instance compiles for the CPU"
    for instance in file.instances(kernel):
        parameters = file.parameters(kernel, instance)
        if parameters is None:
            why = "parameters of other kinds than pointers and numbers"
            continue
        if "<" in instance:
            forms = [instance.replace(kernel.name, kernel.name + form, 1)
                     for form in ("", "_elastic", "_slice")]  # fmt: skip
            if error := file.compiles(file.made.text, forms):
                why = error
                continue
        try:
            trial = file.trial(instance)
        except HostError as error:
            why = error.message
            continue
        label = file.label(instance)

        def control(instance: str = instance, label: str = label) -> Trial:
            return Trial(SHIM + file.made.text, {label: instance}, True, file.places)

        verdict: Outcome = judge(trial, label, parameters, control)
        why = verdict.why
        if verdict.equal is False and any(note.startswith("clocks") for note in kernel.notes):
            why = "what the original writes depends on a clock"
            continue
        if verdict.equal is None:
            continue
        return {
            "instance": instance, "equal": verdict.equal, "order": verdict.order,
            "runs": verdict.runs, "shape": verdict.shape, "why": verdict.why,
        }  # fmt: skip
    return {"equal": None, "why": why}


def summary(rows: Sequence[ForeignRow]) -> Row:
    elastic = [r for r in rows if r["elastic"]]
    both = [r for r in elastic if r["nvrtc_before"]]
    run = [r for r in elastic if r.get("equal") is not None]
    return {
        "kernels": len(rows),
        "elastic": len(elastic),
        "refused": len(rows) - len(elastic),
        "reasons": dict(Counter(r["reasons"][0] for r in rows if r["reasons"]).most_common()),
        "compile_before": len(both),
        "compile_after": sum(bool(r["nvrtc_after"]) for r in both),
        "run": len(run),
        "equal": sum(bool(r["equal"]) for r in run),
        "order_matters": sum(bool(r["order"]) for r in run),
        "runs": sum(r["runs"] for r in run),
    }


def files_of(folder: Path) -> Iterator[Path]:
    """Sources, each text once."""
    seen = set()
    for path in sorted(p for p in folder.rglob("*.cu*") if p.suffix in (".cu", ".cuh")):
        key = hashlib.sha256(path.read_bytes()).hexdigest()
        if key not in seen and "__global__" in path.read_text(errors="replace"):
            seen.add(key)
            yield path


def main(
    run: Run,
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER…", help="With sources.")],
    include: Annotated[list[str] | None, typer.Option(help="Headers of CUDA; repeatable.")] = None,
    headers: Annotated[
        list[Path] | None, typer.Option(help="Headers of the suites; repeatable.")
    ] = None,
    only: Annotated[str, typer.Option(metavar="KERNEL", help="Its name.")] = "",
    part: Annotated[
        str, typer.Option(metavar="N/M", help="Which of how many parts of the files.")
    ] = "1/1",
    kept: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="Writes rows there, and goes on there."),
    ] = None,
) -> None:
    place, parts = map(int, part.split("/"))
    rows: list[ForeignRow] = []
    if kept and kept.exists():
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
    known = {(r["suite"], r["file"]) for r in rows}
    for folder in folders:
        for number, path in enumerate(files_of(folder)):
            name = path.relative_to(folder).as_posix()
            if number % parts != place - 1 or (folder.name, name) in known:
                continue
            start = time.monotonic()
            file = File(path, folder, include or (), headers or ())
            new = list(measure(folder.name, file, only))
            rows += new
            for row in new:
                run.show(row)
            if kept:
                with kept.open("a") as out:
                    out.writelines(json.dumps(row) + "\n" for row in new)
            print(f"# {name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print(json.dumps(summary(rows), indent=1))
    if not only and parts == 1:
        run.save(rows, facts={"summary": summary(rows)})

"""Page: what compiling, downloading and loading cost, and how exact the results are.

Input: the records of compiler/, and of models/ (sizes, agreement, load, second_visit).  Output: the
page.
"""

from __future__ import annotations

from benchmarks.records import Record, Records, Stored, by, rows, values
from benchmarks.report.page import Answer, Page, Section, one, place
from benchmarks.report.tables import Columns, crossed, listed, told

SIZES: Columns = {"what": "what", "bytes": "bytes:,", "limit": "limit:,"}
#: When V8 keeps optimised code.
HABITS = {"usual": "after 2 s", "eager": "at once (flag)"}


def _unit(row: Stored) -> str:
    return "ms" if row["kind"] == "kernel" else "s"


def _took(row: Stored) -> str:
    """Seconds of a model, milliseconds of a kernel."""
    return told(row["median_ms" if _unit(row) == "ms" else "seconds"], f".3g {_unit(row)}")


def _limit(row: Stored) -> str:
    return "–" if row["limit"] is None else f"≤ {row['limit']:g} {_unit(row)}"


COMPILED: Columns = {"what": "what", "nodes": "nodes", "kernels": "kernels", "steps": "steps",
            "time": _took, "limit": _limit}  # fmt: skip


def agreement(record: Record) -> str:
    """The worst output of each model per host."""
    outputs = by(record["rows"], "model", "host").values()
    worst = [max(found, key=lambda r: float(r["relative_error"])) for found in outputs]
    return crossed(worst, "model", "host", "relative_error:.1e")


def second_visit(record: Record) -> str:
    """One line per module and habit, the visits beside each other."""
    lines = []
    for (_, habit), found in by(record["rows"], "subject", "habit").items():
        found.sort(key=lambda r: int(r["visit"]))
        lines.append({
            **found[-1], "habit": HABITS[habit],
            **{k: ", ".join(f"{r[k]:.1f}" for r in found) for k in ("load_ms", "first_ms")},
            "found": ", ".join(f"{r['code_found']} of {r['n']}" for r in found),
        })  # fmt: skip
    return listed(lines, VISITS)


VISITS: Columns = {
    "bundle": "subject", "module bytes": "module_bytes:,", "V8 caches code": "habit",
    "load ms: visit 1, 2, 3": "load_ms", "first inference ms: visit 1, 2, 3": "first_ms",
    "cached code found: visit 1, 2, 3": "found", "cached code, bytes": "code_bytes:,.0f",
}  # fmt: skip

LOADED: Columns = {
    "model": "case", "engine": "engine", "threads": "threads",
    "first visit: load, ms": "load_cold_ms:.0f", "first inference, ms": "first_cold_ms:.0f",
    "reload: load, ms": "load_warm_ms:.0f", "its first inference, ms": "first_warm_ms:.0f",
    "memory, MB": lambda r: f"{r['counted_bytes'] / 1e6:.0f}",
    "first visits": "load_cold_n", "reloads": "load_warm_n",
}  # fmt: skip
CANDIDATES: Columns = {
    "model": "name", "kernels": "kernels", "candidates": "candidates",
    "candidates of a kernel: median": "space.median:.0f", "candidates of a kernel: most":
    "space.max:.0f",
    "listing, ms: median": "space_ms.median:.1f", "listing, ms: longest": "space_ms.max:.1f",
    "compiling one, ms: median": "candidate_ms.median:.1f",
    "compiling one, ms: longest": "candidate_ms.max:.1f",
    "scratch memory within 128 KB": lambda r: f"{r['scratch_fits']['128 KB']:.1%}",
}  # fmt: skip
IN_PAGE: Columns = {
    "what": "what", "median, ms": "median_ms:.1f", "shortest, ms": "min_ms:.1f",
    "longest, ms": "max_ms:.1f", "times": "n",
}  # fmt: skip


# ---- the page ------------------------------------------------------------------------------------


def verdict(records: Records) -> str:
    (model,) = rows(records["compiler.curve"], what=MINILM)
    sizes = records["models.sizes"]
    (engine,), (code,) = (values(sizes, "bytes", what=name) for name in (ENGINE, CODE))
    worst = max(values(records["models.agreement"], "relative_error"))
    return (
        f"MiniLM compiles in {model['seconds']:.1f} s for four sizes of its input; a page loads "
        f"{engine / 1000:.1f} kB of engine and {code / 1000:.0f} kB of code for it; outputs of "
        f"models differ from onnxruntime's by {worst:.1e} of their norm at most."
    )


MINILM, LARGEST = "minilm, 4 buckets", "20,000 nodes"
ENGINE, CODE = "engine, minified and gzipped", "minilm code: x86"


def answers(records: Records) -> list[Answer]:
    curve, errors, visits = (
        records[n] for n in ("compiler.curve", "models.agreement", "models.second_visit")
    )
    compiled = [(name, rows(curve, what=name)[0]) for name in (MINILM, LARGEST)]
    sizes = records["models.sizes"]
    (size,) = values(sizes, "bytes", what=ENGINE)
    visit = rows(visits, subject="as built", habit="usual", visit=1)[0]
    worst = max(values(errors, "relative_error"))
    models = len(by(errors["rows"], "model"))
    return [
        *(one(f"compiling {name}, s", told(r["seconds"], ".3g"), r["n"], None, curve)
          for name, r in compiled),
        one("engine, minified and gzipped, bytes", told(size, ","), 1, None, sizes),
        Answer("largest relative error of a model", f"{worst:.1e}", str(models), "", place(errors)),
        one("a first visit: load, ms", told(visit["load_ms"], ".0f"), visit["n"], None, visits),
    ]  # fmt: skip


PAGE = Page("compiler", "Compiling, downloading, exactness", verdict, answers, (
    Section("compiler.curve", "Time to compile",
            "Generated models of growing size, a real one, and a single kernel.",
            COMPILED),
    Section("models.sizes", "Download sizes",
            "What a page loads before weights, with its limit.", SIZES),
    Section("models.agreement", "Agreement with onnxruntime",
            "The largest relative error of a model's outputs on each host.", agreement),
    Section("models.second_visit", "The second visit",
            "Whether Chromium finds optimised code of the first visit, and what that saves.",
            second_visit),
    Section("models.load.chromium", "Loading beside onnxruntime-web",
            "Medians in new browsers by turns: a first visit with an empty profile, then reloads. "
            "Memory is WebAssembly memory and the JavaScript heap after a run.", LOADED),
    Section("compiler.candidates", "Spaces of candidates",
            "Milliseconds to list the space of a kernel, and to compile one of its candidates.",
            CANDIDATES),
    Section("compiler.in_page", "The compiler in a page",
            "The compiler under Pyodide on a first visit, and the same candidates in CPython.",
            IN_PAGE),
))  # fmt: skip

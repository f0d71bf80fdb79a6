"""Pages and charts from benchmarks/results/*.json; README and docs quote only these.

Input: the JSON that the benchmarks wrote, the catalogue.  Output: results/*.md, results/*.svg, and
the tables between `<!-- benchmarks:FOLDERS -->` and `<!-- end -->` in benchmarks/README.md.  It
measures nothing.

    uv run python -m benchmarks.report          writes
    uv run python -m benchmarks.report --check  fails if something is out of date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.catalogue import of_folders
from benchmarks.records import Records
from benchmarks.report import (
    bounds,
    code,
    compiler,
    corun,
    crowd,
    cuda,
    engines,
    gpu_engines,
    gpu_targets,
    headroom,
    kernels,
    server,
    spaces,
    tuning,
    versions,
    webgpu,
)
from benchmarks.report.tables import DASH, table

BENCHMARKS = Path(__file__).parents[1]
RESULTS = BENCHMARKS / "results"
README = BENCHMARKS / "README.md"

PAGES = tuple(
    module.PAGE
    for module in (
        engines, gpu_engines, kernels, code, compiler, webgpu, cuda, corun, bounds, tuning,
        headroom, spaces, crowd, server, versions, gpu_targets,
    )
)  # fmt: skip
INDEX = """# Results

One page per subject, with the answer first. `python -m benchmarks.report` makes them from the JSON
files in this folder, which have every row.

* *Figure*: the geometric mean of several cases, with the least and the most of them as its
  *spread*; or the median of several runs, with the distance between their quartiles, as a share of
  the median. In the tables below the first, *spread* is always that share.
* p50, p95, p99: the time within which 50, 95 or 99 % of the requests or runs ended.
* "Times as fast" and "speed over" compare times of one run, taken by turns: above 1, Tilewright is
  faster.
* K0 to K3 are the matrix products of the nnJIT paper. Other terms are in the
  [glossary](../../docs/glossary.md).
"""


def files() -> Iterator[tuple[Path, str]]:
    """Every file that this report makes, with its text."""
    found = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    yield RESULTS / "README.md", index(found)
    for page in PAGES:
        yield RESULTS / f"{page.name}.md", page.text(found)
        for name, picture in page.pictures(found):
            yield RESULTS / name, picture
    yield README, filled(README.read_text())


def index(records: Records) -> str:
    lines = [f"* **[{page.title}]({page.name}.md)**: {page.verdict(records)}" for page in PAGES]
    return "\n".join([INDEX, "## Subjects", "", *lines, ""])


def filled(text: str) -> str:
    """The text with its tables of benchmarks made anew."""

    def fill(match: re.Match[str]) -> str:
        folders = match[1]
        return f"<!-- benchmarks:{folders} -->\n{benchmarks(folders.split())}\n<!-- end -->"

    return re.sub(r"<!-- benchmarks:([\w ]+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def benchmarks(folders: Sequence[str]) -> str:
    """A line per benchmark of these folders, with the page that shows its results."""
    pages = {name: page.name for page in PAGES for name in page.benchmarks}
    lines = [
        [
            f"`{each.name}{' ' * bool(each.usage)}{each.usage}`", each.measures, each.takes,
            each.needs, f"[{page}](results/{page}.md)" if (page := pages.get(each.name)) else DASH,
        ]
        for each in of_folders(folders)
    ]  # fmt: skip
    return table(["benchmark", "measures", "takes about", "needs", "results"], lines)


def main(
    check: Annotated[bool, typer.Option("--check", help="Only say what is out of date.")] = False,
) -> None:
    """Write the pages and charts of benchmarks/results, and the tables of benchmarks/README.md."""
    made = dict(files())
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    stale += [p for kind in ("*.md", "*.svg") for p in RESULTS.glob(kind) if p not in made]
    if check:
        for path in stale:
            print(f"{path.name} is out of date: run python -m benchmarks.report", file=sys.stderr)
        raise typer.Exit(1 if stale else 0)
    for path in stale:
        if path in made:
            path.write_text(made[path])
        else:
            path.unlink()
    print(f"{len(stale)} files written or removed")


if __name__ == "__main__":
    typer.run(main)

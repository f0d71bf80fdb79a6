"""Pages and charts from benchmarks/results/*.json; README and docs quote only these.

Input: the JSON that the benchmarks wrote.  Output: results/*.md, results/*.svg, and the parts of
README.md between `<!-- results:NAME -->` and `<!-- end -->`.  It measures nothing.

    uv run python -m benchmarks.report          writes
    uv run python -m benchmarks.report --check  fails if something is out of date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.records import Record, Records
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

BENCHMARKS = Path(__file__).parents[1]
RESULTS, README = BENCHMARKS / "results", BENCHMARKS.parent / "README.md"

PAGES = tuple(
    module.PAGE
    for module in (
        engines, gpu_engines, kernels, code, compiler, webgpu, cuda, corun, bounds, tuning,
        headroom, spaces, crowd, server, versions, gpu_targets,
    )
)  # fmt: skip
#: What the first page of the repository has.
FIRST: Mapping[str, Callable[[Record], str]] = {
    "peers.browsers": engines.brief,
    "models.agreement": compiler.agreement,
}
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
    yield README, filled(README.read_text(), found)


def index(records: Records) -> str:
    lines = [f"* **[{page.title}]({page.name}.md)**: {page.verdict(records)}" for page in PAGES]
    return "\n".join([INDEX, "## Subjects", "", *lines, ""])


def filled(text: str, records: Records) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- results:{name} -->\n{FIRST[name](records[name])}\n<!-- end -->"

    return re.sub(r"<!-- results:([\w.]+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main(
    check: Annotated[bool, typer.Option("--check", help="Only say what is out of date.")] = False,
) -> None:
    """Write the pages and charts of benchmarks/results, and the tables of README.md."""
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

"""What a change of the engine or the tuner costs: this checkout's web part beside another one's.

Input: bundles that both engines read, and the other checkout (`git worktree add ../before COMMIT`).
Output: results/versions.visits.json: per browser and bundle, medians of both versions, and of their
differences visit by visit: load, first run, a warm run, the first trial.

    python -m benchmarks versions.visits --other ../before minilm=.demo/minilm
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import ROOT, Run, commit
from benchmarks.models.sizes import minified
from benchmarks.options import BROWSERS, Other, Runs
from benchmarks.records import Row
from lab.timing import turn
from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.hosts.browser_discovery import require
from tilewright.server import BackgroundServer, Tuning, create_app

SCRIPT = Path(__file__).with_suffix(".mjs")
#: What is timed in a visit: load, first run, a warm run, the first trial.
TIMES = ("loaded", "first", "each", "trial")
#: Visits of each version before the counted ones: the server then has made its candidates.
UNCOUNTED = 2


def delivered(root: Path, to: Path) -> Path:
    """The checkout's web part as users get it: minified."""
    web = shutil.copytree(root / "tilewright" / "web", to)
    minified(root / "tilewright" / "web", web)
    return web


@dataclass(frozen=True)
class Visit:
    """A visit of one version.  verdict: of the first candidate;  times: milliseconds of `TIMES`"""

    version: str
    verdict: str
    times: Mapping[str, float]


def visited(browser: str, urls: dict[str, str], visits: int, runs: int) -> list[Visit]:
    """Every visit, the versions by turns; every other turn the other one begins."""
    order = [turn(number, list(urls.items())) for number in range(UNCOUNTED + visits)]
    asked = {
        "browser": browser,
        "path": str(require(browser).path),
        "visits": [{"version": version, "url": url} for each in order for version, url in each],
        "runs": runs,
    }
    done = subprocess.run(
        ["node", str(SCRIPT)], input=json.dumps(asked) + "\n", capture_output=True, text=True,
        check=True, cwd=ROOT,
    )  # fmt: skip
    counted = json.loads(done.stdout)[UNCOUNTED * len(urls) :]
    return [
        Visit(told["version"], told["verdict"], {what: told[what] for what in TIMES})
        for told in counted
    ]


def row(browser: str, name: str, found: list[Visit]) -> Row:
    """Milliseconds: medians of both versions, and median and quartiles of the differences.

    wins: how often the first candidate won, before and now; a win takes a second worker
    """
    now, before = ([v for v in found if v.version == version] for version in ("now", "before"))
    wins = [sum(visit.verdict == "faster" for visit in of) for of in (before, now)]
    about: Row = {"browser": browser, "bundle": name, "visits": len(now), "wins": wins}
    for what in TIMES:
        times = [[visit.times[what] for visit in of] for of in (before, now)]
        more = [n - b for b, n in zip(*times, strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        about[what] = {
            "before": round(statistics.median(times[0]), 3),
            "now": round(statistics.median(times[1]), 3),
            "more": round(middle, 3), "more_low": round(low, 3), "more_high": round(high, 3),
        }  # fmt: skip
    return about


def main(
    run: Run,
    bundles: Annotated[list[str], typer.Argument(metavar="NAME=FOLDER…")],
    other: Other,
    visits: Annotated[int, typer.Option(min=2, help="That count, of each version.")] = 15,
    runs: Runs = 50,
) -> None:
    rows = []
    roots = {"now": ROOT, "before": other}
    with tempfile.TemporaryDirectory() as place:
        webs = {name: delivered(root, Path(place) / name) for name, root in roots.items()}
        for text in bundles:
            name, _, folder = text.partition("=")
            open_bundle(Path(folder))
            for browser in BROWSERS:
                now, before = (
                    BackgroundServer(
                        create_app({"m": Path(folder)}, web=web, tuning=Tuning(makers=makers(0)))
                    )
                    for web in webs.values()
                )
                with now, before:
                    urls = {"now": now.url, "before": before.url}
                    rows.append(row(browser, name, visited(browser, urls, visits, runs)))
                run.show(rows[-1])
    run.save(rows, facts={"before": commit(other)})

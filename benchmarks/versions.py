"""What a change of the engine or the tuner costs: this checkout's web part beside another one's.

Input: bundles that both engines read, and the other checkout (`git worktree add ../before COMMIT`).
Output: results/versions.json: per browser and bundle, medians of both versions, and of their
differences visit by visit: load, first run, a warm run, the first trial.

    uv run python benchmarks/versions.py --other ../before minilm=.demo/minilm
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import common

from tilewright.bundle import open_bundle
from tilewright.cli.workers import makers
from tilewright.hosts.browser_find import require
from tilewright.server import BackgroundServer, Tuning, create_app

ROOT = Path(__file__).parents[1]
SCRIPT = Path(__file__).with_suffix(".mjs")
BROWSERS = ("chromium", "firefox")
TIMES = ("loaded", "first", "each", "trial")
#: Visits of each version before the counted ones: the server then has made its candidates.
UNCOUNTED = 2


def commit(folder: Path) -> str:
    ask = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()


def delivered(root: Path, to: Path) -> Path:
    """The checkout's web part as users get it: minified."""
    web = shutil.copytree(root / "tilewright" / "web", to)
    command = ["node", ROOT / "scripts" / "minify.mjs", root / "tilewright" / "web", web]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return web


def visited(browser: str, urls: dict[str, str], visits: int, runs: int) -> list[dict[str, Any]]:
    """Every visit, the versions by turns; every other turn the other one begins."""
    order = [list(urls.items())[:: -1 if turn % 2 else 1] for turn in range(UNCOUNTED + visits)]
    asked = {
        "browser": browser,
        "path": str(require(browser).path),
        "visits": [{"version": version, "url": url} for turn in order for version, url in turn],
        "runs": runs,
    }
    done = subprocess.run(
        ["node", str(SCRIPT)], input=json.dumps(asked) + "\n", capture_output=True, text=True,
        check=True, cwd=ROOT,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found[UNCOUNTED * len(urls) :]


def row(browser: str, name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Milliseconds: medians of both versions, and median and quartiles of the differences.

    wins: how often the first candidate won, before and now; a win takes a second worker
    """
    now, before = ([v for v in found if v["version"] == version] for version in ("now", "before"))
    wins = [sum(v["verdict"] == "faster" for v in of) for of in (before, now)]
    about: dict[str, Any] = {"browser": browser, "bundle": name, "visits": len(now), "wins": wins}
    for what in TIMES:
        more = [a[what] - b[what] for a, b in zip(now, before, strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        about[what] = {
            "before": round(statistics.median(v[what] for v in before), 3),
            "now": round(statistics.median(v[what] for v in now), 3),
            "more": round(middle, 3), "more_low": round(low, 3), "more_high": round(high, 3),
        }  # fmt: skip
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--visits", type=int, default=15)
    parser.add_argument("--runs", type=int, default=50)
    given = parser.parse_args()
    rows = []
    place = tempfile.TemporaryDirectory()
    roots = {"now": ROOT, "before": given.other}
    webs = {version: delivered(root, Path(place.name) / version) for version, root in roots.items()}
    for text in given.bundles:
        name, _, folder = text.partition("=")
        open_bundle(Path(folder))
        for browser in BROWSERS:
            servers = {
                version: BackgroundServer(
                    create_app(
                        {"m": Path(folder)}, web=web, tuning=Tuning(makers=makers(0))
                    )
                )
                for version, web in webs.items()
            }  # fmt: skip
            with servers["now"] as now, servers["before"] as before:
                urls = {"now": now.url, "before": before.url}
                rows.append(row(browser, name, visited(browser, urls, given.visits, given.runs)))
            print(json.dumps(rows[-1]))
    common.save("versions", rows, before=commit(given.other))


if __name__ == "__main__":
    main()

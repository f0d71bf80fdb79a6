"""How soon a page that was given bad defaults has the bundle's own kernels back, without tuning.

Input: a browser.  Output: results/recovery.json: milliseconds from the end of the page's first run
to the first and to the last swap, and to the end of the check.  The server relinked the bundle with
the slowest candidates that there are; each visit has a profile of its own, and the first one of
each bundle is not counted, as the server makes its spaces then.

    uv run python -m benchmarks.recovery --browser firefox
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.sockets import MODEL
from lab.subjects import compile_matmul
from tilewright.bundle import Bundle, open_bundle, write
from tilewright.cli.workers import makers
from tilewright.compiler import Options, compile_model
from tilewright.hosts.browser_find import require
from tilewright.server import Tuning
from tilewright.server import tuned as module
from tilewright.store import KernelStore
from tilewright.targets.classes import find
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of

ROOT = Path(__file__).parents[1]
DEVICE = "wasm-x86-relaxed-48k"
VISITS = 9
VARIANTS = ("x86",)
TOKENS = 16
ROWS, DEPTH, COLUMNS = 192, 256, 256
#: Kernels of a form with fewer candidates have no slow one.
LEAST_CANDIDATES = 8


def slowest(space: Space) -> int:
    """The candidate with the smallest tile in registers."""

    def tile(number: int) -> int:
        schedule = space.schedules[number].to_json()
        return int(schedule.get("x0", 1)) * int(schedule.get("y0", 1))

    return min(range(1, len(space.schedules)), key=tile)


def bad(bundle: Bundle) -> dict[int, int]:
    spaces = enumerate(space_of(kernel, find(DEVICE)) for kernel in kernels_of(bundle))
    return {n: slowest(s) for n, s in spaces if len(s.schedules) >= LEAST_CANDIDATES}


def one_product(folder: Path) -> dict[str, Any]:
    compiled = compile_matmul(ROWS, DEPTH, COLUMNS, Options(variants=VARIANTS))
    write(compiled.contents, folder)
    return {"x": [(n * 7 % 13) / 4 - 1 for n in range(ROWS * DEPTH)]}


def language_model(folder: Path) -> dict[str, Any]:
    options = Options(buckets={"n": (TOKENS,)}, variants=VARIANTS)
    write(compile_model(MODEL, options).contents, folder)
    names = [value.name for value in open_bundle(folder).manifest.inputs]
    return {name: [int("ids" in name and "type" not in name)] * TOKENS for name in names}


SUBJECTS = {"one product": one_product, "bert-tiny": language_model}


def visits(driver: Any, subject: str, place: Path, browser: str) -> list[Mapping[str, Any]]:
    """What each page saw, without the first one."""
    from helpers.crowd import agreed

    from tests.browser.serving import serving

    inputs = SUBJECTS[subject](place / "m")
    bundle = open_bundle(place / "m")
    url = agreed(place, bundle, DEVICE, bad(bundle), (browser,))
    tuning = Tuning(makers(0), partial(KernelStore.open, url))
    found = []
    with serving({"m": bundle.folder}, tuning=tuning) as site:
        for _ in range(VISITS + 1):
            page = driver.open(site.blank)
            tuned = f"{site.url}/tuned/{DEVICE}/{browser}/m/"
            found.append(page.do("checkCrowd", url=tuned, inputs=inputs))
            page.do("close")
    return found[1:]


def row(subject: str, browser: str, found: list[Mapping[str, Any]]) -> dict[str, Any]:
    swaps = [[e["milliseconds"] for e in f["events"] if e["type"] == "swap"] for f in found]
    ends = [f["events"][-1]["milliseconds"] for f in found]
    firsts, lasts = ([pick(s) for s in swaps if s] for pick in (min, max))
    return {
        "subject": subject,
        "browser": browser,
        "visits": len(found),
        "recovered": len(firsts),
        "kernels": statistics.median(len(s) for s in swaps),
        "first_ms": round(statistics.median(firsts), 1),
        "first_most_ms": round(max(firsts), 1),
        "last_ms": round(statistics.median(lasts), 1),
        "last_most_ms": round(max(lasts), 1),
        "end_ms": round(statistics.median(ends), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", choices=["chromium", "firefox"], default="chromium")
    parser.add_argument("--dry", action="store_true", help="only print")
    given = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from tests.browser.driver import Driver

    module.PATIENCE = 60.0  # the module is linked before the answer goes out
    with Driver(require(given.browser)) as driver:
        for subject in SUBJECTS:
            with tempfile.TemporaryDirectory(prefix="tilewright-") as place:
                found = visits(driver, subject, Path(place), given.browser)
            one = row(subject, given.browser, found)
            print(one, flush=True)
            if not given.dry:
                common.merge("recovery", [one], ("subject", "browser"))


if __name__ == "__main__":
    main()

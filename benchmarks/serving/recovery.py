"""How soon a page that was given bad defaults has the bundle's own kernels back, without tuning.

Input: a browser.  Output: results/serving.recovery.json: milliseconds from the end of the page's
first run to the first and to the last swap, and to the end of the check.  The server relinked the
bundle with the slowest candidates that there are; each visit has a profile of its own, and the
first one of each bundle is not counted, as the server makes its spaces then.

    python -m benchmarks serving.recovery --browser firefox
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.common import Run
from benchmarks.options import Browser
from benchmarks.records import Row
from benchmarks.serving.site import MODEL
from lab.subjects import compile_matmul
from tests.browser.driver import Driver
from tests.browser.serving import serving
from tests.helpers.crowd import agreed
from tilewright.bundle import Bundle, open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.compiler import Options, compile_model
from tilewright.hosts.browser_discovery import require
from tilewright.server import Tuning
from tilewright.server import tuned as module
from tilewright.store import KernelStore
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of

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
        schedule = space.schedules[number]
        return int(getattr(schedule, "x0", 1)) * int(getattr(schedule, "y0", 1))

    return min(range(1, len(space.schedules)), key=tile)


def bad(bundle: Bundle) -> dict[int, int]:
    spaces = enumerate(space_of(kernel, find(DEVICE)) for kernel in kernels_of(bundle))
    return {n: slowest(s) for n, s in spaces if len(s.schedules) >= LEAST_CANDIDATES}


def one_product(folder: Path) -> Row:
    compiled = compile_matmul(ROWS, DEPTH, COLUMNS, Options(variants=VARIANTS))
    write(compiled.contents, folder)
    return {"x": [(n * 7 % 13) / 4 - 1 for n in range(ROWS * DEPTH)]}


def language_model(folder: Path) -> Row:
    options = Options(buckets={"n": (TOKENS,)}, variants=VARIANTS)
    write(compile_model(MODEL, options).contents, folder)
    names = [value.name for value in open_bundle(folder).manifest.inputs]
    return {name: [int("ids" in name and "type" not in name)] * TOKENS for name in names}


SUBJECTS = {"one product": one_product, "bert-tiny": language_model}


@dataclass(frozen=True)
class Visit:
    """Milliseconds from the end of a page's first run to each swap, and to the end of the check."""

    swaps: Sequence[float]
    end: float


def visits(driver: Driver, subject: str, place: Path, browser: str) -> list[Visit]:
    """What each page saw, without the first one."""
    inputs = SUBJECTS[subject](place / "m")
    bundle = open_bundle(place / "m")
    url = agreed(place, bundle, DEVICE, bad(bundle), (browser,))
    tuning = Tuning(makers(0), partial(KernelStore.open, url))
    found = []
    with serving({"m": bundle.folder}, tuning=tuning) as site:
        for _ in range(VISITS + 1):
            page = driver.open(site.blank)
            tuned = f"{site.url}/tuned/{DEVICE}/{browser}/m/"
            events = page.do("checkCrowd", url=tuned, inputs=inputs, timed=True)["events"]
            swaps = [event["milliseconds"] for event in events if event["type"] == "swap"]
            found.append(Visit(swaps, events[-1]["milliseconds"]))
            page.do("close")
    return found[1:]


def row(subject: str, browser: str, found: list[Visit]) -> Row:
    firsts, lasts = ([pick(v.swaps) for v in found if v.swaps] for pick in (min, max))
    return {
        "subject": subject,
        "browser": browser,
        "visits": len(found),
        "recovered": len(firsts),
        "kernels": statistics.median(len(visit.swaps) for visit in found),
        "first_ms": round(statistics.median(firsts), 1),
        "first_most_ms": round(max(firsts), 1),
        "last_ms": round(statistics.median(lasts), 1),
        "last_most_ms": round(max(lasts), 1),
        "end_ms": round(statistics.median(visit.end for visit in found), 1),
    }


def main(run: Run, browser: Browser = "chromium") -> None:
    module.TIMEOUT = 60.0  # the module is linked before the answer goes out
    with Driver(require(browser)) as driver:
        for subject in SUBJECTS:
            with tempfile.TemporaryDirectory(prefix="tilewright-") as place:
                found = visits(driver, subject, Path(place), browser)
            run.keep(row(subject, browser, found))

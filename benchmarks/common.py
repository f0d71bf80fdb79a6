"""What every benchmark shares: the facts of the machine, and writing results.

Input: measurements as plain data.  Output: JSON in benchmarks/results/, with machine, versions and
commit, from which benchmarks.report makes pages and charts.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from benchmarks import records
from benchmarks.records import Row
from tilewright import __version__
from tilewright.cli.tools import cpu

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "onnx", "onnxruntime", "wasmtime")


@dataclass(frozen=True)
class Run:
    """Where the rows of a benchmark go: into results/BENCHMARK.json.

    benchmark: its name, as the runner lists it;  commit: what is measured, where there is no git;
    writes: False only shows rows.  A benchmark that writes a second file names its `part`: that
    file is results/BENCHMARK.PART.json.
    """

    benchmark: str
    commit: str = ""
    writes: bool = True

    def show(self, row: Row) -> None:
        print(json.dumps(row), flush=True)

    def file(self, part: str = "") -> str:
        """The name of a result file, without its folder and ending."""
        return f"{self.benchmark}.{part}" if part else self.benchmark

    def save(self, rows: Sequence[Row], *, part: str = "", **facts: object) -> None:
        """Writes the file anew, with everything needed to read the rows later."""
        if not self.writes:
            return
        record = {
            "name": self.file(part),
            "date": today(),
            "commit": self.commit or commit(),
            "machine": machine(),
            "versions": versions(),
            **facts,
            "rows": list(rows),
        }
        RESULTS.mkdir(exist_ok=True)
        records.write(RESULTS / f"{self.file(part)}.json", record)

    def merge(
        self, rows: Sequence[Row], key: Sequence[str], *, part: str = "", **facts: object
    ) -> None:
        """Replaces the rows of the file with the same `key`; the others stay.

        Rows may come from different runs, so each has its date, commit and processor.  Parts of the
        key that an older row lacks count as equal.
        """
        own = {"date": today(), "commit": self.commit or commit(), "cpu": cpu()}
        new = [{**row, **own} for row in rows]
        stored = rows_of(self.file(part))
        kept = [old for old in stored if not any(_replaces(row, old, key) for row in new)]
        self.save(kept + new, part=part, **facts)

    def keep(self, row: Row, key: Sequence[str], *, part: str = "", **facts: object) -> None:
        """Shows a row and merges it at once: the run may be ended before its last row."""
        self.show(row)
        self.merge([row], key, part=part, **facts)


def _replaces(row: Row, old: Row, key: Sequence[str]) -> bool:
    return all(old.get(k, row[k]) == row[k] for k in key)


def rows_of(name: str) -> list[Row]:
    """The rows of results/NAME.json, each with its date, commit and processor; none without it."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    own = {"date": record["date"], "commit": record["commit"], "cpu": record["machine"]["cpu"]}
    return [{**own, **row} for row in record["rows"]]


# ---- facts ---------------------------------------------------------------------------------------


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def machine() -> Row:
    """CPU, cores, system; no names of hosts or users."""
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def nvidia_driver() -> dict[str, str]:
    """Name and driver of an NVIDIA card, as its own tool says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    name, _, number = said.strip().splitlines()[0].partition(", ")
    return {"gpu": name, "driver": number}


def nvidia_machine() -> Row:
    return machine() | nvidia_driver()


def versions(torch: ModuleType | None = None) -> dict[str, str]:
    """Of packages; torch: PyTorch, if it took part."""
    found = {"tilewright": __version__}
    if torch is not None:
        found |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(root: Path = Path(__file__).parents[1]) -> str:
    """The commit that was measured; "+changes" if the tree differs from it."""

    def git(*args: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=False
        )
        return result.stdout.strip()

    changed = git("status", "--porcelain", "--", "tilewright", "lab")
    return (git("rev-parse", "--short=12", "HEAD") or "none") + ("+changes" if changed else "")

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from benchmarks import records
from benchmarks.catalogue import CATALOGUE
from benchmarks.records import Row, Stored
from tilewright import __version__
from tilewright.cli.tools import cpu

#: What rows and files say, by name.
Facts = Mapping[str, object]
NONE: Facts = {}
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
#: What benchmarks make once and keep: models, bundles, answers.
BUILD = ROOT / "build"
#: Whose versions a file tells.
PACKAGES = ("numpy", "onnx", "onnxruntime", "wasmtime")


@dataclass(frozen=True)
class Run:
    """Where the rows of a benchmark go: into results/BENCHMARK.json.

    benchmark: its name in the catalogue, which says which rows a new one replaces
    commit:    what is measured, where there is no git;  writes: False only shows rows
    A benchmark with a second file names its `part`: that file is results/BENCHMARK.PART.json.
    facts: what a file says beside its rows, instead of or beside machine and versions
    """

    benchmark: str
    commit: str = ""
    writes: bool = True

    def show(self, row: Facts) -> None:
        print(json.dumps(row), flush=True)

    def keep(self, row: Facts, *, part: str = "", facts: Facts = NONE) -> None:
        """Shows a row and stores it at once: the run may be ended before its last row."""
        self.show(row)
        self.save([row], part=part, facts=facts)

    def save(self, rows: Sequence[Facts], *, part: str = "", facts: Facts = NONE) -> None:
        """Stores rows, with everything that is needed to read them later."""
        if not self.writes:
            return
        name = f"{self.benchmark}.{part}" if part else self.benchmark
        key = CATALOGUE[self.benchmark].key.split()
        own = {"date": today(), "commit": self.commit or commit()}
        if key:  # rows may come from different runs, so each says what it is of
            new = [{**row, **own, "cpu": cpu()} for row in rows]
            stored = stored_rows(name)
            kept = [old for old in stored if not any(_replaces(row, old, key) for row in new)]
        else:
            new, kept = [dict(row) for row in rows], []
        usual = {"name": name, **own, "machine": machine(), "versions": versions()}
        RESULTS.mkdir(exist_ok=True)
        records.write(RESULTS / f"{name}.json", {**usual, **facts, "rows": kept + new})


def _replaces(row: Row, old: Stored, key: Sequence[str]) -> bool:
    """Fields of the key that an older row lacks count as equal."""
    return all(old.get(k, row[k]) == row[k] for k in key)


def stored_rows(name: str) -> list[Stored]:
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


def commit(root: Path = ROOT) -> str:
    """The commit that was measured; "+changes" if the tree differs from it."""

    def git(*args: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=False
        )
        return result.stdout.strip()

    changed = git("status", "--porcelain", "--", "tilewright", "lab")
    return (git("rev-parse", "--short=12", "HEAD") or "none") + ("+changes" if changed else "")

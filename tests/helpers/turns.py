"""Cases that go by turns: a run takes a share of a long sweep, and runs after it the others.

Input: the collected tests with their marks `by_turns` and `one_in`, the shares of long places, and
the run's turn.  Output: the mark `nightly`, with why, on what this run leaves out, and lines that
say how much that is.  Runs with one turn take the same cases.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest

#: Names the turn, so that a run can be repeated; without it each commit has its own.
VARIABLE = "TILEWRIGHT_TURN"
#: Two hosts of the same WebGPU, the faster first: scripts/test gives Dawn a fast adapter if it can.
#: With Chromium's adapter Dawn is slower, since it keeps no pipelines.
WEBGPU = ("dawn", "chromium-webgpu")[:: 1 if "TILEWRIGHT_NODE" in os.environ else -1]
#: Pairs that take the same code, and of how many cases the second takes one.
PAIRS = (
    (("chromium", "firefox"), 3),
    (("chromium", "node"), 5),
    (WEBGPU, 5),
    (("sqlite", "postgres"), 2),
)
#: A multiple of those, so that shares and hosts change independently of each other.
PERIOD = 30
#: Where most of the time goes.  Of what the marks leave of a file there, a run takes one case of
#: so many.
SHARES = {
    "tests/browser/": 10, "tests/conformance/": 12, "tests/null/test_cli_": 3,
    "tests/null/test_corun_": 3, "tests/null/test_cuda_": 4, "tests/null/test_extents_": 4,
    "tests/null/test_fuzz_": 4, "tests/null/test_gpu_": 4, "tests/null/test_import_": 2,
    "tests/null/test_kernel_": 4, "tests/null/test_transform_": 4, "tests/null/test_tune_": 4,
}  # fmt: skip
#: In the other files there, of the cases of each test: a run meets every test.  Commands of the
#: documents use what those before them made.
EACH_TEST = {"tests/null/test_docs": 1, "tests/null/": 4}
#: A multiple of what `one_in` counts to, so that both choices change independently.
LONG_PERIOD = PERIOD * 12
#: Parameters that name where a case runs.
HOSTS = ("chromium", "firefox", "node", "chromium-webgpu", "dawn", "cuda-cpu", "native",
         "reference", "wasmtime", "wasmtime-simd")  # fmt: skip


def of_commit() -> int:
    """The turn of the commit that is checked out; 0 without git."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout[:8], 16)


def choose(items: Iterable[pytest.Item], turn: int) -> None:
    """Marks what this turn leaves out as `nightly`."""
    items = list(items)
    for pair, turns in PAIRS:
        _one_host_of(pair, turns, items, turn)
    groups: dict[tuple[object, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        named = _strings(item)
        host = next((host for host in HOSTS if host in named), "")
        marks = (m for m in item.iter_markers("one_in") if host in m.args[1:] or not m.args[1:])
        mark = next(marks, None)  # the closest
        if mark and not named & _always(mark) and not _left_out(item):
            groups[_file(item), mark.args[0], host].append(item)
    for (file, count, host), cases in groups.items():
        by_day = turn // PERIOD + crc32(f"{file} {host}".encode())
        _one_of(int(str(count)), cases, by_day, "one_in")
    shared: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        always = set().union(*map(_always, item.iter_markers("one_in")))
        if not _strings(item) & always and not _left_out(item):
            whole = any(item.nodeid.startswith(place) for place in SHARES)
            shared[_file(item) if whole else item.nodeid.partition("[")[0]].append(item)
    for group, cases in shared.items():
        share = next((n for p, n in (SHARES | EACH_TEST).items() if group.startswith(p)), 1)
        _one_of(share, cases, turn // LONG_PERIOD + crc32(group.encode()), "share of the folder")


def left_out(items: Iterable[pytest.Item]) -> dict[str, dict[str, int]]:
    """Of what a run left out as nightly, how much and why: by folder."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        if mark := item.get_closest_marker("nightly"):
            folder = _file(item).rpartition("/")[0]
            found[folder][mark.args[0] if mark.args else "nightly"] += 1
    return {folder: dict(sorted(whys.items())) for folder, whys in sorted(found.items())}


def told(left: dict[str, dict[str, int]]) -> list[str]:
    """The lines of that."""
    lines = [
        f"{folder}: {sum(whys.values())} cases ({', '.join(f'{w} {n}' for w, n in whys.items())})"
        for folder, whys in left.items()
    ]
    return [*lines, "scripts/test --nightly runs these as well"]


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _always(mark: pytest.Mark) -> set[str]:
    """Parameters of cases that are always taken."""
    return set(mark.kwargs.get("but", ()))


def _one_of(count: int, cases: list[pytest.Item], turn: int, why: str) -> None:
    """Leaves one of so many; all are taken in as many turns."""
    share = min(count, len(cases))
    for number, item in enumerate(cases):
        if (number - turn) % share:
            item.add_marker(pytest.mark.nightly(why))


def _one_host_of(
    pair: tuple[str, str], turns: int, items: Iterable[pytest.Item], turn: int
) -> None:
    """Of a file's cases marked `by_turns` each is for one host of the pair."""
    cases: dict[str, dict[str, dict[str, pytest.Item]]] = defaultdict(dict)
    for item in items:
        host = next((host for host in pair if host in _strings(item)), None)
        if host and item.get_closest_marker("by_turns") and not _each(item):
            file, _, case = item.nodeid.partition("::")
            same = case.replace(f"-{host}", "").replace(f"{host}-", "").replace(host, "")
            cases[file].setdefault(same, {})[host] = item
    for of_file in cases.values():
        both = (case for case in of_file.values() if len(case) == len(pair))
        for number, case in enumerate(both):
            rests = pair[0] if (number + turn) % turns == 1 else pair[1]
            case[rests].add_marker(pytest.mark.nightly("by_turns"))


def _strings(item: pytest.Item) -> set[str]:
    """The parameters that are words; others may be arrays, which have no single answer to ==."""
    if not hasattr(item, "callspec"):
        return set()
    return {value for value in item.callspec.params.values() if isinstance(value, str)}


def _each(item: pytest.Item) -> bool:
    """Whether its test wants each browser."""
    return item.get_closest_marker("each_browser") is not None


def _left_out(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("nightly", "slow", "gpu"))

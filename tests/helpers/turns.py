"""Cases that go by turns: a run takes a share of a long sweep, and runs after it the others.

Input: the collected tests with their marks `by_turns` and `one_in`, the shares of long places, and
the run's turn.  Output: the mark `nightly`, with why, on what this run leaves out, and lines that
say how much that is.  Runs with one turn take the same cases.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import pytest

#: Names another turn than this one.
VARIABLE = "TILEWRIGHT_TURN"
#: What scripts/test takes: the same cases here and wherever else the commit is tested.  Another
#: number goes into a commit after a run with it.
TURN = 7
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
#: Where most of the time goes.  Of what the marks leave there, a run takes one case of so many.
FOLDERS = {"tests/browser/": 17, "tests/conformance/": 17}
#: The same, of each file.
SHARES = {
    "tests/unit/test_cli_": 3, "tests/unit/test_corun_": 3, "tests/unit/test_cuda_": 6,
    "tests/unit/test_extents_": 4, "tests/unit/test_fuzz_": 4, "tests/unit/test_gpu_": 6,
    "tests/unit/test_import_": 4, "tests/unit/test_kernel_": 4, "tests/unit/test_transform_": 6,
    "tests/unit/test_tune_": 6,
}  # fmt: skip
#: In the other files there, of the cases of each test: a run meets every test.  Commands of the
#: documents use what those before them made.
EACH_TEST = {"tests/unit/test_docs": 1, "tests/unit/": 4, "tests/lab/": 4}
#: A multiple of what `one_in` counts to, so that both choices change independently.
LONG_PERIOD = PERIOD * 12
#: A multiple of the shares, too.
SELDOM_PERIOD = LONG_PERIOD * 12
#: Parameters that name where a case runs.
HOSTS = ("chromium", "firefox", "node", "chromium-webgpu", "dawn", "cuda-cpu", "native",
         "reference", "wasmtime", "wasmtime-simd")  # fmt: skip


@dataclass
class Case:
    """A collected test: its file, its parameters that are words (others may be arrays, which have
    no single answer to ==), its marks with the closest first, and whether no run takes it."""

    item: pytest.Item
    file: str
    words: set[str]
    marks: list[pytest.Mark]
    left: bool

    @classmethod
    def of(cls, item: pytest.Item) -> Case:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        marks = list(item.iter_markers())
        left = any(mark.name in ("nightly", "slow", "gpu") for mark in marks)
        return cls(item, _file(item), {v for v in params if isinstance(v, str)}, marks, left)

    def marked(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def leave(self, why: str) -> None:
        self.item.add_marker(pytest.mark.nightly(why))
        self.left = True


def choose(items: Iterable[pytest.Item], turn: int) -> None:
    """Marks what this turn leaves out as `nightly`."""
    all_cases = [Case.of(item) for item in items]
    for pair, turns in PAIRS:
        _one_host_of(pair, turns, all_cases, turn)
    groups: dict[tuple[object, ...], list[Case]] = defaultdict(list)
    for case in (case for case in all_cases if not case.left):
        host = next((host for host in HOSTS if host in case.words), "")
        marks = (m for m in case.marked("one_in") if host in m.args[1:] or not m.args[1:])
        mark = next(marks, None)  # the closest
        if mark and not case.words & _always(mark):
            groups[case.file, mark.args[0], host].append(case)
    for (file, count, host), cases in groups.items():
        by_day = turn // PERIOD + crc32(f"{file} {host}".encode())
        _one_of(int(str(count)), cases, by_day, "one_in")
    _rest(all_cases, turn)
    shared: dict[str, list[Case]] = defaultdict(list)
    for case in (case for case in all_cases if not case.left):
        if not _is_always(case):
            whole = case.file.startswith(tuple(SHARES))
            shared[case.file if whole else case.item.nodeid.partition("[")[0]].append(case)
    for group, cases in shared.items():
        share = next((n for p, n in (SHARES | EACH_TEST).items() if group.startswith(p)), 1)
        _one_of(share, cases, turn // LONG_PERIOD + crc32(group.encode()), "share of the file")


def _rest(cases: Iterable[Case], turn: int) -> None:
    """Of a folder one case of so many is taken, and what is `seldom` in one run of so many: by its
    name, whatever else is collected."""
    for case in cases:
        folder = next((n for place, n in FOLDERS.items() if case.file.startswith(place)), 1)
        seldom = next((int(m.args[0]) for m in case.marked("seldom")), 1)
        for count, period, why in (
            (folder, LONG_PERIOD, "share of the folder"),
            (seldom, SELDOM_PERIOD, "seldom"),
        ):
            name = crc32(case.item.nodeid.encode())
            if (turn // period + name) % count and not case.left and not _is_always(case):
                case.leave(why)


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


def _is_always(case: Case) -> bool:
    return any(case.words & _always(mark) for mark in case.marked("one_in"))


def _one_of(count: int, cases: list[Case], turn: int, why: str) -> None:
    """Leaves one of so many; all are taken in as many turns."""
    share = min(count, len(cases))
    for number, case in enumerate(cases):
        if (number - turn) % share:
            case.leave(why)


def _one_host_of(pair: tuple[str, str], turns: int, all_cases: Iterable[Case], turn: int) -> None:
    """Of a file's cases marked `by_turns` each is for one host of the pair."""
    cases: dict[str, dict[str, dict[str, Case]]] = defaultdict(dict)
    for case in all_cases:
        host = next((host for host in pair if host in case.words), None)
        if host and case.marked("by_turns") and not case.marked("each_browser"):
            name = case.item.nodeid.partition("::")[2]
            same = name.replace(f"-{host}", "").replace(f"{host}-", "").replace(host, "")
            cases[case.file].setdefault(same, {})[host] = case
    for of_file in cases.values():
        both = (case for case in of_file.values() if len(case) == len(pair))
        for number, hosts in enumerate(both):
            hosts[pair[0] if (number + turn) % turns == 1 else pair[1]].leave("by_turns")

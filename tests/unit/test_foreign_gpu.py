"""The benchmark of elastic forms on a GPU, by a trial whose times are known."""

from __future__ import annotations

from typing import Any

import pytest
from test_transform_cpu import CASES, SOURCE

from benchmarks.cuda import foreign_gpu
from tilewright.elastic.transform import ElasticOptions, transform
from tilewright.elastic.transform.cpu_trial import TrialLaunch

GRAM = CASES["gram"][1]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(foreign_gpu, "WARM_MS", 10.0)
    return foreign_gpu


class Timed:
    """Milliseconds of both forms; the elastic one writes so much more into its output."""

    def __init__(self, plain_ms: float, elastic_ms: float, more: float = 0.0) -> None:
        self.times, self.more = (plain_ms, elastic_ms), more

    def plain(self, name: str, launch: TrialLaunch) -> None:
        launch.args[1][...] = 1

    def elastic(self, name: str, launch: TrialLaunch, away: Any) -> int:
        launch.args[1][...] = 1 + self.more
        return 3

    def tiles_of_task(self, name: str, launch: TrialLaunch) -> int:
        return 2

    def workers(self, name: str, launch: TrialLaunch) -> int:
        return 3

    def cost(self, name: str, launch: TrialLaunch, times: int) -> tuple[float, float]:
        return self.times


def test_both_forms(benchmark: Any) -> None:
    row = benchmark.measured(Timed(2.0, 2.1), "gram", GRAM, 3, 5)
    assert (row["what"], row["kernel"], row["equal"]) == ("forms", "gram", True)
    assert (row["plain_ms"], row["elastic_ms"], row["ratio"]) == (2.0, 2.1, 1.05)
    tiles = GRAM.tiles
    assert (row["each"], row["task_us"]) == (2, round(2100 * 3 / -(-tiles // 2), 2))
    assert (row["runs"], row["evictions"], row["n"]) == (5, 10, 3)
    row = benchmark.measured(Timed(2.0, 2.1, more=1.0), "gram", GRAM, 3, 5)
    assert not row["equal"]
    assert "ratio" not in row


def test_padding_is_compared_with_the_same_form_without(benchmark: Any) -> None:
    made = transform(SOURCE.read_text(), SOURCE.name, options=ElasticOptions(pad=True))
    assert list(benchmark.padded_names(made)) == ["transpose", "gram"]
    row = benchmark.padding(Timed(1.0, 4.0), Timed(1.0, 1.0), "gram", GRAM, 3)
    assert row == {
        "what": "padding", "kernel": "gram", "equal": True, "elastic_ms": 4.0, "padded_ms": 1.0,
        "ratio": 0.25, "spread": 0.0, "n": 3,
    }  # fmt: skip
    assert not benchmark.padding(Timed(1.0, 4.0), Timed(1.0, 1.0, 1.0), "gram", GRAM, 3)["equal"]

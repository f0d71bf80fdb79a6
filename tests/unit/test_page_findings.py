"""What the camera page reads from a model's output (web/page/picture_model.js)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node import run

AREAS = """
const { areasOf } = await import('TUNE/../page/picture_model.js');
const output = { data: Float32Array.from(<data>), shape: <shape> };
console.log(JSON.stringify(areasOf(output, <result>).areas));
"""
LABELS = """
const { labelsOf } = await import('TUNE/../page/picture_model.js');
console.log(JSON.stringify(labelsOf({ data: Float32Array.from(<data>) }, <result>).ranked));
"""


def areas(cells: Any, **result: Any) -> Any:
    cells = np.asarray(cells, np.float32)
    values = {"data": cells.ravel().tolist(), "shape": [1, 1, *cells.shape]}
    return run(AREAS, **values, result={"label": "x", **result})


def cells(height: int = 12, width: int = 20, **marked: tuple[slice, slice]) -> Any:
    made = np.zeros((height, width))
    for place in marked.values():
        made[place] = 1
    return made


def test_areas_from_top_to_bottom() -> None:
    found = areas(cells(low=np.s_[7:11, 2:6], high=np.s_[1:4, 10:20]))
    assert found == [
        {"box": [10, 1, 10, 3], "score": 1},
        {"box": [2, 7, 4, 4], "score": 1},
    ]


def test_corners_do_not_join_areas_and_sides_do() -> None:
    corner = cells(a=np.s_[0:3, 0:3], b=np.s_[3:6, 3:6])
    assert [one["box"] for one in areas(corner)] == [[0, 0, 3, 3], [3, 3, 3, 3]]
    side = cells(a=np.s_[0:3, 0:3], b=np.s_[2:5, 3:6])
    assert [one["box"] for one in areas(side)] == [[0, 0, 6, 5]]


def test_rows_do_not_run_into_each_other() -> None:
    """The last cell of a row is beside the first one of the next in memory only."""
    found = areas(cells(right=np.s_[0:4, 17:20], left=np.s_[1:5, 0:3]))
    assert [one["box"] for one in found] == [[17, 0, 3, 4], [0, 1, 3, 4]]


def test_an_area_that_winds() -> None:
    """It opens upwards: its two arms join after both were seen."""
    arms = cells(a=np.s_[0:8, 2:4], b=np.s_[0:8, 10:12], floor=np.s_[8:10, 2:12])
    assert [one["box"] for one in areas(arms)] == [[2, 0, 10, 10]]


def test_specks_and_doubtful_areas_are_left_out() -> None:
    assert areas(cells(speck=np.s_[0:2, 0:4])) == []
    doubtful = cells(a=np.s_[0:4, 0:4]) * 0.4
    assert areas(doubtful) == []
    assert areas(doubtful, above=0.3, sure=0.5) == []
    (found,) = areas(doubtful, above=0.3)
    assert found["score"] == pytest.approx(0.4)


def test_areas_grow_within_the_map() -> None:
    """By area over perimeter: 4 * 8 / 24 on each side."""
    (found,) = areas(cells(a=np.s_[6:10, 0:8]), grow=1.5)
    assert found["box"] == [0, 4, 10, 8]


def test_no_number_is_no_area() -> None:
    assert areas(np.full((6, 6), np.nan)) == []


def test_labels() -> None:
    names = [f"label {number}" for number in range(7)]
    shares = [0.05, 0.4, 0.1, 0.2, 0.15, 0.04, 0.06]
    found = run(LABELS, data=shares, result={"labels": names})
    assert [one["label"][-1] for one in found] == list("13426")
    assert [one["share"] for one in found] == pytest.approx(sorted(shares)[::-1][:5])


def test_large_numbers_become_shares() -> None:
    result = {"labels": ["a", "b"], "softmax": True}
    found = run(LABELS, data=[1000, 1001], result=result)
    assert [one["label"] for one in found] == ["b", "a"]
    assert [one["share"] for one in found] == pytest.approx([0.7310586, 0.2689414])

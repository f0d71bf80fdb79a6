"""The tables of `tilewright reports preview`: every field of every message, and nothing else."""

from __future__ import annotations

from typing import get_args

from tilewright.store.queries import KEY
from tilewright.store.schema import reports
from tilewright.tuning.messages import FIELDS, KEPT, SHARED, FromClient

KINDS = {kind.__struct_config__.tag: kind for kind in get_args(FromClient)}


def test_every_field_of_every_message_is_explained_and_none_is_made_up() -> None:
    assert {n: tuple(f) for n, f in FIELDS.items()} == {
        name: kind.__struct_fields__ for name, kind in KINDS.items()
    }
    assert set(SHARED) < set(FIELDS)


def test_every_column_of_a_stored_report_is_explained() -> None:
    numbers = {"id", "key_id"}
    assert set(KEPT) == {column.name for column in reports.c} - numbers | set(KEY)

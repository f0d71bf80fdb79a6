"""What must hold inside (base/errors.py): the value itself, or a bug of ours with its facts."""

from __future__ import annotations

import pytest

from tilewright.base.errors import CompilerBug, ensure, of_kind, required


def test_what_does_not_hold_is_a_bug_of_ours_with_its_facts() -> None:
    with pytest.raises(CompilerBug, match="it is not a product") as missing:
        required(None, "it is not a product", kernel="k")
    with pytest.raises(CompilerBug, match="no list") as other:
        of_kind("text", list, "no list", kernel="k")
    with pytest.raises(CompilerBug, match="not equal") as wrong:
        ensure(False, "not equal", kernel="k")
    assert missing.value.facts == wrong.value.facts == {"kernel": "k"}
    assert other.value.facts == {"found": "text", "kernel": "k"}

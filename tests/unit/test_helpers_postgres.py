"""Without PostgreSQL the store's tests are skipped, but not where everything must be tested."""

from __future__ import annotations

import pytest
from helpers import postgres


@pytest.mark.parametrize(
    ("ci", "ends"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_no_postgres(ci: str, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "programs", lambda: None)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match="PostgreSQL is not installed"):
        postgres.needed()

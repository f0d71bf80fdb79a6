"""The words that Python and JavaScript share are written down once."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/abi.py"


def test_the_generated_file_is_up_to_date() -> None:
    """If this fails: uv run python scripts/abi.py"""
    made = runpy.run_path(str(SCRIPT))
    assert made["PATH"].read_text() == made["text"]()

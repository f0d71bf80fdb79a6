"""Changes in a copy of the web files, for tests that need a page which behaves in another way.

Input: a file of the copy, a text in it, and what stands there instead.  Output: the changed file.
It copies nothing: a test never changes the checkout's own files.
"""

from __future__ import annotations

from pathlib import Path


def replace_once(file: Path, text: str, instead: str) -> None:
    """Fails unless the file has `text` exactly once: else the test would change something else."""
    before = file.read_text()
    assert before.count(text) == 1, f"{file.name} has {before.count(text)} times: {text}"
    file.write_text(before.replace(text, instead))

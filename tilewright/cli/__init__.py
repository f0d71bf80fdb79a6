"""The command line: thin commands over the library.

Input: arguments.  Output: text for people, or with `--json` one JSON document on stdout; the exit
code tells the kind of failure (base/errors.py).  No command computes anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and ends the process with its exit code."""
    # Imported here, because compile workers import this package without any command: that halves
    # the time until they are ready.
    from tilewright.cli import entry

    entry.main(arguments)

"""The command line: thin commands over the library.

Input: arguments.  Output: text for people, or with `--json` one JSON document on stdout; the exit
code tells the kind of failure (base/errors.py).  No command computes anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and ends the process with its exit code."""
    # a compile worker needs cli/workers.py, and none of the commands
    from tilewright.cli.entry import main as run

    run(arguments)

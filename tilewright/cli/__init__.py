"""The command line: thin commands over the library.

Input: arguments.  Output: text for people, or with `--json` one JSON document on stdout; the exit
code tells the kind of failure (base/errors.py).  No command computes anything itself.
"""

from tilewright.cli.entry import main

__all__ = ["main"]

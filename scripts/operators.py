"""docs/operators.md from the frontend's table: which ONNX operators have a rule, and since when.

Input: the table.  Output: the page (printed, or written with --write).  A test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.frontend.table import supported

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"


def page() -> str:
    rows = [f"| {name} | {', '.join(map(str, since))} |" for name, since in supported().items()]
    head = [
        "# Operators",
        "",
        "Made by `scripts/operators.py` from the frontend's table. Opsets 13 to the newest that",
        "the `onnx` package knows are accepted; the second column says from which opset a rule",
        "holds.",
        "Operators that ONNX itself defines by a function body are expanded and need no rule.",
        "Three operators hold graphs and need something known while compiling: `If` its condition,",
        "`Loop` its number of iterations, `Scan` (from opset 9 on) the length of its sequences.",
        "",
        f"{len(rows)} operators have a rule.",
        "",
        "| operator | since opset |",
        "| --- | --- |",
    ]
    return "\n".join(head + rows) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(page(), end="")

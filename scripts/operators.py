"""docs/operators.md from the frontend's tables: which ONNX operators have a rule, and since when.

Input: the table.  Output: the page (printed, or written with --write).  A test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.frontend.operator_table import supported
from tilewright.frontend.opsets import OLDEST, RULES, differing
from tilewright.frontend.subgraphs import CONTROL

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"


RULED = f"""\
# Operators

This page lists the ONNX operators that Tilewright supports. `tilewright check MODEL` answers the
same question for one model, with the reason for each node that is not supported.

Opsets {OLDEST} to the newest that the `onnx` package knows are accepted. The second column is the
first opset of each rule. Three more things to know:

* Operators that ONNX itself defines by a function body are expanded and need no rule.
* Three operators have subgraphs and need a value at compile time: `If` its condition, `Loop` its
  number of iterations, `Scan` (from opset 9 on) the length of its sequences.
* Operators of the domain `ai.onnx.ml` (trees, scalers and other classical machine learning) have no
  rule.

`scripts/operators.py` makes this page from the frontend's tables.

%d operators have a rule.

| operator | since opset |
| --- | --- |
"""

CONVERTED = f"""
## Old opsets

The rules are written for opset {RULES} and newer. Most operators mean the same in opsets {OLDEST}
to {RULES - 1}. Nodes of the others are converted by ONNX's version converter, or by
`frontend/opsets.py` where the converter is wrong. Weights are not touched. `tilewright check`
notes that a model was converted. It reports these as unsupported: `Scan` of opset 8, the mask of a
`Dropout` before opset 12 if it is read, batch norm with statistics per activation (`spatial=0`),
and operators that the model's opset does not have.

| operator | defined in opset | converted by |
| --- | --- | --- |
"""


def page() -> str:
    rules = [f"| {name} | {', '.join(map(str, since))} |" for name, since in supported().items()]
    names = sorted({*supported(), *CONTROL, "Upsample"})
    old = [f"| {op} | {since} | {who} |" for (op, since), who in differing(names).items()]
    return "\n".join([RULED % len(rules) + rules[0], *rules[1:], CONVERTED + old[0], *old[1:], ""])


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(page(), end="")

"""The policy knows no device and the simulator only the policy."""

from __future__ import annotations

import ast

import pytest
from test_layers import PACKAGE

ALLOWED = {
    "tilewright/elastic/policy": {"tilewright.base", "tilewright.elastic.policy"},
    "lab/simulator": {
        "tilewright.base",
        "tilewright.elastic.policy",
        "lab.simulator",
        "tilewright.elastic.timeline",
    },
}
#: What would read a clock, or draw lots.
IMPURE = {"time", "datetime", "random", "threading", "os"}


@pytest.mark.parametrize("folder", ALLOWED)
def test_pure_parts_import_pure_parts(folder: str) -> None:
    files = sorted((PACKAGE.parent / folder).glob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert module.split(".")[0] not in IMPURE, path
                if module.startswith(("tilewright", "lab")):
                    assert any(module.startswith(a) for a in ALLOWED[folder]), (path, module)
            elif isinstance(node, ast.Import):
                assert not IMPURE & {name.name for name in node.names}, path

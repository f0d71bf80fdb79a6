"""Every benchmark can be started: what it imports from others is there."""

from __future__ import annotations

from importlib import import_module

import pytest
from test_layers import PACKAGE

FOLDER = PACKAGE.parent / "benchmarks"


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_benchmark_can_be_imported(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if (FOLDER / f"{error.name}.py").exists() or str(error.name).startswith("tilewright"):
            raise
        pytest.skip(f"{error.name} is not installed")

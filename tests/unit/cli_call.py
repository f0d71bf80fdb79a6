"""Calls the command line, or the laboratory's, inside of the test's process.

Input: arguments.  Output: `Called` with exit code, stdout and stderr.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.__main__ import main as lab_main
from tilewright.cli import main


class Called:
    """What a call of the command line gave."""

    main = staticmethod(main)

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            self.main([str(a) for a in arguments])
        self.code = ended.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)


class LabCalled(Called):
    """What a call of `python -m lab` gave."""

    main = staticmethod(lab_main)

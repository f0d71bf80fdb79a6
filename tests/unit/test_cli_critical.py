"""What people read of critical models (cli/corun.py)."""

from __future__ import annotations

import re

from helpers.corun_results import of_command
from rich.console import Console

from tilewright.cli.corun import view


def test_people_read_how_often_the_time_alone_changed() -> None:
    found = of_command()
    assert found["solo_changed"] == []
    console = Console(width=200)
    with console.capture() as printed:
        console.print(view(found))
    assert re.search(r"solo_changed +never", printed.get())
    changes = [{"was_us": 100.0, "now_us": 112.0}, {"was_us": 112.0, "now_us": 101.0}]
    with console.capture() as printed:
        console.print(view({**found, "solo_changed": changes}))
    assert "2 times, at last 112.0 to 101.0" in printed.get()

"""A browser that Tilewright started ends with it, also when it is killed."""

from __future__ import annotations

import pytest
from helpers.orphans import orphaned
from helpers.waiting import until

from tilewright.base.errors import HostError
from tilewright.hosts.browser_programs import PROGRAMS, program


@pytest.mark.browser
@pytest.mark.parametrize("name", PROGRAMS)
def test_browsers_end_with_a_process_that_is_killed(name: str) -> None:
    try:
        program(name)
    except HostError as error:
        pytest.skip(str(error))
    with orphaned(name) as orphan:
        until(lambda: not orphan.processes())
        until(lambda: not orphan.folders())
